/** Resuming a run that is finished, or that belongs to another command. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { attune } from '../support/command-line.ts';
import { preferenceRows } from '../support/preference-rows.ts';
import { tinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-finished-'));
const run = join(folder, 'runs', 'a');
afterAll(() => rmSync(folder, { recursive: true }));

beforeAll(async () => {
  const data = join(folder, 'pairs.jsonl');
  await tinyModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
  writeFileSync(
    data,
    preferenceRows(24)
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(''),
  );
  const where = [
    '--model',
    join(folder, 'model'),
    '--dataset',
    data,
    '--output-dir',
    join(folder, 'runs'),
    '--run-name',
    'a',
  ];
  const size = [
    '--batch-size',
    '4',
    '--grad-accum',
    '1',
    '--max-steps',
    '1',
    '--validation-split',
    '0',
    '--report-to',
    'none',
  ];
  expect((await attune('train', 'preference', ...where, ...size)).code).toBe(0);
});

it('a finished run is left as it is, and the way to extend it is said', async () => {
  const final = () => statSync(join(run, 'final', 'model.safetensors')).mtimeMs;
  const info = () => JSON.parse(readFileSync(join(run, 'run.json'), 'utf8'));
  const before = { final: final(), info: info() };
  const again = await attune('train', 'preference', '--resume-from', run);
  expect(again.code).toBe(0);
  expect(again.err).toMatch(
    /is finished: it has taken its 1 step, and there is nothing to do.*give a larger --max-steps\.$/m,
  );
  expect({ final: final(), info: info() }).toEqual(before);

  const more = await attune('train', 'preference', '--resume-from', run, '--max-steps', '2');
  expect(more.code).toBe(0);
  expect(more.out).toMatch(/saved/);
  expect(final()).toBeGreaterThan(before.final);
});

it('another place for a run that goes on is a mistake', async () => {
  const { code, err } = await attune(
    'train',
    'preference',
    '--resume-from',
    run,
    '--output-dir',
    join(folder, 'other'),
  );
  expect(code).toBe(2);
  expect(err).toContain('--output-dir: has no effect here: a resumed run goes on in its own folder');
});

it("a pipeline's run is resumed by its pipeline", async () => {
  const file = join(run, 'run.json');
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), command: 'train pipeline' }));
  const { code, err } = await attune('train', 'preference', '--resume-from', run);
  expect(code).toBe(2);
  expect(err).toMatch(/that is a run of attune train pipeline.*Go on with: attune train --config .*--resume/);
});
