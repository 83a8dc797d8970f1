/** Reward models of every type with their blocks in 8 and 4 bits, on the weights in models/tiny. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { tinyRewardModel } from '../../tests/support/tiny-reward-model.ts';
import { headOutputs, quantTypes } from '../models/index.ts';
import { respond, task } from '../tasks/index.ts';
import { loadRewardModel } from './reward-model.ts';
import { rewardTypes } from './reward-notes.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-quantised-rewards-'));
afterAll(() => rmSync(folder, { recursive: true }));

const items = Array.from({ length: 24 }, (_, i) => {
  const example = task('chain_sum').generate(i, 1);
  return { prompt: example.prompt, response: respond(task('chain_sum').solution(example)) };
});
const spread = (values: readonly number[]) => {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
};

it.each(rewardTypes)('scores of type %s stay near the original ones, in less memory', async (type) => {
  const path = await tinyRewardModel(folder, type);
  using original = await loadRewardModel(path, { dtype: 'float32' });
  const expected = await original.score(items);
  for (const quantType of quantTypes) {
    using scorer = await loadRewardModel(path, { dtype: 'float32', quantType });
    const scores = await scorer.score(items);
    const error = spread(scores.map((score, i) => score - (expected[i] as number))) / spread(expected);
    // measured: up to 2.6 % and 17 % of the scores' spread
    expect(error).toBeGreaterThan(0);
    expect(error).toBeLessThan(quantType === 'int8' ? 0.05 : 0.3);
    expect(scorer.model.decoder.bytes).toBeLessThan(original.model.decoder.bytes * (quantType === 'int8' ? 0.32 : 0.2));
  }
});

it('refuses a place outside its sequence, which would be read from the next one, and ids that are no numbers', async () => {
  using scorer = await loadRewardModel(await tinyRewardModel(folder, 'preference'), { dtype: 'float32' });
  const next = { ids: [3, 4, 5], places: [2] };
  for (const place of [2, -1, 0.5, Number.NaN])
    expect(() => headOutputs(scorer.model, [{ ids: [1, 2], places: [place] }, next])).toThrow(
      /is not the place of a token/,
    );
  const sequence = { ids: [1n, 2n] as unknown as number[], places: [1] };
  expect(() => headOutputs(scorer.model, [sequence])).toThrow('A sequence: ids [ 1n, 2n ]: expected a list, each');
});

it('takes Infinity for no limit, and a budget between numbers', async () => {
  const path = await tinyRewardModel(folder, 'preference');
  using scorer = await loadRewardModel(path, { dtype: 'float32', maxLength: Number.POSITIVE_INFINITY });
  const sequence = { ids: [3, 4, 5], places: [2] };
  for (const tokenBudget of [2.5, Number.POSITIVE_INFINITY])
    expect(headOutputs(scorer.model, [sequence, sequence], { tokenBudget })).toHaveLength(2);
});

it('scores exactly where there is no faster way, and refuses other words', async () => {
  const path = await tinyRewardModel(folder, 'preference');
  using exact = await loadRewardModel(path, { dtype: 'float32', device: 'cpu', quantType: 'int8' });
  using fast = await loadRewardModel(path, { dtype: 'float32', device: 'cpu', quantType: 'int8', precision: 'fast' });
  expect([exact.precision, fast.precision]).toEqual(['exact', 'exact']);
  expect(await fast.score(items)).toEqual(await exact.score(items));
  await expect(loadRewardModel(path, { precision: 'quick' as 'fast' })).rejects.toThrow(
    /precision "quick": expected exact or fast/,
  );
});
