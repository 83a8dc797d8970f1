/** The package as a stranger gets it: packed, installed into an empty project, run and type-checked there. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

let project: string;
const installed = () => join(project, 'node_modules/attune');

function run(command: string, args: string[], cwd: string): string {
  // The addon of the repository must not stand in for the package's own; what is compiled in a folder of a moment is not kept.
  const { ATTUNE_ADDON: _, NODE_COMPILE_CACHE: __, ...env } = process.env;
  return execFileSync(command, args, { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'attune-pack-'));
  run('npm', ['pack', '--pack-destination', project], '.');
  const tarball = readdirSync(project).find((name) => name.endsWith('.tgz')) ?? '';
  writeFileSync(join(project, 'package.json'), '{ "name": "empty", "private": true, "type": "module" }');
  run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', join(project, tarball)], project);
});

afterAll(() => rmSync(project, { recursive: true, force: true }));

describe('the package', () => {
  it('holds what it needs and no more', () => {
    for (const part of [
      'bin/attune.mjs',
      'dist/cli/main.js',
      'dist/studio-page/index.html',
      'dist/tensor/index.d.ts',
      'docs/learn/curves/05.json',
      'native/door/addon.cc',
      'scripts/native.mjs',
      'README.md',
      'LICENSE',
    ]) {
      expect(existsSync(join(installed(), part)), part).toBe(true);
    }
    for (const part of ['src', 'tests', 'scripts/start.mjs', 'dist/cli/demo.test.js']) {
      expect(existsSync(join(installed(), part)), part).toBe(false);
    }
  });

  it('built its addon while it was installed', () => {
    expect(readdirSync(join(installed(), 'build')).filter((name) => name.endsWith('.node'))).toHaveLength(1);
  });

  it('runs attune doctor', () => {
    const found = JSON.parse(run(join(project, 'node_modules/.bin/attune'), ['doctor', '--json'], project));
    expect(found.usable).toBe(true);
    expect(found.addon.path).toContain(installed());
  });

  it('shows the code of a chapter from what is installed, and writes it as a page', () => {
    const text = run(join(project, 'node_modules/.bin/attune'), ['learn', '6', '--no-run', '--page'], project);
    const page = /The page: (\S+)/.exec(text)?.[1];
    expect(readFileSync(join(project, page as string), 'utf8')).toContain('<math');
    expect(text).toContain('dist/algorithms/kl.js:');
    expect(text).toContain('export function klTerms');
  });

  it('types a five-line program, which runs', () => {
    const program = join(project, 'program.ts');
    writeFileSync(
      program,
      `import { scope, type Tensor, tensor } from 'attune/tensor';
const total: number = scope(() => tensor([[1, 2], [3, 4]]).matmul(tensor([[1, 0], [0, 1]])).sum().item());
console.log(total);
// the methods that other files add to the class
const lower: number[] = scope(() => tensor([[1, 2], [3, 4]]).at(1).to('float64').numbers());
console.log(lower.join());
// @ts-expect-error a method's types are there too: the dimension is a number
export const strange = (x: Tensor) => x.softmax('last');
// @ts-expect-error the package's types are really there: a number is not a string
export const wrong: string = total;
`,
    );
    const options = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--module',
      'nodenext',
      '--target',
      'es2024',
      '--lib',
      'es2024,esnext',
    ];
    const types = ['--types', 'node', '--typeRoots', resolve('node_modules/@types')];
    run(process.execPath, [resolve('node_modules/typescript/lib/tsc.js'), ...options, ...types, program], project);
    expect(run(process.execPath, [program], project)).toBe('10\n3,4\n');
  });
});
