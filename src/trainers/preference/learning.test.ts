/** Every loss learns an easy preference, measured by the order of held-out pairs before and after. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { preferenceRows } from '../../../tests/support/preference-rows.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { preferenceLosses } from '../../algorithms/index.ts';
import { openDataset, tokenise } from '../../data/index.ts';
import { type PromptedResponse, responseLogprobs } from '../../models/decoder/responses.ts';
import type { Model } from '../../models/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { trainPreference } from './preference.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-preference-learning-'));
const model = join(folder, 'model');
// the untrained model prefers the other answer, which leaves everything to learn
const rows = preferenceRows(140).map(({ prompt, chosen, rejected }) => ({
  prompt,
  chosen: rejected,
  rejected: chosen,
}));
const training = rows.slice(0, 100);
let heldOut: PromptedResponse[];

beforeAll(async () => {
  await tinyModel(model);
  const set = await openDataset(rows.slice(100), { shape: 'preference' });
  await using store = await tokenise(set, await Tokenizer.load(model), { cache: false });
  const records = await store.records(Array.from({ length: store.length }, (_, i) => i));
  heldOut = records.flatMap(({ sequences }) => sequences);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The share of held-out pairs whose chosen response has the higher log-prob per token: one measure for all losses. */
function accuracy(policy: Model): number {
  const means = responseLogprobs(policy.decoder, heldOut).map((lp, i) => {
    const { ids, promptLength } = heldOut[i] as PromptedResponse;
    return lp / (ids.length - promptLength);
  });
  const pairs = means.length / 2;
  return (
    Array.from({ length: pairs }, (_, i) => i).filter((i) => (means[2 * i] ?? 0) > (means[2 * i + 1] ?? 0)).length /
    pairs
  );
}

it.each(preferenceLosses.map(({ name }) => name))('%s', async (loss) => {
  using run = await trainPreference(
    {
      model,
      dataset: training,
      loss,
      device: 'cpu',
      lr: 5e-3,
      batchSize: 12,
      gradAccum: 1,
      maxSteps: 16,
      epochs: 10,
      validationSplit: 0,
      evalSteps: -1,
      saveModel: false,
      reportTo: ['none'],
      outputDir: join(folder, 'runs'),
      runName: loss,
    },
    { cache: false, run: { curves: false } },
  ).open();
  const before = accuracy(run.model);
  await run.finish();
  expect(before).toBeLessThan(0.5);
  expect(accuracy(run.model)).toBeGreaterThan(0.95);
});
