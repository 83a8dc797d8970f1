/**
 * On-policy distillation through the trainer: it learns, it resumes exactly, and its rollouts can be inspected
 * afterwards.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModel, packSequences } from '../../models/index.ts';
import { openRun } from '../../runs/index.ts';
import { liveTensors, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { ProgramConfig } from '../loop/training-run.ts';
import { trainSft } from '../sft/sft.ts';
import type { PolicyInput } from './config.ts';
import { type PolicyTrainerOptions, trainPolicy } from './policy.ts';
import { replayStep } from './replay.ts';
import { whatIf } from './what-if.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-opd-'));
afterAll(() => rmSync(folder, { recursive: true }));
let [model, teacher] = ['', ''];
beforeAll(async () => {
  model = await tinyModel(join(folder, 'model'));
  teacher = await tinyModel(join(folder, 'teacher'), {
    seed: 2,
    layers: 1,
    hiddenSize: 48,
    config: { initializer_range: 0.14 },
  });
});

/** A teacher within the student's reach: the same model after a few training steps. */
let taught: Promise<string> | undefined;
const trained = () => (taught ??= trainTeacher());
async function trainTeacher(): Promise<string> {
  const dataset = ['red good bad yes', 'blue no no good', 'yes 7 red blue', 'no red yes no'].map((text) => ({ text }));
  const settings = {
    epochs: 8,
    batchSize: 4,
    gradAccum: 1,
    lr: 0.01,
    lrSchedule: 'constant',
    validationSplit: 0,
  } as const;
  using run = await trainSft(
    { model, dataset, ...settings, evalSteps: -1, saveSteps: -1, reportTo: [], outputDir: join(folder, 'teachers') },
    { cache: false, run: { curves: false } },
  ).open();
  await run.finish();
  return run.folder;
}

const forms = ['loss', 'advantage'] as const;
const rows = ['red', 'blue', 'yes', 'no'].map((prompt) => ({ prompt }));
const base = (): ProgramConfig<PolicyInput> => ({
  ...{ algorithm: 'opd', model, teacher, dataset: rows, promptFormat: 'raw', outputDir: join(folder, 'runs') },
  ...{ maxNewTokens: 4, groupSize: 4, batchSize: 2, gradAccum: 1, lr: 0.01, lrSchedule: 'constant', topP: 1 },
  ...{ evalSteps: -1, saveSteps: -1, saveModel: false, reportTo: [] },
});

let runs = 0;
const start = (config: ProgramConfig<PolicyInput>, options: PolicyTrainerOptions = {}) => {
  const runName = config.runName ?? (config.resumeFrom === undefined ? `run-${runs++}` : undefined);
  return trainPolicy({ ...base(), ...config, runName }, { run: { curves: false }, ...options }).open();
};
async function train(config: ProgramConfig<PolicyInput>, options: PolicyTrainerOptions = {}) {
  const metrics: Record<string, number>[] = [];
  using run = await start(config, options);
  for await (const step of run) metrics.push(step.metrics);
  return { metrics, folder: run.folder };
}
const weightsOf = (run: string) => readFileSync(join(run, 'final', 'model.safetensors'));
const of = (row: Record<string, number> | undefined, name: string) => row?.[name] as number;

describe.each(forms)('on-policy distillation by %s', (distillAs) => {
  it('comes nearer to its teacher, on held-out prompts too, and needs no reward', async () => {
    const more = [...rows, { prompt: 'good' }, { prompt: 'bad' }];
    const { metrics, folder: run } = await train({
      ...{ distillAs, teacher: await trained(), dataset: more, lrSchedule: 'linear', maxSteps: 40 },
      ...{ maxNewTokens: 3, groupSize: 32, batchSize: 4, evalSteps: 40, evalNumPrompts: 2 },
    });
    const [first, last] = [metrics[0], metrics.at(-1)];
    expect(of(first, 'train/teacher_kl')).toBeGreaterThan(0.3);
    expect(of(last, 'train/teacher_kl')).toBeLessThan(0.35 * of(first, 'train/teacher_kl'));
    expect(of(last, 'train/teacher_logprob')).toBeGreaterThan(of(first, 'train/teacher_logprob'));
    const heldOut = openRun(run)
      .metrics()
      .flatMap((row) => row['eval/teacher_kl'] ?? []);
    expect(heldOut.at(-1)).toBeLessThan(0.5 * (heldOut[0] as number));
    const names = Object.keys({ ...first, ...last });
    expect(names.filter((name) => /reward|score|zero_spread/.test(name))).toEqual([]);
  });

  it('does not depend on how a step is split into micro-batches', async () => {
    const one = await train({ distillAs, maxSteps: 1 });
    const many = await train({ distillAs, maxSteps: 1, microBatchTokens: 12 });
    const names = ['loss', 'grad_norm', 'entropy', 'teacher_kl', 'teacher_response_kl', 'teacher_logprob'];
    for (const name of names)
      expect(of(many.metrics[0], `train/${name}`)).toBeCloseTo(of(one.metrics[0], `train/${name}`), 5);
  });

  it('stops and goes on as if nothing had happened', async () => {
    const config = { distillAs, maxSteps: 4, nMinibatches: 2, saveModel: true };
    const whole = await train({ ...config, runName: `whole-${distillAs}` });
    const stopped = await start({ ...config, runName: `stopped-${distillAs}` });
    for await (const { step } of stopped) if (step === 2) break;
    stopped.dispose();
    const resumed = await train({ ...config, resumeFrom: stopped.folder });
    expect(resumed.metrics.map((row) => row['train/loss'])).toEqual(
      whole.metrics.slice(2).map((row) => row['train/loss']),
    );
    expect(weightsOf(resumed.folder).equals(weightsOf(whole.folder))).toBe(true);
  });

  it('teaches adapters, also from 8 and 4 bits, and leaves no tensor behind', async () => {
    const first: Record<string, number> = {};
    for (const [name, config] of Object.entries<ProgramConfig<PolicyInput>>({
      plain: {},
      adapters: { lora: true, loraR: 2 },
      int8: { lora: true, loraR: 2, teacherQuantType: 'int8' },
      int4: { lora: true, loraR: 2, teacherQuantType: 'int4' },
      checkpointed: { gradientCheckpointing: true, evalSteps: 2, evalNumPrompts: 2 },
    })) {
      const before = await settledTensors();
      const counts: number[] = [];
      using run = await start({ ...config, distillAs, maxSteps: 4, dataset: rows });
      for await (const { metrics } of run) {
        first[name] ??= of(metrics, 'train/teacher_kl');
        counts.push(liveTensors());
      }
      expect(new Set(counts.slice(1)).size).toBe(1);
      run.dispose();
      expect(liveTensors()).toBe(before);
    }
    expect(first.adapters).toBeCloseTo(first.plain as number, 5);
    for (const [name, most] of Object.entries({ int8: 0.01, int4: 0.3 })) {
      const apart = Math.abs((first[name] as number) / (first.plain as number) - 1);
      expect(apart).toBeGreaterThan(1e-6);
      expect(apart).toBeLessThan(most);
    }
  });
});

it('begins with the KL of the two models over the whole vocabulary, and its estimate is near', async () => {
  const config = { maxSteps: 1, groupSize: 64, temperature: 0.8 };
  const { metrics, folder: run } = await train({ ...config, saveTokens: true });
  const sampled = await train({ ...config, distillAs: 'advantage' });
  const [student, frozen] = [await loadModel(model), await loadModel(teacher)];
  using rollouts = openRun(run).rollouts();
  const stored = rollouts
    .query()
    .map(({ id }) => rollouts.tokens(id) as NonNullable<ReturnType<typeof rollouts.tokens>>);
  let [sum, tokens] = [0, 0];
  for (const { promptIds, completionIds } of stored)
    scope(() =>
      noGrad(() => {
        const batch = packSequences([[...promptIds, ...completionIds]]);
        const logprobs = ({ decoder }: typeof student): Tensor =>
          decoder.logits(decoder.forward(batch)).to('float64').div(0.8).logSoftmax(-1);
        const [p, q] = [logprobs(student), logprobs(frozen)];
        const each = p
          .exp()
          .mul(p.sub(q))
          .sum(-1)
          .narrow(0, promptIds.length - 1, completionIds.length);
        sum += each.sum().item() as number;
        tokens += completionIds.length;
      }),
    );
  student.dispose();
  frozen.dispose();
  expect(of(metrics[0], 'train/teacher_kl')).toBeCloseTo(sum / tokens, 5);
  expect(of(metrics[0], 'train/loss')).toBeCloseTo(sum / tokens, 5);
  expect(of(sampled.metrics[0], 'train/teacher_kl')).toBeGreaterThan(0.7 * (sum / tokens));
  expect(of(sampled.metrics[0], 'train/teacher_kl')).toBeLessThan(1.3 * (sum / tokens));
});

it('measures rewards where there are some, and learns nothing from them', async () => {
  const length: PolicyTrainerOptions['rewards'] = [(items) => items.map(({ response }) => response.length)];
  const config = { maxSteps: 3, saveModel: true };
  const rewarded = await train(config, { rewards: length });
  const plain = await train(config);
  expect(rewarded.metrics[0]).toMatchObject({ 'train/reward': expect.any(Number), 'train/score': expect.any(Number) });
  expect(weightsOf(rewarded.folder).equals(weightsOf(plain.folder))).toBe(true);
});

describe('looking back', () => {
  it('a step by advantage can be replayed; one over whole vocabularies says why it cannot', async () => {
    const config = { maxSteps: 2, saveTokens: true, nMinibatches: 2 };
    const { folder: run } = await train({ ...config, distillAs: 'advantage' });
    for (const step of [1, 2]) expect(replayStep(run, step)).toMatchObject({ agrees: true, algorithm: 'opd' });
    const whole = await train(config);
    expect(() => replayStep(whole.folder, 1)).toThrow(/not stored.*--distill-as advantage/);
  });

  it('what if: the best of each group in place of the teacher, but no teacher where there was none', async () => {
    const rewards: PolicyTrainerOptions['rewards'] = [(items) => items.map(({ response }) => response.length)];
    const config = { maxSteps: 1, saveTokens: true };
    const taught = await train({ ...config, distillAs: 'advantage' }, { rewards });
    const raft = await whatIf(taught.folder, { step: 1, algorithm: 'raft' });
    expect(raft.agrees).toBe(true);
    expect(raft.algorithms).toContain('opd');
    const kept = raft.rollouts.filter(({ changed }) => changed !== 0);
    expect(kept.map(({ changed }) => changed)).toEqual(kept.map(() => 1));
    expect(kept.length).toBeLessThanOrEqual(2);
    const { teacher: _, ...own } = base();
    using run = await trainPolicy({ ...own, ...config, algorithm: 'grpo', klCoef: 0 }, { rewards }).open();
    await run.finish();
    await expect(
      whatIf(run.folder, { step: 1, algorithm: 'opd', options: { distillAs: 'advantage' } }),
    ).rejects.toThrow(/no teacher/);
    expect((await whatIf(run.folder, { step: 1, algorithm: 'raft' })).algorithms).not.toContain('opd');
  });
});
