/** Functions of the library name options as the program that called them does; see src/spelling.ts. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  buildPreferences,
  compareMethods,
  evaluateBenchmark,
  evaluatePolicy,
  explore,
  exportGguf,
  exportMerged,
  LanguageModel,
  openDataset,
  openSuite,
  quantizePolicy,
  quantizeReward,
  signals,
} from '../src/index.ts';
import { speakTo } from '../src/spelling.ts';
import { tinyModel } from './support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-library-names-'));
const at = (name: string) => join(folder, name);
const model = at('model');

beforeAll(async () => {
  speakTo('program');
  await tinyModel(model, { hiddenSize: 16, layers: 1 });
  writeFileSync(at('rows.jsonl'), '{"question": "a", "answer": "b"}\n');
  mkdirSync(at('parts'));
  for (const part of ['train', 'test'])
    writeFileSync(at(`parts/${part}.jsonl`), '{"prompt": "a", "chosen": "b", "rejected": "c"}\n');
  writeFileSync(at('broken.jsonl'), '{"prompt": 7}\n');
});
afterAll(() => rmSync(folder, { recursive: true }));

const asPolicy = async (prompt: string) => {
  using policy = await LanguageModel.open(model);
  const { model: own, tokenizer } = policy;
  const scorer = { name: 'none', score: async () => [] };
  return evaluatePolicy({
    model: own,
    tokenizer,
    prompts: [{ messages: [{ role: 'user', content: prompt }] }],
    scorer,
  });
};

/** A faulty call, and the name that it must hear. */
const calls: Record<string, [() => unknown, string]> = {
  buildPreferences: [() => buildPreferences({ model, output: at('x.jsonl') }), 'task'],
  'buildPreferences, one bad value': [
    () => buildPreferences({ model, task: 'gcd:1', output: at('x.jsonl'), batchPrompts: -1 }),
    'batchPrompts',
  ],
  compareMethods: [() => compareMethods({ model, methods: ['grpo'], task: 'gcd:1', beta: 1 }), 'beta'],
  evaluateBenchmark: [() => evaluateBenchmark({ model, suite: at('rows.jsonl'), k: 4, samples: 2 }), 'samples'],
  evaluatePolicy: [() => asPolicy('good '.repeat(5000)), 'promptMaxLength'],
  explore: [() => explore(at('rows.jsonl'), { subset: 'x' }), 'subset'],
  exportGguf: [() => exportGguf({ model, out: at('model.bin'), type: 'q8_0' }), 'out'],
  exportMerged: [() => exportMerged({ model, out: folder }), 'out'],
  openDataset: [async () => (await openDataset(at('broken.jsonl'))).toArray(), 'onBadRow'],
  openSuite: [() => openSuite(at('rows.jsonl'), { mode: 'choice' }), 'mode'],
  quantizePolicy: [() => quantizePolicy({ model, quantType: 'int4' }), 'dataset'],
  quantizeReward: [() => quantizeReward({ checkpoint: model, quantType: 'int4', outputDir: folder }), 'outputDir'],
};

describe('a program hears its own names', () => {
  it.each(Object.entries(calls))('%s', async (_, [call, name]) => {
    const message = await Promise.resolve()
      .then(call)
      .then(
        () => 'it did not fail',
        (error: Error) => error.message,
      );
    expect(message).toMatch(new RegExp(`(?<![\\w-])${name}\\b`));
    expect(message).not.toMatch(/--[a-z]/);
  });

  it('in warnings too', async () => {
    const { warnings } = await explore(at('parts'));
    expect(warnings.join('\n')).toMatch(/Choose with split and subset/);
    const cut = Array.from({ length: 20 }, (_, i) => ({ step: i + 1, time: 0, 'train/cut_mass': 0.5 }));
    expect(signals(cut).map(({ message }) => message)).toEqual([expect.stringMatching(/^topP, topK or minP cut away/)]);
  });
});
