/**
 * bitsandbytes' files: read (golden ones by fixtures/bitsandbytes_files.py, and bitsandbytes' own if the shared folder
 * is there), written and read back by an independent reader, and refused if they are wrong.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import {
  liveTensors,
  noGrad,
  openSafetensors,
  scope,
  type Tensor,
  tensor,
  writeSafetensors,
} from '../../tensor/index.ts';
import {
  addLora,
  inspectModel,
  loadModelFolder,
  type Model,
  mergeAdapters,
  packSequences,
  quantTypes,
  saveModel,
} from '../index.ts';

const temporary = mkdtempSync(join(tmpdir(), 'attune-bitsandbytes-'));
afterAll(() => rmSync(temporary, { recursive: true }));
const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const golden = at('fixtures/bitsandbytes');
const families = at('../../../tests/models/fixtures');
const shared = join(process.env.ATTUNE_SHARED ?? at('../../../../shared'), 'fixtures/bnb');

const logits = (model: Model, ids: number[][]) =>
  scope(() => noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids))).numbers()));
const furthest = (a: number[], b: number[]) =>
  a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);
const configOf = (folder: string) => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));

describe('reading', () => {
  it.each(readdirSync(golden))('%s computes what its weights stand for', (name) => {
    const before = liveTensors();
    const folder = join(golden, name);
    const { ids, logits: rows } = JSON.parse(readFileSync(join(folder, 'reference.json'), 'utf8'));
    using model = loadModelFolder(folder);
    expect(model.decoder.quantType).toBe(name.endsWith('int8') ? 'int8' : 'int4');
    expect(furthest(logits(model, [ids]), rows.flat())).toBeLessThan(1e-4);
    model.dispose();
    expect(liveTensors()).toBe(before);
  });

  const published = existsSync(shared) ? readdirSync(shared) : [];
  it('matches what bitsandbytes itself wrote, where those files are here', () => {
    for (const name of published) {
      using model = loadModelFolder(join(shared, name));
      using reference = openSafetensors(join(shared, name, 'reference.safetensors'));
      const [rows, length] = reference.info('input_ids').shape as [number, number];
      const flat = reference.tensor('input_ids').numbers();
      const ids = Array.from({ length: rows }, (_, i) => flat.slice(i * length, (i + 1) * length));
      expect(furthest(logits(model, ids), reference.tensor('logits').numbers()), name).toBeLessThan(1e-4);
    }
  });

  it('leaves a quantised checkpoint as it is, whatever is asked for', async () => {
    const folder = join(golden, 'gpt2_nf4');
    using model = loadModelFolder(folder, { quantType: 'int4', dtype: 'bfloat16' });
    expect([model.decoder.quantType, model.decoder.dtype]).toEqual(['int4', 'bfloat16']);
    expect(() => loadModelFolder(folder, { quantType: 'int8' })).toThrow(/int4 already and cannot become int8/);
    using plain = loadModelFolder(folder);
    const { quantised, memory } = await inspectModel(folder, { device: 'cpu' });
    expect([quantised, memory.loadBytes]).toEqual(['int4', plain.decoder.bytes]);
  });

  it('takes adapters, and merging makes the base plain', () => {
    const ids = [[3, 17, 5, 41]];
    using model = loadModelFolder(join(golden, 'llama_int8'));
    addLora(model, { r: 2, targetModules: ['q_proj', 'down_proj'] });
    noGrad(() => {
      for (const [, parameter] of model.trainable()) scope(() => parameter.add_(parameter.clone().normal_(0, 0.1)));
    });
    const adapted = logits(model, ids);
    mergeAdapters(model);
    expect(model.decoder.quantType).toBe(null);
    expect(furthest(logits(model, ids), adapted)).toBeLessThan(1e-4);
    const folder = join(temporary, 'merged');
    saveModel(model, folder);
    expect(configOf(folder).quantization_config).toBeUndefined();
    using plain = loadModelFolder(folder);
    expect(furthest(logits(plain, ids), adapted)).toBeLessThan(1e-4);
  });
});

/** Reads a file's bytes without attune's own reader. */
function readFile(folder: string): Map<string, { dtype: string; shape: number[]; bytes: Buffer }> {
  const raw = readFileSync(join(folder, 'model.safetensors'));
  const size = Number(raw.readBigUInt64LE(0));
  const header = JSON.parse(raw.toString('utf8', 8, 8 + size)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const entries = Object.entries(header).filter(([name]) => name !== '__metadata__');
  return new Map(
    entries.map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [start, end],
        },
      ]) => [name, { dtype, shape, bytes: Buffer.from(raw.subarray(8 + size + start, 8 + size + end)) }],
    ),
  );
}

const floats = (bytes: Buffer) => Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));

/** The named matrix, row after row, straight from the definition of the layout. */
function standsFor(file: ReturnType<typeof readFile>, name: string): number[] {
  const part = (suffix: string) => (file.get(`${name}${suffix}`) as { bytes: Buffer }).bytes;
  const scb = file.get(name.replace(/weight$/, 'SCB'));
  if (scb !== undefined) {
    expect(file.get(name.replace(/weight$/, 'weight_format'))).toMatchObject({ dtype: 'U8', shape: [] });
    const { shape, bytes } = file.get(name) as { shape: number[]; bytes: Buffer };
    const scales = floats(scb.bytes);
    return Array.from(bytes, (_, i) => {
      const row = Math.floor(i / (shape[1] as number));
      return (bytes.readInt8(i) * (scales[row] as number)) / 127;
    });
  }
  const state = JSON.parse(part('.quant_state.bitsandbytes__nf4').toString());
  expect(state).toMatchObject({ quant_type: 'nf4', blocksize: 64, nested_blocksize: 256, nested_dtype: 'float32' });
  const map = floats(part('.quant_map'));
  const nestedMap = floats(part('.nested_quant_map'));
  const largest = floats(part('.nested_absmax'));
  const absmax = Array.from(part('.absmax'), (code, block) => {
    const scale = largest[Math.floor(block / 256)] as number;
    return (nestedMap[code] as number) * scale + state.nested_offset;
  });
  const packed = part('');
  return Array.from({ length: state.shape[0] * state.shape[1] }, (_, i) => {
    const byte = packed[Math.floor(i / 2)] as number;
    return (map[i % 2 === 0 ? byte >> 4 : byte & 15] as number) * (absmax[Math.floor(i / 64)] as number);
  });
}

describe('writing', () => {
  const cases = readdirSync(families).flatMap((family) => quantTypes.map((type) => [family, type] as const));
  it.each(cases)('%s in %s: an independent reader finds our weights, and so do we', (family, type) => {
    const folder = join(temporary, `${family}-${type}`);
    const ids = [
      [5, 9, 33, 12, 31],
      [7, 20],
    ];
    using model = loadModelFolder(join(families, family), { dtype: 'float32', quantType: type });
    saveModel(model, folder);
    const file = readFile(folder);
    for (const projection of model.decoder.projections())
      for (const [i, { name }] of projection.parts.entries()) {
        const found = standsFor(file, `${name}.weight`);
        expect(
          furthest(
            found,
            scope(() => projection.weightOf(i).numbers()),
          ),
          name,
        ).toBeLessThan(1e-6);
      }
    expect(configOf(folder).quantization_config).toMatchObject({
      quant_method: 'bitsandbytes',
      load_in_4bit: type === 'int4',
      load_in_8bit: type === 'int8',
      bnb_4bit_quant_type: 'nf4',
      bnb_4bit_use_double_quant: type === 'int4',
      llm_int8_skip_modules: null,
    });
    using again = loadModelFolder(folder);
    expect(logits(again, ids)).toEqual(logits(model, ids));
  });

  it('keeps the modules that a file left plain, and names them', () => {
    const source = join(golden, 'llama_int8');
    const changed = variant('mixed', source, (tensors) => {
      for (const module of ['self_attn.k_proj', 'mlp.down_proj']) plain(tensors, `model.layers.0.${module}`);
    });
    const { ids, logits: rows } = JSON.parse(readFileSync(join(source, 'reference.json'), 'utf8'));
    using model = loadModelFolder(changed);
    expect(furthest(logits(model, [ids]), rows.flat())).toBeLessThan(1e-4);
    const folder = join(temporary, 'mixed-again');
    saveModel(model, folder);
    // q and v are joined with k into one matrix, so they are dequantised too.
    const skipped = ['lm_head', ...['q', 'k', 'v'].map((part) => `self_attn.${part}_proj`), 'mlp.down_proj'];
    expect(configOf(folder).quantization_config.llm_int8_skip_modules).toEqual(
      skipped.map((name) => (name === 'lm_head' ? name : `model.layers.0.${name}`)),
    );
    using again = loadModelFolder(folder);
    expect(logits(again, [ids])).toEqual(logits(model, [ids]));
  });
});

/** A copy of a golden folder with changed tensors. */
function variant(name: string, source: string, change: (tensors: Map<string, Tensor>) => void): string {
  const folder = join(temporary, name);
  mkdirSync(folder, { recursive: true });
  cpSync(join(source, 'config.json'), join(folder, 'config.json'));
  using file = openSafetensors(join(source, 'model.safetensors'));
  const tensors = new Map(file.names.map((each) => [each, file.tensor(each).clone()]));
  change(tensors);
  writeSafetensors(join(folder, 'model.safetensors'), tensors);
  return folder;
}

/** Replaces an 8-bit module by the plain one that it stands for. */
function plain(tensors: Map<string, Tensor>, module: string): void {
  const scales = tensors.get(`${module}.SCB`) as Tensor;
  const weight = tensors.get(`${module}.weight`) as Tensor;
  tensors.set(`${module}.weight`, weight.to('float32').mul(scales.div(127).unsqueeze(1)));
  tensors.delete(`${module}.SCB`);
  tensors.delete(`${module}.weight_format`);
}

describe('files that lie are refused', () => {
  /** Also checks that what was read before the fault is freed. */
  const refuses = (folder: string, message: RegExp) => {
    const before = liveTensors();
    expect(() => loadModelFolder(folder)).toThrow(message);
    expect(liveTensors()).toBe(before);
  };
  const matrix = 'transformer.h.0.attn.c_attn.weight';
  const state = `${matrix}.quant_state.bitsandbytes__nf4`;
  const bytes = (text: string) => tensor(new TextEncoder().encode(text));
  const told = { quant_type: 'nf4', blocksize: 64, dtype: 'float32', shape: [60, 20] };
  const nested = { nested_blocksize: 256, nested_dtype: 'float32', nested_offset: 0.5 };
  const states = (change: object) => (all: Map<string, Tensor>) =>
    all.set(state, bytes(JSON.stringify({ ...told, ...nested, ...change })));
  const put = (name: string, value: () => Tensor) => (all: Map<string, Tensor>) => all.set(name, value());
  const drop = (name: string) => (all: Map<string, Tensor>) => all.delete(name);
  const floatsOf = (count: number, value: number) => tensor(new Float32Array(count).fill(value));
  it.each<[string, (all: Map<string, Tensor>) => void, RegExp]>([
    ['no absmax', drop(`${matrix}.absmax`), /there is no ".*absmax", which a quantised matrix needs/],
    ['no map', drop(`${matrix}.quant_map`), /there is no ".*quant_map"/],
    ['no nested maxima', drop(`${matrix}.nested_absmax`), /there is no ".*nested_absmax"/],
    ['no state', drop(state), /is uint8, but nothing beside it says how it is quantised/],
    ['a state that is no JSON', put(state, () => bytes('{"quant')), /quant_state.* is not JSON/],
    ['a state that is no object', put(state, () => bytes('[1]')), /is no JSON object/],
    ['a state of another shape', states({ shape: [20, 60] }), /says that the matrix is \[20,60\].*calls for \[60,20\]/],
    ['a state without a shape', states({ shape: 60 }), /gives no shape/],
    ['a state of another kind', states({ quant_type: 'fp4' }), /says that its quant_type is "fp4"/],
    ['an odd block', states({ blocksize: 63 }), /blocksize 63/],
    ['a block that the maxima do not fit', states({ blocksize: 128 }), /absmax" is uint8 \[19\], but 10 numbers/],
    ['another run', states({ nested_blocksize: 128 }), /nested_blocksize 128: only 256/],
    ['no offset', states({ nested_offset: null }), /gives no nested_offset/],
    ['too few codes', put(matrix, () => tensor(new Uint8Array(599), { shape: [599, 1] })), /holds 599 bytes.*for 600/],
    ['maxima of another dtype', put(`${matrix}.absmax`, () => floatsOf(19, 1)), /absmax" is float32 \[19\]/],
    ['maxima that are no numbers', put(`${matrix}.nested_absmax`, () => floatsOf(1, Number.NaN)), /not finite/],
    ['levels beyond 1', put(`${matrix}.quant_map`, () => floatsOf(16, 2)), /levels beyond 1/],
    [
      'another map of the maxima',
      put(`${matrix}.nested_quant_map`, () => floatsOf(256, 0)),
      /not the dynamic 8-bit map/,
    ],
    ['a tensor more', put('transformer.h.0.attn.c_attn.SCB', () => floatsOf(60, 1)), /has no place for.*SCB/],
  ])('4 bits: %s', (name, change, message) => {
    const folder = scope(() => variant(`bad-${name.replaceAll(' ', '-')}`, join(golden, 'gpt2_nf4'), change));
    refuses(folder, message);
  });

  const module = 'model.layers.0.mlp.up_proj';
  it.each<[string, (all: Map<string, Tensor>) => void, RegExp]>([
    ['rows of another number', put(`${module}.SCB`, () => floatsOf(35, 1)), /SCB" is float32 \[35\], but 36/],
    ['another order of the codes', put(`${module}.weight_format`, () => tensor(Uint8Array.of(2))), /2 \(col_turing\)/],
    ['codes of another dtype', put(`${module}.weight`, () => floatsOf(720, 1)), /weight" is float32 \[720\]/],
    ['turned codes', put(`${module}.weight`, () => tensor(new Int8Array(720), { shape: [20, 36] })), /is \[20,36\]/],
    [
      '4 bits in a file of 8',
      put(`${module}.weight.quant_state.bitsandbytes__nf4`, () => bytes('{}')),
      /stored in 4 bits/,
    ],
  ])('8 bits: %s', (name, change, message) => {
    const folder = scope(() => variant(`bad8-${name.replaceAll(' ', '-')}`, join(golden, 'llama_int8'), change));
    refuses(folder, message);
  });

  it('a truncated file', () => {
    const folder = scope(() => variant('truncated', join(golden, 'gpt2_nf4'), () => {}));
    const path = join(folder, 'model.safetensors');
    writeFileSync(path, readFileSync(path).subarray(0, -100));
    refuses(folder, /beyond the end|truncated|ends/);
  });

  it.each([
    [{ quant_method: 'gptq', bits: 4 }, /quantised by gptq/],
    [{ quant_method: 'awq', bits: 4 }, /quantised by awq/],
    [{ bits: 4 }, /quantised by an unnamed method/],
    [{ quant_method: 'bitsandbytes', load_in_8bit: true }, /stored in 4 bits, but quantization_config.*says int8/],
    [undefined, /stored in 4 bits, but quantization_config in config.json is missing/],
  ])('a config that says %j', (said, message) => {
    const folder = scope(() => variant('configured', join(golden, 'gpt2_nf4'), () => {}));
    const { quantization_config: _, ...rest } = configOf(folder);
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...rest, quantization_config: said }));
    refuses(folder, message);
  });
});
