/** Every fault that a header can have gives one error that names the file and the fault. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { liveTensors, ones, openSafetensors, SafetensorsError, writeSafetensors } from '../index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-header-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);

/** Writes a file with the given header and data. */
function file(name: string, header: unknown, data: Uint8Array | number = 0): string {
  const text =
    header instanceof Uint8Array
      ? header
      : new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
  const bytes = typeof data === 'number' ? new Uint8Array(data) : data;
  const out = new Uint8Array(8 + text.length + bytes.length);
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true);
  out.set(text, 8);
  out.set(bytes, 8 + text.length);
  writeFileSync(at(name), out);
  return at(name);
}

/** Writes a file with the given bytes. */
function raw(bytes: string | Uint8Array): string {
  writeFileSync(at('f'), bytes);
  return at('f');
}

describe('faults', () => {
  const one = { dtype: 'F32', shape: [2], data_offsets: [0, 8] };
  const faults: [string, () => string, RegExp][] = [
    ['no file', () => at('missing'), /there is no such file/],
    ['a folder', () => folder, /not a regular file|EISDIR/],
    ['an empty file', () => raw(''), /0 bytes are too few/],
    ['seven bytes', () => raw('abcdefg'), /7 bytes are too few/],
    [
      'a header longer than the file',
      () => raw(Uint8Array.of(200, 0, 0, 0, 0, 0, 0, 0, 123)),
      /claims 200 bytes, the file has 9/,
    ],
    ['a header of 2⁶⁴−1 bytes', () => raw(new Uint8Array(9).fill(255)), /claims 18446744073709551615 bytes; at most/],
    ['no JSON', () => file('f', '{"a":'), /not valid JSON/],
    ['an empty header', () => file('f', ''), /not valid JSON/],
    ['a byte order mark', () => file('f', '\ufeff{}'), /not valid JSON/],
    ['bytes that are no UTF-8', () => file('f', Uint8Array.of(0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d)), /not valid JSON/],
    ['a list', () => file('f', []), /not a JSON object/],
    ['null', () => file('f', 'null'), /not a JSON object/],
    ['a name twice', () => file('f', `{"a":${JSON.stringify(one)},"a":${JSON.stringify(one)}}`, 8), /names "a" twice/],
    [
      'a name twice, escaped',
      () => file('f', `{"a":${JSON.stringify(one)},"\\u0061" :${JSON.stringify(one)}}`, 8),
      /names "a" twice/,
    ],
    [
      'a field twice',
      () => file('f', '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"dtype":"I32"}}', 8),
      /names "dtype" twice/,
    ],
    ['metadata that is no map', () => file('f', { __metadata__: [] }), /__metadata__ is not a map of strings/],
    ['metadata with a number', () => file('f', { __metadata__: { a: 1 } }), /__metadata__ is not a map of strings/],
    ['a tensor that is a number', () => file('f', { a: 1 }), /"a" is not described by an object/],
    ['no dtype', () => file('f', { a: { ...one, dtype: undefined } }, 8), /dtype missing/],
    ['an unknown dtype', () => file('f', { a: { ...one, dtype: 'F7' } }, 8), /dtype "F7", which is not supported/],
    ['a dtype of the prototype', () => file('f', { a: { ...one, dtype: '__proto__' } }, 8), /dtype "__proto__"/],
    ['a dtype that is an object', () => file('f', { a: { ...one, dtype: { a: 1 } } }, 8), /dtype an object/],
    ['a negative size', () => file('f', { a: { ...one, shape: [-2] } }, 8), /shape \[-2\]/],
    ['a fraction', () => file('f', { a: { ...one, shape: [0.5] } }, 8), /shape \[0.5\]/],
    [
      'a size beyond 2⁵³',
      () => file('f', '{"a":{"dtype":"F32","shape":[9007199254740993],"data_offsets":[0,8]}}', 8),
      /shape/,
    ],
    [
      'a size of 1e400',
      () => file('f', '{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,8]}}', 8),
      /shape \[null\]/,
    ],
    ['sizes as strings', () => file('f', { a: { ...one, shape: ['2'] } }, 8), /shape \["2"\]/],
    ['a shape within a shape', () => file('f', { a: { ...one, shape: [[2]] } }, 8), /a nested array/],
    ['65 dimensions', () => file('f', { a: { ...one, shape: [2, ...new Array(64).fill(1)] } }, 8), /shape/],
    [
      'sizes whose product overflows to 0',
      () => file('f', { a: { ...one, shape: [2 ** 32, 2 ** 32, 2 ** 32], data_offsets: [0, 0] } }),
      /needs/,
    ],
    [
      'sizes that overflow beside a 0',
      () => file('f', { a: { ...one, shape: [2 ** 52, 2 ** 52, 0], data_offsets: [0, 0] } }),
      /needs 0 bytes/,
    ],
    ['three offsets', () => file('f', { a: { ...one, data_offsets: [0, 8, 9] } }, 8), /data_offsets \[0,8,9\]/],
    ['offsets in reverse', () => file('f', { a: { ...one, data_offsets: [8, 0] } }, 8), /lies at 8–0/],
    [
      'offsets beyond the end',
      () => file('f', { a: one }, 4),
      /lies at 0–8, but the file holds 4 bytes of data \(is it cut short\?\)/,
    ],
    [
      'too few bytes for the shape',
      () => file('f', { a: { ...one, data_offsets: [0, 4] } }, 4),
      /needs 8 bytes, its offsets give 4/,
    ],
    ['an overlap', () => file('f', { a: one, b: { ...one, data_offsets: [4, 12] } }, 12), /"b" overlaps/],
    ['the same bytes twice', () => file('f', { a: one, b: one }, 8), /overlaps/],
    [
      'a hole',
      () => file('f', { a: one, b: { ...one, data_offsets: [12, 20] } }, 20),
      /4 bytes before tensor "b" belong to no tensor/,
    ],
    ['bytes left over', () => file('f', { a: one }, 11), /3 bytes at the end belong to no tensor/],
    ['bytes without tensors', () => file('f', {}, 1), /1 bytes at the end/],
  ];

  it.each(faults)('%s', (_, make, message) => {
    const path = make();
    const before = liveTensors();
    expect(() => openSafetensors(path)).toThrow(SafetensorsError);
    expect(() => openSafetensors(path)).toThrow(message);
    expect(() => openSafetensors(path)).toThrow(path);
    expect(liveTensors()).toBe(before);
  });

  it('a named pipe is refused at once instead of waited for', () => {
    if (spawnSync('mkfifo', [at('pipe')]).status !== 0) return;
    expect(() => openSafetensors(at('pipe'))).toThrow(/not a regular file/);
  });

  it('a million nested lists, a key of 20 MB, a hundred thousand names', () => {
    expect(() =>
      openSafetensors(
        file('deep', `{"a":{"dtype":"F32","shape":${'['.repeat(1e6)}${']'.repeat(1e6)},"data_offsets":[0,8]}}`, 8),
      ),
    ).toThrow(SafetensorsError);
    expect(() => openSafetensors(file('deep', `${'{"a":'.repeat(1e5)}1${'}'.repeat(1e5)}`))).toThrow(SafetensorsError);
    const long = 'k'.repeat(20e6);
    expect(openSafetensors(file('long', { [long]: { dtype: 'U8', shape: [0], data_offsets: [0, 0] } })).names).toEqual([
      long,
    ]);
    expect(() => openSafetensors(file('long', { [long]: 1 }))).toThrow(/k{50}…/);
    const many = Object.fromEntries(
      Array.from({ length: 1e5 }, (_, i) => [`t${i}`, { dtype: 'U8', shape: [0], data_offsets: [0, 0] }]),
    );
    expect(openSafetensors(file('many', many)).names).toHaveLength(1e5);
  });

  it('asks back when a name is nearly right', () => {
    writeSafetensors(at('near'), [['model.norm.weight', ones([1])]]);
    expect(() => openSafetensors(at('near')).tensor('model.norm.wieght')).toThrow(
      /no tensor "model.norm.wieght". Did you mean "model.norm.weight"\?/,
    );
  });
});
