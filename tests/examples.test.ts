/** The programs in examples/ run as a reader would run them, only shorter, and end with something learnt. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'attune-examples-'));
afterAll(() => rmSync(folder, { recursive: true }));

function example(name: string, ...args: string[]): string {
  const out = join(folder, `${name}.png`);
  const path = join(root, 'examples', `${name}.ts`);
  const result = spawnSync(process.execPath, ['--conditions=attune-source', path, ...args, '--out', out], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(result.stderr).toBe('');
  expect(readFileSync(out).subarray(1, 4).toString()).toBe('PNG');
  return result.stdout;
}

/** The numbers of the line that tells what was reached. */
const reached = (output: string) => (output.match(/^held-out.*$/m)?.[0].match(/[\d.]+/g) ?? []).map(Number);

describe('examples', () => {
  it('grpo raises the accuracy on held-out problems', () => {
    const [before = 1, after = 0] = reached(example('grpo', '--steps', '6'));
    expect(after).toBeGreaterThan(before);
  }, 120_000);

  it('dpo ranks most held-out pairs rightly', () => {
    const [after = 0] = reached(example('dpo', '--pairs', '160'));
    expect(after).toBeGreaterThan(0.7);
  }, 120_000);

  it('a reward model ranks most held-out pairs rightly, and is saved as one', () => {
    const saved = join(folder, 'saved');
    const [before = 1, after = 0] = reached(example('reward-model', '--pairs', '240', '--save', saved));
    expect(after).toBeGreaterThan(Math.max(before, 0.8));
    expect(existsSync(join(saved, 'tokenizer.json'))).toBe(true);
    expect(JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8')).num_labels).toBe(1);
  }, 120_000);

  it('fit on two screens: at most 150 lines each', () => {
    for (const name of readdirSync(join(root, 'examples')).filter((each) => each.endsWith('.ts')))
      expect(readFileSync(join(root, 'examples', name), 'utf8').split('\n').length, name).toBeLessThanOrEqual(150);
  });
});
