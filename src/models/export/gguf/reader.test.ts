import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { array, bool, float32, type Metadata, string, uint32 } from './format.ts';
import { openGguf } from './reader.ts';
import { type TensorSource, writeGguf } from './writer.ts';

const scratch = mkdtempSync(join(tmpdir(), 'attune-gguf-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const metadata: Metadata = new Map([
  ['general.architecture', string('llama')],
  ['a.number', uint32(7)],
  ['a.fraction', float32(0.5)],
  ['a.switch', bool(true)],
  ['words', array('string', ['Ġthe', '', '🙂'])],
  ['kinds', array('int32', [1, -3])],
]);
const floats = (name: string, shape: number[], values: number[]): TensorSource => ({
  name,
  shape,
  type: 'f32',
  *pieces() {
    yield new Uint8Array(Float32Array.from(values).buffer);
  },
});
const tensors = [floats('a.weight', [2, 3], [1, 2, 3, 4, 5, 6]), floats('b.bias', [1], [-7])];

function written(name: string): string {
  const path = join(scratch, name);
  writeGguf(path, metadata, tensors, () => {});
  return path;
}

it('reads what was written', () => {
  using file = openGguf(written('whole.gguf'));
  expect(Object.fromEntries(file.metadata)).toEqual({
    'general.architecture': 'llama',
    ...{ 'a.number': 7, 'a.fraction': 0.5, 'a.switch': true, words: ['Ġthe', '', '🙂'], kinds: [1, -3] },
  });
  expect([...(file.tensors.get('a.weight')?.shape ?? [])]).toEqual([2, 3]);
  expect([...file.values('a.weight')]).toEqual([1, 2, 3, 4, 5, 6]);
  expect([...file.values('b.bias')]).toEqual([-7]);
  expect(() => file.values('c')).toThrow(/no tensor "c"/);
});

it('begins as the format says', () => {
  const bytes = readFileSync(written('bytes.gguf'));
  expect(bytes.subarray(0, 4).toString()).toBe('GGUF');
  expect([bytes.readUInt32LE(4), bytes.readBigUInt64LE(8), bytes.readBigUInt64LE(16)]).toEqual([3, 2n, 6n]);
  expect(bytes.length % 32).toBe(0);
});

it('leaves nothing behind where writing fails', () => {
  const path = join(scratch, 'failed.gguf');
  const broken = { ...floats('a', [4], []), pieces: () => [new Uint8Array(3)] };
  expect(() => writeGguf(path, metadata, [broken], () => {})).toThrow(/gave 3 bytes where its shape says 16/);
  expect(() =>
    writeGguf(path, metadata, tensors, () => {
      throw new Error('checked and found wanting');
    }),
  ).toThrow(/wanting/);
  expect(() => readFileSync(path)).toThrow(/ENOENT/);
});

describe('a hostile file', () => {
  const whole = readFileSync(written('start.gguf'));
  const opened = (bytes: Uint8Array) => () => {
    const path = join(scratch, 'hostile.gguf');
    writeFileSync(path, bytes);
    openGguf(path)[Symbol.dispose]();
  };
  const changed = (change: (bytes: Buffer) => void) => {
    const bytes = Buffer.from(whole);
    change(bytes);
    return bytes;
  };

  it('cut short anywhere says so', () => {
    for (let length = 0; length < whole.length - 28; length += 5)
      expect(opened(whole.subarray(0, length)), `${length} bytes`).toThrow(/cut short|more than the file can hold/);
  });
  it('of another kind', () => expect(opened(changed((bytes) => bytes.write('XXXX')))).toThrow(/not a GGUF file/));
  it('of another version', () => expect(opened(changed((bytes) => bytes.writeUInt32LE(9, 4)))).toThrow(/version 9/));
  it.each([8, 16])('that counts too many at byte %d', (at) => {
    expect(opened(changed((bytes) => bytes.writeBigUInt64LE(2n ** 60n, at)))).toThrow(/number of .* is/);
    expect(opened(changed((bytes) => bytes.writeBigUInt64LE(10n ** 9n, at)))).toThrow(/more than the file can hold/);
  });
  it('with an unknown type of tensor', () => {
    const at = whole.indexOf('a.weight') + 'a.weight'.length + 4 + 16;
    expect(opened(changed((bytes) => bytes.writeUInt32LE(99, at)))).toThrow(/"a.weight" is of type 99/);
  });
  it('with a tensor beyond its end', () => {
    const at = whole.indexOf('a.weight') + 'a.weight'.length + 4 + 16 + 4;
    expect(opened(changed((bytes) => bytes.writeBigUInt64LE(2n ** 40n, at)))).toThrow(/cut short/);
    expect(opened(changed((bytes) => bytes.writeBigUInt64LE(3n, at)))).toThrow(/alignment/);
  });
  it('with a shape that is none', () => {
    const at = whole.indexOf('a.weight') + 'a.weight'.length + 4;
    expect(opened(changed((bytes) => bytes.writeBigUInt64LE(0n, at)))).toThrow(/cannot hold/);
  });
});
