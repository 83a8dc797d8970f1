import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { openDataset, tokenise } from '../../data/index.ts';
import { corpusRows } from '../../tasks/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { sftSchema } from '../sft/sft.ts';
import { describePlan, trainingPlan } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
let base: string;
beforeAll(async () => {
  base = await tinyModel(join(folder, 'model'));
});

async function planned(options: Record<string, unknown>) {
  const rows = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 20, seed: 3 })] as unknown as object[];
  const set = await openDataset(rows as Record<string, unknown>[], { shape: 'messages' });
  await using train = await tokenise(set, await Tokenizer.load(base), { cache: false });
  const config = sftSchema.parse({ model: base, device: 'cpu', gradAccum: 4, ...options });
  return { plan: await trainingPlan(config, { train }, config), tokens: train.totalTokens };
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
});
