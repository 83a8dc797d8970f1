/** A training can be awaited or iterated, and takes a program's own algorithms, tasks and environments as values. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { preferenceRows } from '../../../tests/support/preference-rows.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import {
  definePolicyAlgorithm,
  definePreferenceLoss,
  dpo,
  grpo,
  policyOptions,
  segmentsOf,
} from '../../algorithms/index.ts';
import { speakTo } from '../../spelling.ts';
import { liveTensors, tensor } from '../../tensor/index.ts';
import { trainPolicy } from '../policy/policy.ts';
import { trainPreference } from '../preference/preference.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-training-'));
const model = join(folder, 'model');
beforeAll(() => {
  speakTo('program');
  return tinyModel(model);
});
afterAll(() => rmSync(folder, { recursive: true }));

const quiet = {
  reportTo: ['none' as const],
  outputDir: join(folder, 'runs'),
  device: 'cpu',
  dtype: 'float32' as const,
};
const pairs = { ...quiet, model, dataset: preferenceRows(24), batchSize: 4, gradAccum: 1, maxSteps: 2 };
const options = { cache: false, run: { curves: false } } as const;

describe('a training', () => {
  it('names options as the program does, before it starts and in a step', async () => {
    const faulty = trainPreference({ ...pairs, wandbProject: 'mine', loraR: 4 }, options);
    const error = await faulty.then(String, (caught) => (caught as Error).message);
    expect(error).toMatch(/ loraR: has no effect here: .*lora/);
    expect(error).toMatch(/ wandbProject: has no effect here: .*reportTo/);
    expect(error).not.toContain('--');
    const unknown = { ...pairs, runName: 'unknown', evalSteps: 1, metricForBestModel: 'eval/nothing' };
    await expect(trainPreference(unknown, options)).rejects.toThrow(/metricForBestModel/);
  });

  it('refuses what is no callback or signal before it loads anything', async () => {
    const given = { ...pairs, model: join(folder, 'not there') };
    const start = (wrong: unknown) => trainPreference(given, wrong as never).then();
    await expect(start(null)).rejects.toThrow(/^trainPreference takes an object with signal.*, not null/);
    await expect(start({ signal: 'now' })).rejects.toThrow(/signal "now": expected an AbortSignal/);
    await expect(start({ onStep: 3 })).rejects.toThrow(/onStep 3: expected a function/);
    await expect(start({ onSamples: 3 })).rejects.toThrow(/onSamples 3: expected a function/);
    await expect(start({ progress: () => {} })).rejects.toThrow(/progress a function: expected an object with start/);
    const policy = trainPolicy({ ...quiet, model: given.model, task: 'gcd' }, { onStart: 'x' } as never);
    await expect(policy.then()).rejects.toThrow(/onStart "x": expected a function/);
  });

  it('trains when it is awaited, and frees what it loaded', async () => {
    const before = await settledTensors();
    const result = await trainPreference({ ...pairs, runName: 'awaited', evalSteps: -1 }, options);
    expect(result).toMatchObject({ step: 2, ended: 'finished' });
    expect(existsSync(join(result.folder, 'final', 'config.json'))).toBe(true);
    expect(liveTensors()).toBe(before);
  });

  it('is watched when it is iterated, with measures by name', async () => {
    const training = trainPreference({ ...pairs, runName: 'watched', evalSteps: 2 }, options);
    expect(() => training.folder).toThrow(/has not begun/);
    const seen: [number, number, number | undefined][] = [];
    for await (const { step, train, eval: held } of training) seen.push([step, train.loss, held?.accuracy]);
    expect(seen.map(([step]) => step)).toEqual([1, 2]);
    expect(seen[0]?.[1]).toBeCloseTo(Math.log(2), 3);
    expect(seen[0]?.[2]).toBeUndefined();
    expect(seen[1]?.[2]).toBeGreaterThanOrEqual(0);
    expect(training.folder).toContain('watched');
    const result = await training;
    expect(result).toMatchObject({ step: 2, ended: 'finished', folder: training.folder });
    expect(await training).toEqual(result);
  });

  it('does nothing until then', async () => {
    const before = await settledTensors();
    trainPreference({ ...pairs, model: './nowhere' });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(liveTensors()).toBe(before);
    await expect(Promise.resolve(trainPreference({ ...pairs, model: './nowhere' }))).rejects.toThrow(/nowhere/);
  });
});

describe('algorithms as values', () => {
  it('a term that is not one number per token is refused', async () => {
    const summed = definePolicyAlgorithm({
      ...{ name: 'summed', summary: 'a sum for the terms', paper: 'none' },
      ...{ advantage: 'group-centred', aggregation: 'sum', klIn: 'none' },
      terms: ({ lp, advantages }) => ({ policy: lp.mul(advantages).sum() }),
    });
    const lp = tensor([-1, -2, -1]);
    const batch = { lp, lpOld: lp, advantages: tensor([1, 1, -1]), segments: segmentsOf([2, 1], lp) };
    const totals = { tokens: 3, sequences: 2, maxNewTokens: 2 };
    expect(() => summed.loss(batch, policyOptions(summed), totals)).toThrow(/one number per token \[3\]/);
  });

  it('a loss of the program is trained by its own terms', async () => {
    const twice = definePreferenceLoss({
      ...{ name: 'twice', summary: 'dpo, doubled', paper: 'none', defaults: { beta: 0.1 } },
      terms: ({ w, l, options: { beta } }) => w.sub(l).mul(beta).logSigmoid().mul(-2),
    });
    const losses = async (loss: typeof twice, runName: string) => {
      const seen: number[] = [];
      for await (const { train } of trainPreference({ ...pairs, loss, runName, evalSteps: -1 }, options))
        seen.push(train.loss);
      return seen;
    };
    const [own, built] = [await losses(twice, 'own'), await losses(dpo, 'built')];
    expect(own[0]).toBeCloseTo(2 * (built[0] as number), 5);
    const thief = definePreferenceLoss({ ...twice, name: 'dpo', terms: ({ w }) => w });
    await expect(Promise.resolve(trainPreference({ ...pairs, loss: thief }, options))).rejects.toThrow(
      /one of attune's own/,
    );
  });

  it('a policy algorithm likewise', async () => {
    const plain = definePolicyAlgorithm({
      ...{ name: 'plain', summary: 'policy gradient', paper: 'none' },
      ...{ advantage: 'group-centred' as const, aggregation: 'token' as const, klIn: 'none' as const },
      terms: ({ lp, advantages }) => ({ policy: lp.mul(advantages).neg() }),
    });
    const config = {
      ...quiet,
      model,
      task: 'chain_sum:1',
      batchSize: 2,
      gradAccum: 1,
      groupSize: 3,
      maxNewTokens: 4,
      maxSteps: 1,
    };
    for (const algorithm of [plain, grpo]) {
      const { folder: made } = await trainPolicy(
        { ...config, algorithm, evalSteps: -1, runName: algorithm.name },
        { run: { curves: false } },
      );
      expect(made).toContain(algorithm.name);
    }
  });
});
