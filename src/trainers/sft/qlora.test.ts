/**
 * QLoRA through a trainer: what it refuses, learns, saves and resumes. Gradients are tested in
 * src/models/files/quantised.test.ts.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { openDataset, tokenise } from '../../data/index.ts';
import { loadModel, type Model, packSequences, type QuantType } from '../../models/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { describePlan, trainingPlan } from '../batches/plan.ts';
import { type SftInput, sftSchema, trainSft } from './sft.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-qlora-'));
afterAll(() => rmSync(folder, { recursive: true }));
const tiny = fileURLToPath(new URL('../../../models/tiny', import.meta.url));

const chats = Array.from({ length: 16 }, (_, i) => ({
  messages: [
    { role: 'user', content: `What is ${i}?` },
    { role: 'assistant', content: i % 2 === 0 ? 'even' : 'odd' },
  ],
}));
const options = (name: string, quantType?: QuantType): SftInput => ({
  ...{ model: tiny, dataset: chats, lora: true, quantType, outputDir: join(folder, name), device: 'cpu' },
  ...{ batchSize: 4, gradAccum: 1, maxSteps: 8, epochs: 4, lr: 5e-3, validationSplit: 0, evalSteps: -1 },
  ...{ reportTo: ['none' as const], logDir: join(folder, 'logs') },
});
const logits = (model: Model) =>
  scope(() => noGrad(() => model.decoder.logits(model.decoder.forward(packSequences([[5, 9, 33, 12]]))).numbers()));

describe('QLoRA', () => {
  it('learns as LoRA does, and its checkpoint gives the model that was trained', async () => {
    const last: Record<string, number> = {};
    for (const quantType of [undefined, 'int8', 'int4'] as const) {
      const name = quantType ?? 'plain';
      using run = await trainSft(options(name, quantType), { cache: false, run: { curves: false } }).open();
      const losses: number[] = [];
      for await (const { metrics } of run) losses.push(metrics['train/loss'] as number);
      last[name] = losses.at(-1) as number;
      expect(last[name]).toBeLessThan(0.5 * (losses[0] as number));
      expect(run.model.decoder.quantType).toBe(quantType ?? null);
      using saved = await loadModel(join(run.folder, 'final'), { dtype: 'float32', device: 'cpu' });
      expect(saved.decoder.quantType).toBe(quantType ?? null);
      run.model.train(false);
      expect(logits(saved)).toEqual(logits(run.model));
    }
    expect(Math.abs((last.int8 as number) - (last.plain as number))).toBeLessThan(0.2 * (last.plain as number) + 0.02);
    expect(Math.abs((last.int4 as number) - (last.plain as number))).toBeLessThan(0.5 * (last.plain as number) + 0.05);
  });

  it('resumes bit for bit', async () => {
    const whole = { ...options('whole', 'int4'), runName: 'a', saveSteps: 4 };
    using straight = await trainSft(whole, { cache: false, run: { curves: false } }).open();
    await straight.finish();
    const stop = new AbortController();
    using first = await trainSft(
      { ...options('stopped', 'int4'), runName: 'a' },
      {
        cache: false,
        run: { curves: false },
        signal: stop.signal,
        onStep: ({ step }) => (step === 4 ? stop.abort() : undefined),
      },
    ).open();
    expect(await first.finish()).toMatchObject({ step: 4, ended: 'interrupted' });
    using second = await trainSft(
      { resumeFrom: first.folder, dataset: chats },
      { cache: false, run: { curves: false } },
    ).open();
    await second.finish();
    const weights = (path: string) => readFileSync(join(path, 'final', 'adapter_model.safetensors'));
    expect(weights(second.folder).equals(weights(straight.folder))).toBe(true);
  });

  it('is refused without adapters, and on weights that are quantised otherwise', async () => {
    await expect(trainSft({ ...options('no', 'int4'), lora: false })).rejects.toThrow(
      /--quant-type int4: weights in 4 bits stay as they are; train adapters on them with --lora/,
    );
    const published = fileURLToPath(new URL('../../models/files/fixtures/bitsandbytes/llama_int8', import.meta.url));
    await expect(trainSft({ ...options('no', 'int4'), model: published, tokenizer: tiny })).rejects.toThrow(
      /int8 already and cannot become int4/,
    );
  });

  it('tells the memory of each choice beforehand', async () => {
    const set = await openDataset(chats, { shape: 'messages' });
    await using train = await tokenise(set, await Tokenizer.load(tiny), { cache: false });
    const config = sftSchema.parse({ model: tiny, lora: true, quantType: 'int4', device: 'cpu' });
    const plan = await trainingPlan(config, { train }, config);
    const choices = plan.choices as Record<'plain' | QuantType, number>;
    expect(choices.int4).toBe(plan.memory.totalBytes);
    expect(choices.int4).toBeLessThan(choices.int8);
    expect(choices.int8).toBeLessThan(choices.plain);
    using base = await loadModel(tiny, { dtype: 'float32', quantType: 'int4' });
    expect(plan.memory.weightBytes - 4 * plan.memory.trainable).toBe(base.decoder.bytes);
    expect(describePlan(plan)).toMatch(/QLoRA +base in float32 about .*--quant-type int8 .*--quant-type int4/);
  });
});
