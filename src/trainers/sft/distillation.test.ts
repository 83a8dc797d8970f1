/** Supervised fine-tuning on a teacher's distributions: the loss against one from whole logits, and the trainer. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { openDataset, packBatch, tokenise } from '../../data/index.ts';
import { type DecoderRows, frozenRows, tokenDivergence } from '../../models/decoder/logprobs.ts';
import { loadModel, packSequences } from '../../models/index.ts';
import { liveTensors, noGrad, scope, tensor } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { evaluateBatches } from '../batches/batch-task.ts';
import { onDevice } from '../batches/step-batches.ts';
import { distillationObjective } from './distillation.ts';
import { type SftInput, sftSchema, trainSft } from './sft.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-distillation-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);
beforeAll(async () => {
  await tinyModel(at('model'));
  await tinyModel(at('teacher'), { seed: 2, layers: 1, hiddenSize: 48, config: { initializer_range: 0.2 } });
});

const chats = Array.from({ length: 24 }, (_, i) => ({
  messages: [
    { role: 'user', content: `What is ${i}?` },
    { role: 'assistant', content: i % 2 === 0 ? 'red' : 'The answer is blue' },
  ],
}));
const base = (): SftInput => ({
  ...{ model: at('model'), teacher: at('teacher'), dataset: chats, outputDir: at('runs'), logDir: at('logs') },
  ...{ batchSize: 4, gradAccum: 1, lr: 5e-3, warmupRatio: 0, validationSplit: 0, evalSteps: -1, saveSteps: -1 },
  ...{ saveModel: false, reportTo: ['none'] },
});

let runs = 0;
const start = (config: SftInput, signal?: AbortSignal, stopAt?: () => void) => {
  const runName = config.runName ?? (config.resumeFrom === undefined ? `run-${runs++}` : undefined);
  const options = { cache: false as const, run: { curves: false }, signal, onStep: stopAt };
  return trainSft({ ...base(), ...config, runName }, options).open();
};
async function train(config: SftInput) {
  const metrics: Record<string, number>[] = [];
  using run = await start(config);
  for await (const step of run) metrics.push(step.metrics);
  return { metrics, folder: run.folder };
}
const weightsOf = (run: string) => readFileSync(join(run, 'final', 'model.safetensors'));
const of = (row: Record<string, number> | undefined, name: string) => row?.[name] as number;

describe('the loss', () => {
  it.each([
    { teacherTopK: 0, teacherTemperature: 1, distillShare: 1 },
    { teacherTopK: 0, teacherTemperature: 2, distillShare: 0.3 },
    { teacherTopK: 5, teacherTemperature: 2, distillShare: 0.3 },
    { teacherTopK: 5, teacherTemperature: 1, distillShare: 0 },
  ])('is (1 − α)·NLL + α·T²·KL of whole logits: %o', async (config) => {
    const { teacherTopK: top, teacherTemperature: temperature, distillShare: share } = config;
    using model = await loadModel(at('model'));
    using teacher = await loadModel(at('teacher'));
    const data = await openDataset(chats.slice(0, 3), { shape: 'messages' });
    await using store = await tokenise(data, await Tokenizer.load(at('model')), { cache: false });
    const batch = packBatch(await store.records([0, 1, 2]));
    const packed = onDevice(batch, 'cpu');
    const rows = (one: typeof model, t: number) =>
      scope(() =>
        noGrad(() => one.decoder.logits(one.decoder.forward(packed)).to('float64').div(t).logSoftmax(-1).tolist()),
      ) as number[][];
    const [plain, p, q] = [rows(model, 1), rows(model, temperature), rows(teacher, temperature)];
    let [nll, kl, tokens] = [0, 0, 0];
    for (let i = 1; i < batch.tokens; i++) {
      if (batch.lossMask[i] !== 1) continue;
      nll -= plain[i - 1]?.[batch.ids[i] as number] as number;
      kl += divergence(q[i - 1] as number[], p[i - 1] as number[], top);
      tokens++;
    }
    const found = await evaluateBatches(
      model,
      distillationObjective(model, teacher, { ...config, assistantOnly: true }),
      [batch],
    );
    expect(found.teacher_kl).toBeCloseTo(kl / tokens, 5);
    expect(found.nll).toBeCloseTo(nll / tokens, 5);
    expect(found.loss).toBeCloseTo(((1 - share) * nll + share * temperature ** 2 * kl) / tokens, 4);
  });
});

it("takes a teacher whose head is filled up further: its distribution is that over the student's tokens", async () => {
  const { vocabSize } = await Tokenizer.load(at('model'));
  const given = { seed: 2, layers: 1, hiddenSize: 48 };
  await tinyModel(at('even'), given);
  await tinyModel(at('filled'), { ...given, config: { vocab_size: vocabSize + 8 } });
  const first = await train({ maxSteps: 1, teacher: at('filled') });
  expect(of(first.metrics[0], 'train/teacher_kl')).toBeGreaterThan(0);
  using teacher = await loadModel(at('filled'));
  using model = await loadModel(at('model'));
  const [p, q] = [model, teacher].map(({ decoder }) =>
    scope(() => {
      const batch = packSequences([[5, 9, 33, 12]]);
      const logits = noGrad(() => decoder.logits(decoder.forward(batch))).narrow(1, 0, vocabSize);
      return logits.to('float64').logSoftmax(-1).tolist();
    }),
  ) as [number[][], number[][]];
  const found = scope(() => {
    const batch = packSequences([[5, 9, 33, 12]]);
    const [own, theirs] = [model, teacher].map(({ decoder }) => ({
      decoder,
      rows: frozenRows(decoder, batch, [1, 2]),
    }));
    return tokenDivergence(
      own as DecoderRows,
      theirs as DecoderRows,
      tensor([9n, 33n]),
    ).divergence.tolist() as number[];
  });
  for (const [i, value] of found.entries())
    expect(value).toBeCloseTo(divergence(q[i] as number[], p[i] as number[], 0), 5);
  // A model with a smaller vocabulary could not read every token.
  await expect(train({ model: at('filled'), teacher: at('even') })).rejects.toThrow(
    /cannot be compared token by token/,
  );
});

/** KL(q‖p) of log-probs, over all tokens or over q's likeliest ones with the rest merged into one. */
function divergence(q: number[], p: number[], top: number): number {
  const term = (a: number, b: number) => a * Math.log(a / b);
  const ids = Array.from(q.keys()).sort((a, b) => (q[b] as number) - (q[a] as number));
  const chosen = top === 0 ? ids : ids.slice(0, top);
  const of = (row: number[]) => chosen.map((id) => Math.exp(row[id] as number));
  const [qs, ps] = [of(q), of(p)];
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  const inside = sum(qs.map((value, i) => term(value, ps[i] as number)));
  return top === 0 ? inside : inside + term(1 - sum(qs), 1 - sum(ps));
}

describe('training', () => {
  it('comes nearer to its teacher, also on held-out chats', async () => {
    const { metrics } = await train({ maxSteps: 30, epochs: 10, validationSplit: 0.2, evalSteps: 15 });
    const [first, last] = [metrics[0], metrics.at(-1)];
    expect(of(first, 'train/teacher_kl')).toBeGreaterThan(0.2);
    expect(of(last, 'train/teacher_kl')).toBeLessThan(0.3 * of(first, 'train/teacher_kl'));
    expect(of(last, 'eval/teacher_kl')).toBeLessThan(0.4 * of(first, 'train/teacher_kl'));
    expect(of(last, 'eval/perplexity')).toBeCloseTo(Math.exp(of(last, 'eval/nll')), 6);
    // The text itself is not learnt, because the teacher has never seen it.
    expect(of(last, 'train/nll')).toBeGreaterThan(2);
  });

  it('teaches a model that begins with random weights, also one of its own shape', async () => {
    const fresh = { model: undefined, fromConfig: at('model/config.json'), tokenizer: at('model') };
    const { metrics } = await train({ ...fresh, teacher: at('model'), maxSteps: 2 });
    expect(of(metrics[0], 'train/teacher_kl')).toBeGreaterThan(0);
    await expect(train({ teacher: at('model') })).rejects.toThrow(/nothing to learn from itself/);
    // its own teacher: stays close to its start while it learns the text
    expect(
      of((await train({ teacher: at('model'), distillShare: 0.5, maxSteps: 1 })).metrics[0], 'train/teacher_kl'),
    ).toBe(0);
  });

  it('learns the text too where it has a share', async () => {
    const { metrics } = await train({ maxSteps: 30, epochs: 10, distillShare: 0.2 });
    expect(of(metrics.at(-1), 'train/nll')).toBeLessThan(0.6 * of(metrics[0], 'train/nll'));
  });

  it.each([1, 0.5])('has one gradient however a step is split, with a share of %d', async (distillShare) => {
    const given = { maxSteps: 1, distillShare, teacherTemperature: 1.5 };
    const one = await train({ ...given, batchSize: 8, gradAccum: 1 });
    const many = await train({ ...given, batchSize: 1, gradAccum: 8 });
    for (const name of ['loss', 'teacher_kl', 'nll', 'grad_norm'])
      expect(of(many.metrics[0], `train/${name}`)).toBeCloseTo(of(one.metrics[0], `train/${name}`), 5);
  });

  it('stops and goes on as if nothing had happened', async () => {
    const config = { maxSteps: 4, teacherTopK: 8, distillShare: 0.6, saveModel: true };
    const whole = await train({ ...config, runName: 'whole' });
    const stop = new AbortController();
    let steps = 0;
    using stopped = await start({ ...config, runName: 'stopped' }, stop.signal, () => ++steps === 2 && stop.abort());
    expect(await stopped.finish()).toMatchObject({ step: 2, ended: 'interrupted' });
    const resumed = await train({ ...config, resumeFrom: stopped.folder });
    expect(weightsOf(resumed.folder).equals(weightsOf(whole.folder))).toBe(true);
    await expect(start({ ...config, resumeFrom: stopped.folder, teacher: at('model') })).rejects.toThrow(
      /cannot change in a resumed run/,
    );
  });

  it.each([0.001, 1e4, 1e300])('takes no temperature whose T² weighs rounding alone: %d', (teacherTemperature) => {
    const config = { model: at('model'), teacher: at('teacher'), dataset: 'chats.jsonl', teacherTemperature };
    expect(sftSchema.safeParse(config).error?.issues).toMatchObject([{ path: ['teacherTemperature'] }]);
  });

  it('teaches adapters, also from 8 and 4 bits, and leaves no tensor behind', async () => {
    const adapters = { lora: true, loraR: 2 };
    const first: number[] = [];
    for (const config of [
      ...[adapters, { ...adapters, teacherQuantType: 'int8' }, { ...adapters, teacherQuantType: 'int4' }],
      ...[
        { ...adapters, quantType: 'int4' },
        { gradientCheckpointing: true, distillShare: 0.5 },
      ],
    ] as SftInput[]) {
      const before = await settledTensors();
      const counts: number[] = [];
      using run = await start({ ...config, maxSteps: 4, epochs: 2 });
      for await (const { step, metrics } of run) {
        if (step === 1) first.push(of(metrics, 'train/teacher_kl'));
        counts.push(liveTensors());
      }
      expect(new Set(counts.slice(1)).size).toBe(1);
      run.dispose();
      expect(liveTensors()).toBe(before);
    }
    const [plain = 0, int8 = 0, int4 = 0] = first;
    expect(int8).not.toBe(plain);
    expect(Math.abs(int8 / plain - 1)).toBeLessThan(0.01);
    expect(Math.abs(int4 / plain - 1)).toBeLessThan(0.3);
  });
});
