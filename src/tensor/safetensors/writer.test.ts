/** Writing: what the format cannot hold, and that a file is always either the old one or the new one, complete. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runProgram } from '../child.test-support.ts';
import { aten, ones, openSafetensors, writeSafetensors, zeros } from '../index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-writer-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);

describe('writing', () => {
  it('refuses names and dtypes that the format cannot hold', () => {
    expect(() =>
      writeSafetensors(at('w'), [
        ['a', ones([1])],
        ['a', ones([1])],
      ]),
    ).toThrow(/two tensors are named "a"/);
    expect(() => writeSafetensors(at('w'), [['__metadata__', ones([1])]])).toThrow(/cannot be named/);
    expect(() => writeSafetensors(at('w'), [['\ud800', ones([1])]])).toThrow(/cannot be named/);
    expect(() => writeSafetensors(at('w'), [['c', ones([1], { dtype: 'complex128' })]])).toThrow(
      /complex128, which the format cannot hold/,
    );
    expect(() => writeSafetensors(at('w'), [['q', aten('quantize_per_tensor', ones([1]), 1, 0, 'QInt8')]])).toThrow(
      /cannot hold/,
    );
    expect(existsSync(at('w'))).toBe(false);
  });

  it('a failure in the middle leaves the old file and nothing else', () => {
    const place = at('atomic');
    mkdirSync(place);
    const path = join(place, 'model.safetensors');
    writeSafetensors(path, [['x', ones([2])]]);
    expect(() =>
      writeSafetensors(path, [
        ['x', zeros([2])],
        ['y', zeros([2], { device: 'meta' })],
      ]),
    ).toThrow(/writeSafetensors/);
    expect(openSafetensors(path).tensor('x').tolist()).toEqual([1, 1]);
    expect(readdirSync(place)).toEqual(['model.safetensors']);
    chmodSync(place, 0o700);
    mkdirSync(join(place, 'taken'));
    expect(() => writeSafetensors(join(place, 'taken'), [['x', ones([1])]])).toThrow();
    expect(readdirSync(place).sort()).toEqual(['model.safetensors', 'taken']);
  });

  it('a process killed while it writes leaves the old file whole', () => {
    const path = at('killed');
    writeSafetensors(path, [['x', ones([4])]]);
    const program = `
      import { ones, writeSafetensors } from './src/tensor/index.ts';
      import { native } from './src/tensor/engine/native.ts';
      let written = 0;
      const bytesOf = native.bytesOf;
      native.bytesOf = (handle) => { if (written++ === 2) process.kill(process.pid, 'SIGKILL'); return bytesOf(handle); };
      writeSafetensors(${JSON.stringify(path)}, ['a', 'b', 'c', 'd'].map((name) => [name, ones([1000])]));
    `;
    const result = runProgram(program);
    expect(result.signal).toBe('SIGKILL');
    expect(openSafetensors(path).tensor('x').tolist()).toEqual([1, 1, 1, 1]);
  });
});

it('says that a folder is not there', () => {
  const path = at('nowhere/x.safetensors');
  expect(() => writeSafetensors(path, [['x', ones([1])]])).toThrow(`${path}: there is no folder ${at('nowhere')}`);
});
