import { join } from 'node:path';
import { expect, it } from 'vitest';
import { attune } from '../../../tests/support/command-line.ts';
import { UserError } from '../../errors.ts';
import { cudaCount } from '../../tensor/index.ts';
import { exportGguf } from '../export/export-gguf.ts';
import { deviceOf } from './device.ts';
import { loadModel } from './load.ts';

const tiny = join(import.meta.dirname, '../../../models/tiny');
/** The first GPU index that does not exist. */
const missing = `cuda:${cudaCount()}` as const;

it('says what is missing where a GPU is asked for that is not there, and what to do', async () => {
  const said = new RegExp(`The device "${missing}" was asked for, but .*Take .*attune doctor`);
  expect(() => deviceOf(missing)).toThrow(said);
  await expect(loadModel(tiny, { device: missing })).rejects.toThrow(said);
  await expect(loadModel(tiny, { device: missing })).rejects.toThrow(UserError);
  // Before anything is downloaded.
  await expect(loadModel('org/nowhere', { device: missing, endpoint: 'http://localhost:1' })).rejects.toThrow(said);
});

it.each([
  ['generate', '--model', tiny, '--prompt', 'x'],
  ['score', '--checkpoint', tiny],
  ['chat', tiny],
  ['serve', tiny],
  ['evaluate', 'policy', '--model', tiny, '--task', 'gcd:1'],
  ['evaluate', 'reward', '--checkpoint', tiny, '--task', 'gcd:1'],
  ['evaluate', 'benchmark', '--model', tiny, '--suite', 'gsm8k'],
  ['quantize', 'policy', '--model', tiny, '--task', 'gcd:1'],
  ['train', 'policy', '--model', tiny, '--task', 'gcd:1', '--output-dir', '/tmp/attune-no-run', '--dry-run'],
  ['preferences', 'build', '--model', tiny, '--task', 'gcd:1', '--output', '/tmp/attune-no-pairs.jsonl'],
])('so does attune %s %s %s', async (...command) => {
  const { code, err } = await attune(...command, '--device', missing);
  expect([code, err]).toEqual([2, expect.stringContaining(`The device "${missing}" was asked for, but `)]);
});

it('loadModel and exportGguf refuse every option that they do not know', async () => {
  const load = loadModel(tiny, { somethingElse: 1 } as never);
  await expect(load).rejects.toThrow('loadModel does not know "somethingElse". It takes dtype, device, quantType');
  const given = { model: tiny, type: 'f32', out: 'never.gguf', somethingElse: 1 } as never;
  await expect(exportGguf(given)).rejects.toThrow('exportGguf does not know "somethingElse"');
});
