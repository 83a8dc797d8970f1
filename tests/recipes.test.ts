/** The recipes from a folder whose name has a space, with a program in place of npm that notes how it was called. */
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, it } from 'vitest';

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'attune-recipes-')));
afterAll(() => rmSync(folder, { recursive: true }));
const root = join(folder, 're pö');
cpSync('recipes', join(root, 'recipes'), { recursive: true });
writeFileSync(join(root, 'package-lock.json'), '');
for (const file of ['hh/a.jsonl.gz', 'gsm8k/example_model_solutions.jsonl.gz']) {
  mkdirSync(join(root, 'data', file, '..'), { recursive: true });
  writeFileSync(join(root, 'data', file), gzipSync('{}\n'));
}
const log = join(folder, 'calls');
mkdirSync(join(folder, 'bin'));
// Each call is a line of words in brackets; an output file is made.
writeFileSync(
  join(folder, 'bin/npm'),
  `#!/bin/sh
printf '[%s]' "$@" >> ${log}
echo >> ${log}
echo accuracy
while [ $# -gt 1 ]; do
  [ "$1" = --out ] && mkdir -p "$(dirname "$2")" && : > "$2"
  shift
done
`,
);
chmodSync(join(folder, 'bin/npm'), 0o755);

it.each([
  ['reward-models.sh', join(root, 'model'), join(root, 'work')],
  ['distillation.sh', join(root, 'model'), join(root, 'work')],
  ['story.sh', join(root, 'work')],
  ['iterated-preferences.sh', '2', join(root, 'model')],
  ['learning-check/run.sh', join(root, 'work')],
  ['tiny-model/make.sh', join(root, 'work')],
  ['real-data/run.sh', join(root, 'data'), join(root, 'work')],
])('%s calls attune with every path whole', (script, ...args) => {
  writeFileSync(log, '');
  const { status, stderr } = spawnSync('bash', [join(root, 'recipes', script), ...args], {
    cwd: folder,
    encoding: 'utf8',
    env: { PATH: `${folder}/bin:${process.env.PATH}`, OUT: join(root, 'work') },
  });
  expect(status, stderr).toBe(0);
  const calls = readFileSync(log, 'utf8').trim().split('\n');
  expect(calls.length).toBeGreaterThan(3);
  for (const call of calls) {
    const words = call.slice(1, -1).split('][');
    expect(words.slice(0, 4)).toEqual(['--prefix', expect.stringContaining(root), 'run', '--silent']);
    expect(words.filter((word) => word.startsWith(folder) && !word.startsWith(root))).toEqual([]);
    expect(words.filter((word) => word.startsWith('pö'))).toEqual([]);
  }
});
