/** The format: round trips, Python's own files, sharded checkpoints. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  Checkpoint,
  type DType,
  libtorchVersion,
  ones,
  openSafetensors,
  randn,
  SafetensorsError,
  seed,
  type Tensor,
  tensor,
  writeSafetensors,
  zeros,
} from '../index.ts';
import { readHeader } from './header.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-safetensors-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);

describe('round trip', () => {
  const unsigned = (() => {
    const [major, minor] = libtorchVersion();
    return major > 2 || (major === 2 && minor >= 3);
  })();

  it('every dtype, bit for bit', () => {
    seed(0);
    const source = randn([3, 5]).mul(50);
    const dtypes: DType[] = [
      'float64',
      'float32',
      'float16',
      'bfloat16',
      'int64',
      'int32',
      'int16',
      'int8',
      'uint8',
      'bool',
      'complex64',
    ];
    if (unsigned) dtypes.push('float8_e4m3fn', 'float8_e5m2', 'uint16', 'uint32', 'uint64');
    const made = dtypes.map((dtype) => [dtype, dtype === 'bool' ? source.gt(0) : source.abs().to(dtype)] as const);
    writeSafetensors(at('all'), made, { format: 'pt', note: 'ü "quoted" \\' });
    using opened = openSafetensors(at('all'));
    expect(opened.names).toEqual(dtypes);
    expect(opened.metadata).toEqual({ format: 'pt', note: 'ü "quoted" \\' });
    for (const [dtype, value] of made) {
      const back = opened.tensor(dtype);
      expect([back.dtype, back.shape]).toEqual([dtype, [3, 5]]);
      expect(back.data()).toEqual(value.data());
    }
  });

  it('scalars, empty tensors, strided ones, no tensors at all', () => {
    const strided = tensor([
      [1, 2, 3],
      [4, 5, 6],
    ]).t();
    writeSafetensors(at('odd'), [
      ['scalar', tensor(7)],
      ['empty', zeros([0, 4])],
      ['strided', strided],
      ['after', ones([1])],
    ]);
    using opened = openSafetensors(at('odd'));
    expect(opened.tensor('scalar').tolist()).toBe(7);
    expect(opened.tensor('empty').shape).toEqual([0, 4]);
    expect(opened.tensor('strided').tolist()).toEqual([
      [1, 4],
      [2, 5],
      [3, 6],
    ]);
    expect(opened.tensor('after').tolist()).toEqual([1]);
    writeSafetensors(at('none'), [], {});
    expect(openSafetensors(at('none')).names).toEqual([]);
  });

  it('any name: __proto__, constructor, digits, nothing, emoji', () => {
    const names = ['__proto__', 'constructor', '2', '10', '', '🦊', 'a"b\\c', 'toString'];
    writeSafetensors(
      at('names'),
      names.map((name, i) => [name, tensor([i])] as const),
    );
    using opened = openSafetensors(at('names'));
    expect(new Set(opened.names)).toEqual(new Set(names));
    for (const [i, name] of names.entries()) expect(opened.tensor(name).item()).toBe(i);
    expect(({} as Record<string, unknown>).dtype).toBeUndefined();
  });

  it('the data starts on a multiple of 8, so that nothing is copied', () => {
    for (const name of ['a', 'ab', 'abc', 'abcd', 'abcde']) {
      writeSafetensors(at('aligned'), [[name, ones([2])]]);
      expect((readHeader(at('aligned')).tensors.get(name)?.offset as number) % 8).toBe(0);
    }
  });

  it('tensors live on after the file is closed, share its memory, and do not change it', () => {
    writeSafetensors(at('shared'), [['x', ones([4])]]);
    const before = readFileSync(at('shared'));
    const opened = openSafetensors(at('shared'));
    const [a, b] = [opened.tensor('x'), opened.tensor('x')];
    opened.close();
    opened.close();
    a.fill_(5);
    expect(b.tolist()).toEqual([5, 5, 5, 5]);
    expect(readFileSync(at('shared')).equals(before)).toBe(true);
    expect(() => opened.tensor('x')).toThrow(/closed/);
  });

  it('may overwrite the file that it is reading', () => {
    writeSafetensors(at('self'), [['x', ones([4])]]);
    using opened = openSafetensors(at('self'));
    const x = opened.tensor('x');
    writeSafetensors(at('self'), [
      ['x', x.mul(3)],
      ['y', x],
    ]);
    expect(x.tolist()).toEqual([1, 1, 1, 1]);
    expect(openSafetensors(at('self')).tensor('x').tolist()).toEqual([3, 3, 3, 3]);
  });
});

// A development check against the reference implementation, if one is installed: both directions, all dtypes.
const python = process.env.ATTUNE_PYTHON ?? 'python3';
const hasPython = spawnSync(python, ['-c', 'import safetensors.torch'], { encoding: 'utf8' }).status === 0;
if (hasPython) {
  it("Python's safetensors reads ours, and we read its", () => {
    const values: [string, Tensor][] = [
      ['bf16', tensor([1.5, -2], { dtype: 'bfloat16' })],
      ['f16', tensor([0.5], { dtype: 'float16' })],
      ['i64', tensor([[2n ** 62n], [-1n]])],
      ['bool', tensor([true, false])],
      ['scalar', tensor(3)],
      ['empty', zeros([2, 0])],
    ];
    writeSafetensors(at('ours'), values, { format: 'pt' });
    const code = `
import json, sys, torch
from safetensors.torch import load_file, save_file
ours = load_file(sys.argv[1])
print(json.dumps({k: [str(v.dtype), list(v.shape), v.to(torch.float64).flatten().tolist()] for k, v in ours.items()}))
save_file({**ours, 'u8': torch.tensor([0, 255], dtype=torch.uint8)}, sys.argv[2], {'by': 'python'})`;
    const result = spawnSync(python, ['-c', code, at('ours'), at('theirs')], { encoding: 'utf8' });
    expect(result.stderr).toBe('');
    expect(JSON.parse(result.stdout)).toEqual({
      bf16: ['torch.bfloat16', [2], [1.5, -2]],
      f16: ['torch.float16', [1], [0.5]],
      i64: ['torch.int64', [2, 1], [2 ** 62, -1]],
      bool: ['torch.bool', [2], [1, 0]],
      scalar: ['torch.float32', [], [3]],
      empty: ['torch.float32', [2, 0], []],
    });
    using theirs = openSafetensors(at('theirs'));
    expect(theirs.metadata).toEqual({ by: 'python' });
    for (const [name, value] of values) expect(theirs.tensor(name).data()).toEqual(value.data());
    expect(theirs.tensor('u8').tolist()).toEqual([0, 255]);
  });
}

describe('checkpoints', () => {
  it('one file, or shards by their index', () => {
    const one = at('one');
    const two = at('two');
    mkdirSync(one);
    mkdirSync(two);
    writeSafetensors(join(one, 'model.safetensors'), [['a', tensor([1])]]);
    using single = new Checkpoint(one);
    expect(single.names).toEqual(['a']);
    writeSafetensors(join(two, 'model-1.safetensors'), [
      ['a', tensor([1])],
      ['b', tensor([2])],
    ]);
    writeSafetensors(join(two, 'model-2.safetensors'), [
      ['c', tensor([3])],
      ['a', tensor([9])],
    ]);
    const map = { b: 'model-1.safetensors', a: 'model-1.safetensors', c: 'model-2.safetensors' };
    writeFileSync(join(two, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map: map }));
    using sharded = new Checkpoint(two);
    expect(sharded.names.sort()).toEqual(['a', 'b', 'c']);
    expect([sharded.tensor('a').item(), sharded.tensor('b').item(), sharded.tensor('c').item()]).toEqual([1, 2, 3]);
    expect(sharded.info('c').shape).toEqual([1]);
    expect(sharded.has('d')).toBe(false);
    expect(() => sharded.tensor('d')).toThrow(/no tensor "d"/);
  });

  it.each<[string, string, RegExp]>([
    ['no JSON', '{', /not valid JSON/],
    ['null', 'null', /no weight_map/],
    ['no map', '{}', /no weight_map/],
    ['a map that is a list', '{"weight_map":[]}', /no weight_map/],
    ['a way out of the folder', '{"weight_map":{"a":"../x.safetensors"}}', /points to "..\/x.safetensors"/],
    ['two dots', '{"weight_map":{"a":".."}}', /points to ".."/],
    ['a number', '{"weight_map":{"a":3}}', /points to 3/],
    ['a missing shard', '{"weight_map":{"a":"gone.safetensors"}}', /gone.safetensors: there is no such file/],
    [
      'a tensor that the shard lacks',
      '{"weight_map":{"z":"real.safetensors"}}',
      /says "z" is in real.safetensors, which has no such tensor/,
    ],
  ])('an index with %s', (_, text, message) => {
    const place = at('index');
    mkdirSync(place, { recursive: true });
    writeSafetensors(join(place, 'real.safetensors'), [['a', ones([1])]]);
    writeFileSync(join(place, 'model.safetensors.index.json'), text);
    expect(() => new Checkpoint(place)).toThrow(SafetensorsError);
    expect(() => new Checkpoint(place)).toThrow(message);
  });

  it('a folder without weights', () => {
    expect(() => new Checkpoint(at('nowhere'))).toThrow(/neither model.safetensors nor model.safetensors.index.json/);
  });
});
