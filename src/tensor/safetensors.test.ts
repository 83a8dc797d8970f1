/** The format: round trips, Python's own files, every fault of a header, sharded checkpoints, atomic writing. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runProgram } from './child.test-support.ts';
import {
  aten,
  Checkpoint,
  type DType,
  libtorchVersion,
  liveTensors,
  ones,
  openSafetensors,
  parseHeader,
  randn,
  readHeader,
  SafetensorsError,
  scope,
  seed,
  type Tensor,
  tensor,
  writeSafetensors,
  zeros,
} from './index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-safetensors-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);

/** A file of any header and data. */
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

/** A file of any bytes. */
function raw(bytes: string | Uint8Array): string {
  writeFileSync(at('f'), bytes);
  return at('f');
}

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

// A development check against the reference implementation, where one is installed: both directions, all dtypes.
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
      import { native } from './src/tensor/native.ts';
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

describe('fuzz', () => {
  // mulberry32: the same mutations every time
  let state = 7;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n: number) => Math.floor(random() * n);
  const words = [
    '-1',
    '0',
    '9007199254740993',
    '18446744073709551616',
    '1e999',
    '1.5',
    'null',
    '[]',
    '{}',
    '"F32"',
    '"__proto__"',
    ':',
    ',',
    ']',
    '}',
    '"',
    '\\u0000',
    'F64',
    'I8',
    '4',
    '8',
    '12',
  ];

  function mutate(bytes: Uint8Array): Uint8Array {
    let out = Uint8Array.from(bytes);
    for (let i = below(3); i >= 0; i--) {
      const place = below(out.length || 1);
      const kind = random();
      if (kind < 0.35) out[place] = below(256);
      else if (kind < 0.5) out[place] = (out[place] ?? 0) ^ (1 << below(8));
      else if (kind < 0.6) out = out.slice(0, place);
      else if (kind < 0.7)
        out = Uint8Array.of(...out.slice(0, place), ...new Uint8Array(below(16)), ...out.slice(place));
      else if (kind < 0.8) out = Uint8Array.of(...out.slice(0, place), ...out.slice(place + below(12)));
      else {
        const word = new TextEncoder().encode(words[below(words.length)] as string);
        out = Uint8Array.of(
          ...out.slice(0, place),
          ...word,
          ...out.slice(random() < 0.5 ? place : place + word.length),
        );
      }
    }
    return out;
  }

  /** A header is a valid one only if everything it promises lies inside the file. */
  function checkInside(
    tensors: ReadonlyMap<string, { offset: number; bytes: number; shape: readonly number[] }>,
    size: number,
  ): void {
    for (const info of tensors.values()) {
      if (
        !(
          info.offset >= 8 &&
          info.bytes >= 0 &&
          info.offset + info.bytes <= size &&
          info.shape.every((n) => Number.isSafeInteger(n) && n >= 0)
        )
      ) {
        throw new Error(`promises ${JSON.stringify(info)} of ${size} bytes`);
      }
    }
  }

  const seedFile = () => {
    writeSafetensors(
      at('seed'),
      [
        ['a', ones([2, 3])],
        ['bb', ones([4], { dtype: 'int64' })],
        ['__proto__', ones([3], { dtype: 'bool' })],
        ['e', zeros([0])],
      ],
      { format: 'pt', k: 'v' },
    );
    return new Uint8Array(readFileSync(at('seed')));
  };

  it('20,000 mutated headers: a SafetensorsError or a header that keeps inside the file', () => {
    const bytes = seedFile();
    const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
    const header = bytes.slice(8, 8 + length);
    let valid = 0;
    for (let i = 0; i < 20_000; i++) {
      const text = mutate(header);
      const size = 8 + text.length + (random() < 0.9 ? bytes.length - 8 - length : below(200));
      try {
        checkInside(parseHeader('fuzz', text, size).tensors, size);
        valid++;
      } catch (error) {
        if (!(error instanceof SafetensorsError)) throw error;
      }
    }
    expect(valid).toBeGreaterThan(20);
    expect(valid).toBeLessThan(10_000);
  });

  it('3,000 mutated files, opened and read: a SafetensorsError or tensors that can be read', () => {
    const bytes = seedFile();
    const before = liveTensors();
    let read = 0;
    for (let i = 0; i < 3000; i++) {
      writeFileSync(at('mutant'), mutate(bytes));
      try {
        scope(() => {
          using opened = openSafetensors(at('mutant'));
          for (const name of opened.names) {
            opened.tensor(name).data();
            read++;
          }
        });
      } catch (error) {
        if (!(error instanceof SafetensorsError)) throw error;
      }
    }
    expect(read).toBeGreaterThan(100);
    expect(liveTensors()).toBe(before);
  });
});
