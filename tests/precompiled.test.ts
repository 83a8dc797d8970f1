import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
// @ts-expect-error plain JavaScript that runs before any types are installed
import { precompiled } from '../scripts/precompiled.mjs';

const root = mkdtempSync(join(tmpdir(), 'attune-precompiled-'));
afterAll(() => rmSync(root, { recursive: true }));

function compilerThatSays(name: string, version: string): string {
  const path = join(root, name);
  writeFileSync(path, `#!/bin/sh\necho '${version}'\n`);
  chmodSync(path, 0o755);
  return path;
}
const gcc = compilerThatSays('gcc', 'g++ 12: Copyright (C) 2022 Free Software Foundation, Inc.');
const clang = compilerThatSays('clang', 'clang version 16');

function source(name: string, text: string, command: string[], headers: string[] = []) {
  const path = join(root, name);
  writeFileSync(path, text);
  return { source: path, headers, command };
}
const sources = (count: number, command: string[]) =>
  Array.from({ length: count }, (_, i) => source(`${i}${command.length}.cc`, '#include <ATen/ATen.h>\n', command));

describe('headers compiled once', () => {
  const build = join(root, 'build');
  const folder = join(build, `${process.pid}.headers`);
  const begin = (missing: object[], call: (command: string[]) => Promise<string>, cores = 2) => {
    mkdirSync(build, { recursive: true });
    return precompiled(missing, { build, cores, call });
  };

  it('serve the sources of each set of flags that enough have, and go with the build', async () => {
    const many = sources(8, [gcc, '-O3']);
    const few = sources(7, [gcc, '-O3', '-ffp-contract=off']);
    const plain = source('plain.cc', '#include <vector>\n', [gcc, '-O3']);
    const header = source('own.h', '#include <ATen/ATen.h>\n', []);
    const through = source('through.cc', '#include "own.h"\n', [gcc, '-O3'], [header.source]);
    const calls: string[][] = [];
    const shared = begin([...many, ...few, plain, through], async (command) => {
      calls.push(command);
      writeFileSync(command.at(-1) as string, '');
      return '';
    });
    expect(shared.make).toHaveLength(1);
    const options = shared.optionsFor(many[0]);
    await shared.make[0]();
    const path = join(folder, 'libtorch-0.h');
    expect(calls).toEqual([[gcc, '-O3', '-x', 'c++-header', path, '-o', `${path}.gch`]]);
    expect(readFileSync(path, 'utf8')).toContain('#include <ATen/ATen.h>\n');
    expect(await options).toEqual(['-include', path]);
    expect(await shared.optionsFor(through)).toEqual(['-include', path]);
    expect([await shared.optionsFor(plain), await shared.optionsFor(few[0])]).toEqual([[], []]);
    expect([shared.has(many[7]), shared.has(plain)]).toEqual([true, false]);
    shared.done();
    expect(existsSync(folder)).toBe(false);
  });

  it('are left out where they would not pay, for other compilers, and where they cannot be made', async () => {
    const fails = () => Promise.reject(new Error('no space left'));
    expect(begin(sources(8, [gcc]), fails, 3).make).toEqual([]);
    expect(begin(sources(8, [clang]), fails).make).toEqual([]);
    expect(begin([], fails).make).toEqual([]);
    const eight = sources(8, [gcc]);
    const shared = begin(eight, fails);
    await shared.make[0]();
    expect(await shared.optionsFor(eight[0])).toEqual([]);
    shared.done();
    expect(existsSync(folder)).toBe(false);
  });

  it('do not take along those of other flags when they fail, and go if a killed build left them', async () => {
    const killed = join(build, '1.headers');
    mkdirSync(killed, { recursive: true });
    utimesSync(killed, 0, 0);
    const [one, other] = [sources(8, [gcc, '-O3']), sources(8, [gcc, '-O3', '-g'])];
    const shared = begin([...one, ...other], async (command) => {
      if (command.includes('-g')) throw new Error('no space left');
      writeFileSync(command.at(-1) as string, '');
      return '';
    });
    expect(existsSync(killed)).toBe(false);
    await Promise.all(shared.make.map((make: () => Promise<void>) => make()));
    expect(await shared.optionsFor(one[0])).toEqual(['-include', join(folder, 'libtorch-0.h')]);
    expect(await shared.optionsFor(other[0])).toEqual([]);
    shared.done();
  });
});
