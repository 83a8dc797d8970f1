/** `--help` of the programs that `npm run` starts, and an option that there is not: words, never a stack trace or the work itself. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..');

function run(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  expect(stderr).not.toMatch(/^ +at /m);
  return { status, stdout, stderr };
}

describe('--help', () => {
  it.each([
    ['pictures', 'npm run pictures -- --all'],
    ['bundle', '--arch x64|arm64'],
    ['docs', 'docs/api.md'],
    ['build', 'dist/'],
    ['setup', 'builds the addon'],
    ['sanitize', 'AddressSanitizer'],
    ['recipe', 'mine.ts'],
    ['example', 'grpo'],
    ['format-native', 'clang-format'],
    ['typecheck', 'tsc'],
  ])('npm run %s', (name, says) => {
    const { status, stdout, stderr } = run('scripts/start.mjs', name, '--help');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain(says);
  });

  it('of an example and of a benchmark is what the file says of itself', () => {
    expect(run('scripts/start.mjs', 'example', 'dpo', '--help').stdout).toContain('npm run example -- dpo [--model');
    expect(run('benchmarks/run.ts', 'data', '--help').stdout).toContain('npm run bench -- data [--pairs 100000]');
    expect(run('benchmarks/run.ts', '--help')).toMatchObject({ status: 0, stdout: expect.stringContaining('serve') });
  });
});

it.each([['scripts/bundle.mjs'], ['benchmarks/run.ts', 'data']])(
  'an option that there is not is named: %s',
  (...program) => {
    const { status, stderr } = run(...program, '--colour');
    expect(status).toBe(2);
    expect(stderr).toContain("Unknown option '--colour'");
  },
);
