/** Several sequences in one response: they do not see one another. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModel, type Model } from '../index.ts';
import { packResponses, responseLogprobs, responseTokenLogprobs } from './responses.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-responses-'));
let model: Model;
beforeAll(async () => {
  model = await loadModel(await tinyModel(join(folder, 'model')));
});
afterAll(() => {
  model.dispose();
  rmSync(folder, { recursive: true });
});

const prompt = [5, 6, 7, 8, 9, 10, 11, 12, 13];
const first = [...prompt, 20, 21, 22];
const second = [...prompt, 30, 31];
const third = [40, 41, 42];

it('counts of each what it would count alone, also where sequences share a prompt or one has none', () => {
  const ids = Int32Array.from([...first, ...second, ...third]);
  const starts = [0, first.length, first.length + second.length];
  // The last one has no prompt: nothing predicts its first token, least of all the sequence before it.
  const spans = [9, 12, 12 + 9, 12 + 11, 23, 26];
  const whole = { ids, promptLength: 0, spans, starts };
  const alone = responseLogprobs(model.decoder, [
    { ids: Int32Array.from(first), promptLength: 9 },
    { ids: Int32Array.from(second), promptLength: 9 },
    { ids: Int32Array.from(third), promptLength: 1 },
  ]);
  const total = alone.reduce((sum, each) => sum + each, 0);
  expect(responseLogprobs(model.decoder, [whole])[0]).toBeCloseTo(total, 4);
  expect(packResponses([whole], model.decoder).lengths).toEqual([3 + 2 + 2]);
  const other = { ids: Int32Array.from(first), promptLength: 9 };
  const both = responseLogprobs(model.decoder, [other, whole]);
  expect(both[0]).toBeCloseTo(alone[0] as number, 4);
  expect(both[1]).toBeCloseTo(total, 4);
  // Other tokens in one sequence change nothing in the ones after it.
  const changed = Int32Array.from(ids);
  changed.fill(77, 0, 12);
  const tokens = (each: Int32Array) => {
    const packed = packResponses([{ ...whole, ids: each }], model.decoder);
    const logprobs = responseTokenLogprobs(model.decoder, model.decoder.forward(packed.batch), packed);
    return Array.from(logprobs.data() as Float32Array).slice(3);
  };
  const [before, after] = [tokens(ids), tokens(changed)];
  for (const [i, value] of before.entries()) expect(after[i]).toBeCloseTo(value, 5);
});
