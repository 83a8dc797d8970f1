import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { openDataset, tokenise } from '../../data/index.ts';
import { corpusRows } from '../../tasks/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { sftSchema } from '../sft/sft.ts';
import { describePlan, trainingPlan } from './plan.ts';
import { tokenSets } from './token-sets.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
let base: string;
beforeAll(async () => {
  base = await tinyModel(join(folder, 'model'));
});

const notes: string[] = [];
const progress = {
  start: (label: string) => ({ advance() {}, done: (text?: string) => void notes.push(`${label}: ${text}`) }),
};

async function planned(options: Record<string, unknown>) {
  const rows = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 20, seed: 3 })] as unknown as object[];
  const set = await openDataset(rows as Record<string, unknown>[], { shape: 'messages' });
  await using train = await tokenise(set, await Tokenizer.load(base), { cache: false });
  const config = sftSchema.parse({ model: base, device: 'cpu', gradAccum: 4, ...options });
  return { plan: await trainingPlan(config, { train }, config, { progress }), tokens: train.totalTokens };
}

describe('the plan of a dry run', () => {
  it('has the micro-batches that its steps have where the data end before --grad-accum', async () => {
    const { plan, tokens } = await planned({ batchSize: 1_000_000 });
    expect(plan.steps).toEqual({ total: 1, microBatches: 1, tokensPerMicroBatch: tokens });
    expect(describePlan(plan)).toMatch(/Steps +1, each of 1 micro-batch of about/);
    const thrice = await planned({ batchSize: 1_000_000, epochs: 3 });
    expect(thrice.plan.steps).toEqual({ total: 1, microBatches: 3, tokensPerMicroBatch: tokens });
    expect((await planned({ batchSize: 2 })).plan.steps).toMatchObject({ total: 3, microBatches: 4 });
  });

  it('plans no more tokens at once than there are, whatever the token budget', async () => {
    const { plan, tokens } = await planned({ tokenBudget: 10_000_000 });
    expect(plan.steps).toEqual({ total: 1, microBatches: 1, tokensPerMicroBatch: tokens });
    const { plan: same } = await planned({ batchSize: 20 });
    expect(plan.memory.totalBytes).toBe(same.memory.totalBytes);
  });

  it('names whose positions end the examples, the model’s or its teacher’s', async () => {
    const { plan } = await planned({ maxLength: 4096 });
    const length = (teacherPositions?: number) =>
      /^Length .*$/m.exec(
        describePlan({ ...plan, positions: 256, ...(teacherPositions ? { teacherPositions } : {}) }),
      )?.[0];
    expect(length()).toMatch(/256 tokens, .* that the model has \(--max-length 4096\)/);
    expect(length(512)).toBe(length());
    expect(length(100)).toMatch(/100 tokens, .* that the teacher has \(--max-length 4096\)/);
  });

  it('says that the epochs end before --max-steps', async () => {
    const { plan } = await planned({ batchSize: 2, maxSteps: 2 });
    expect([plan.steps.total, notes.filter((note) => note.startsWith('steps'))]).toEqual([2, []]);
    await planned({ batchSize: 2, maxSteps: 40 });
    expect(notes).toContainEqual(expect.stringMatching(/^steps: \S+ 40 is not reached: \S+ 1 ends after 3 steps$/));
  });

  it('says how far a warm-up goes that is longer than the training', async () => {
    await planned({ batchSize: 2, warmupSteps: 3 });
    expect(notes.filter((note) => note.startsWith('learning rate'))).toEqual([]);
    await planned({ batchSize: 2, warmupSteps: 100 });
    expect(notes).toContainEqual(expect.stringMatching(/^learning rate: .* 100 is more than the 3 steps .* to 3 % of/));
  });

  it('counts what was left out once, broken rows too, and so does the training', async () => {
    const file = join(folder, 'odd.jsonl');
    const pair = (prompt: string, chosen: string) => JSON.stringify({ prompt, chosen, rejected: 'no' });
    const long = pair('q0', 'word '.repeat(2000));
    const rows = Array.from({ length: 40 }, (_, i) => pair(`q${i}`, i % 4 === 0 ? 'no' : 'yes'));
    writeFileSync(file, [...rows, long, '{"prompt": "x"', pair('y', '')].join('\n'));
    const set = await openDataset(file, { shape: 'preference', dropTies: true, onBadRow: 'skip' });
    const { train, validation } = await set.holdOut(0.3);
    const encoding = { maxLength: 500, cache: false, progress } as const;
    const sets = await tokenSets({ train, validation }, await Tokenizer.load(base), encoding);
    const config = sftSchema.parse({ model: base, device: 'cpu' });
    const text = describePlan(await trainingPlan(config, sets, config));
    await sets.close();
    const [, told = ''] = /^Data .*(left out: .*)$/m.exec(text) ?? [];
    expect(told).toBe('left out: ties 10, too long 1, broken rows 1');
    expect(text).toMatch(/^Held out .* tokens$/m);
    expect(notes).toContainEqual(
      expect.stringMatching(
        /odd\.jsonl: left out: ties 10, too long 1; 1 broken row skipped \(the first: .*odd\.jsonl:42: not JSON/,
      ),
    );
  });
});
