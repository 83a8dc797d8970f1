/** A learning rate far too high: the command fails with code 1, says so, and writes no final model. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { attune } from '../support/command-line.ts';
import { preferenceRows } from '../support/preference-rows.ts';
import { tinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-lr-'));
afterAll(() => rmSync(folder, { recursive: true }));
const data = join(folder, 'pairs.jsonl');

beforeAll(async () => {
  await tinyModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
  writeFileSync(
    data,
    preferenceRows(24)
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(''),
  );
});

it.each(['sft', 'preference', 'reward'])('train %s --lr 1e6 exits with 1', async (verb) => {
  const shape = verb === 'sft' ? ['--shape', 'messages'] : [];
  const size = ['--batch-size', '4', '--grad-accum', '1', '--max-steps', '6', '--max-grad-norm', '0'];
  const quiet = ['--validation-split', '0', '--eval-steps', '-1', '--save-steps', '-1', '--report-to', 'none'];
  const where = [
    '--model',
    join(folder, 'model'),
    '--dataset',
    data,
    '--output-dir',
    join(folder, verb),
    '--run-name',
    'a',
  ];
  const { code, err } = await attune('train', verb, ...where, ...shape, ...size, ...quiet, '--lr', '1e6');
  expect(err).toMatch(/diverged|not finite/);
  expect(err).toMatch(/lower (learning rate|--lr)/);
  expect(code).toBe(1);
  expect(existsSync(join(folder, verb, 'a', 'final'))).toBe(false);
});
