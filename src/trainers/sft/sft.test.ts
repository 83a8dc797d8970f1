import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { openDataset, packBatch, tokenise } from '../../data/index.ts';
import { loadModel } from '../../models/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { evaluateBatches } from '../batches/batch-task.ts';
import { sftObjective } from '../batches/objectives.ts';
import { onDevice } from '../batches/step-batches.ts';
import { trainSft } from './sft.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-sft-'));
afterAll(() => rmSync(folder, { recursive: true }));
let base: string;
beforeAll(async () => {
  base = await tinyModel(join(folder, 'model'));
});

const chats = Array.from({ length: 30 }, (_, i) => ({
  messages: [
    { role: 'user', content: `What is ${i}?` },
    { role: 'assistant', content: i % 2 === 0 ? 'red' : 'The answer is blue' },
  ],
}));
const quiet = { logDir: join(folder, 'logs'), reportTo: ['none' as const], validationSplit: 0, evalSteps: -1 };

it('fails, and writes no final model, where the training diverges', async () => {
  const config = { model: base, dataset: chats, ...quiet, outputDir: join(folder, 'diverged') };
  const steps = { batchSize: 8, gradAccum: 1, maxSteps: 4, lr: 1e6, maxGradNorm: 0, warmupRatio: 0 };
  using run = await trainSft({ ...config, ...steps }, { cache: false }).open();
  await expect(run.finish()).rejects.toThrow(/diverged|not finite.*lower learning rate/);
  expect(JSON.parse(readFileSync(join(run.folder, 'run.json'), 'utf8')).status).toBe('failed');
  expect(() => readFileSync(join(run.folder, 'final', 'config.json'))).toThrow();
});

it('skips what the model has no positions for, and says so', async () => {
  const small = await tinyModel(join(folder, 'gpt2'), {
    config: { model_type: 'gpt2', max_position_embeddings: 64 },
  });
  const long = {
    messages: [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b '.repeat(300) },
    ],
  };
  const told: string[] = [];
  const progress = { start: () => ({ advance: () => {}, done: (note?: string) => told.push(note ?? '') }) };
  const config = { model: small, dataset: [...chats, long], ...quiet, outputDir: join(folder, 'positions') };
  using run = await trainSft(
    { ...config, batchSize: 31, gradAccum: 1, maxSteps: 2 },
    { cache: false, run: { curves: false }, progress },
  ).open();
  const [step] = await Array.fromAsync(run);
  expect(step?.train.examples).toBe(30);
  expect(told).toContainEqual(expect.stringMatching(/has 64 positions: --max-length 2048 becomes 64/));
});

describe('the loss', () => {
  it("is the mean of −log p over the assistant's tokens, or over all", async () => {
    using model = await loadModel(base);
    const tokenizer = await Tokenizer.load(base);
    const data = await openDataset(chats.slice(0, 3), { shape: 'messages' });
    await using store = await tokenise(data, tokenizer, { cache: false });
    const batch = packBatch(await store.records([0, 1, 2]));
    // The same loss from whole logits, row by row.
    const packed = onDevice(batch, 'cpu');
    const logp = scope(() =>
      noGrad(() => model.decoder.logits(model.decoder.forward(packed)).logSoftmax(-1).tolist()),
    ) as number[][];
    const expected = (counts: (place: number) => boolean) => {
      let sum = 0;
      let tokens = 0;
      for (let s = 0; s < batch.sequences; s++) {
        for (let i = (batch.cuSeqlens[s] as number) + 1; i < (batch.cuSeqlens[s + 1] as number); i++) {
          if (!counts(i)) continue;
          sum -= logp[i - 1]?.[batch.ids[i] as number] as number;
          tokens++;
        }
      }
      return sum / tokens;
    };
    const masked = await evaluateBatches(model, sftObjective(model), [batch]);
    expect(masked.loss).toBeCloseTo(
      expected((place) => batch.lossMask[place] === 1),
      5,
    );
    const whole = await evaluateBatches(model, sftObjective(model, { allTokens: true }), [batch]);
    expect(whole.loss).toBeCloseTo(
      expected(() => true),
      5,
    );
  });
});

describe('training', () => {
  it('learns chats, in packed micro-batches', async () => {
    const run = await trainSft(
      {
        ...quiet,
        ...{ model: base, dataset: chats, outputDir: join(folder, 'chats'), epochs: 8, tokenBudget: 400, gradAccum: 1 },
        ...{ lr: 2e-2, saveModel: false, warmupRatio: 0.1 },
      },
      { cache: false, run: { curves: false } },
    ).open();
    const losses: number[] = [];
    for await (const { metrics } of run) losses.push(metrics['train/loss'] as number);
    run.dispose();
    expect(losses[0]).toBeGreaterThan(3);
    expect(losses.at(-1)).toBeLessThan(0.5);
  });

  it('starts from scratch with a config and a tokenizer, on plain text, and gives a model that loads', async () => {
    const config = JSON.parse(readFileSync(join(base, 'config.json'), 'utf8'));
    delete config.vocab_size;
    writeFileSync(join(folder, 'scratch.json'), JSON.stringify(config));
    const start = () =>
      trainSft(
        {
          ...quiet,
          ...{ fromConfig: join(folder, 'scratch.json'), tokenizer: base, outputDir: join(folder, 'scratch') },
          ...{ dataset: [{ text: 'yes no red blue '.repeat(30) }], maxLength: 32, batchSize: 2, gradAccum: 1 },
          ...{ maxSteps: 2, lr: 1e-2 },
        },
        { cache: false, run: { curves: false } },
      ).open();
    const run = await start();
    await run.finish();
    const tokenizer = await Tokenizer.load(join(run.folder, 'final'));
    using model = await loadModel(join(run.folder, 'final'));
    expect(model.decoder.spec.vocabSize).toBe(tokenizer.vocabSize);
    run.dispose();
    const again = await start();
    await again.finish();
    const weights = (path: string) => readFileSync(join(path, 'final', 'model.safetensors'));
    expect(weights(again.folder).equals(weights(run.folder))).toBe(true);
    again.dispose();
  });

  it('stops where the signal says, and says what data it cannot use', async () => {
    const stop = new AbortController();
    const run = await trainSft(
      { ...quiet, model: base, dataset: chats, outputDir: join(folder, 'stop'), batchSize: 2, gradAccum: 1 },
      {
        cache: false,
        run: { curves: false },
        signal: stop.signal,
        onStep: ({ step }) => (step === 2 ? stop.abort() : undefined),
      },
    ).open();
    expect(await run.finish()).toMatchObject({ step: 2, ended: 'interrupted' });
    run.dispose();
    const pairs = [{ prompt: 'a', chosen: 'b', rejected: 'c' }];
    await expect(trainSft({ ...quiet, model: base, dataset: pairs })).rejects.toThrow(/wants chats or plain text/);
    await expect(trainSft({ ...quiet, fromConfig: 'x.json', dataset: chats })).rejects.toThrow(/needs a tokenizer/);
  });
});
