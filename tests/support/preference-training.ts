/** Short preference trainings of a tiny model, for the tests of one file: their folder is removed after the last. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { type PreferenceTrainerOptions, trainPreference } from '../../src/trainers/preference/preference.ts';
import { preferenceRows } from './preference-rows.ts';
import { tinyModel } from './tiny-model.ts';

export type Given = Partial<Parameters<typeof trainPreference>[0]>;

export function preferenceTrainings() {
  const folder = mkdtempSync(join(tmpdir(), 'attune-preference-'));
  const model = join(folder, 'model');
  let runs = 0;
  beforeAll(async () => {
    process.env.ATTUNE_CACHE = join(folder, 'cache');
    await tinyModel(model);
  });
  afterAll(() => rmSync(folder, { recursive: true }));
  /** A training that is set up; each has a run of its own. */
  const start = (given: Given = {}, options: PreferenceTrainerOptions = {}) =>
    trainPreference(
      {
        model,
        dataset: preferenceRows(40),
        device: 'cpu',
        dtype: 'float32',
        lr: 3e-3,
        batchSize: 4,
        gradAccum: 2,
        maxSteps: 4,
        evalSteps: -1,
        saveModel: false,
        reportTo: ['none'],
        outputDir: join(folder, 'runs'),
        ...(given.resumeFrom === undefined ? { runName: `r${runs++}` } : {}),
        ...given,
      },
      { cache: false, run: { curves: false }, ...options },
    ).open();
  return { folder, model, start };
}
