/**
 * Quantised weights in bitsandbytes' safetensors layout, and their description in transformers' config.json. The tensors of a
 * matrix `x.weight`:
 *
 *     4 bits  x.weight (two codes a byte, [n/2, 1]), x.weight.absmax, x.weight.quant_map, x.weight.quant_state.bitsandbytes__nf4
 *             (or __fp4: JSON as bytes), and with double quantisation x.weight.nested_absmax, x.weight.nested_quant_map
 *     8 bits  x.weight (int8), x.SCB (max|w| of each row), x.weight_format (0: row by row)
 *
 * All matrices are [outputs, inputs]; transformers transposes those of GPT-2's Conv1D before it quantises them.
 */
import { UserError } from '../../errors.ts';
import type { QuantType } from '../../nn/index.ts';
import { QUANT_RUN, type QuantisedPart } from '../../nn/quantised.ts';
import { aten, type DType, dtypeBytes, type Tensor, tensor } from '../../tensor/index.ts';

/** A checkpoint's tensors by name. Reading one records that it was read. */
export interface StoredTensors {
  has(name: string): boolean;
  tensor(name: string): Tensor;
}

const KINDS = ['nf4', 'fp4'] as const;
type Kind = (typeof KINDS)[number];
const stateName = (weight: string, kind: Kind) => `${weight}.quant_state.bitsandbytes__${kind}`;
const moduleOf = (weight: string) => weight.slice(0, weight.lastIndexOf('.'));

/** Whether a matrix is stored quantised, and how. */
export function storedQuantType(stored: StoredTensors, weight: string): QuantType | null {
  if (KINDS.some((kind) => stored.has(stateName(weight, kind)))) return 'int4';
  return stored.has(`${moduleOf(weight)}.SCB`) ? 'int8' : null;
}

/** Reads a matrix for which `storedQuantType` is not null. Its tensors are views of the file and must not be written to. */
export function readQuantised(
  stored: StoredTensors,
  weight: string,
  [outputs, inputs]: readonly [number, number],
  folder: string,
): QuantisedPart {
  const read = new Reading(stored, folder);
  const kind = KINDS.find((each) => stored.has(stateName(weight, each)));
  if (kind === undefined) return readRows(read, weight, outputs, inputs);
  const state = read.state(stateName(weight, kind));
  if (state.quantType !== kind) read.fail(stateName(weight, kind), `says that its quant_type is "${state.quantType}"`);
  if (state.shape.join() !== [outputs, inputs].join())
    read.fail(
      stateName(weight, kind),
      `says that the matrix is [${state.shape}], but the config calls for [${outputs},${inputs}]`,
    );
  const count = outputs * inputs;
  const blocks = Math.ceil(count / state.block);
  const { offset } = state;
  const nested =
    offset === null ? null : { largest: read.floats(`${weight}.nested_absmax`, Math.ceil(blocks / QUANT_RUN)), offset };
  if (nested !== null) read.checkMap(`${weight}.nested_quant_map`);
  return {
    outputs,
    inputs,
    block: state.block,
    nested,
    codes: read.bytes(weight, Math.ceil(count / 2)),
    scales:
      nested === null ? read.floats(`${weight}.absmax`, blocks) : read.expect(`${weight}.absmax`, 'uint8', blocks),
    levels: read.levels(`${weight}.quant_map`),
  };
}

function readRows(read: Reading, weight: string, outputs: number, inputs: number): QuantisedPart {
  const module = moduleOf(weight);
  const codes = read.expect(weight, 'int8', outputs * inputs);
  if (codes.shape.join() !== [outputs, inputs].join())
    read.fail(weight, `is [${codes.shape}], but the config calls for [${outputs},${inputs}]`);
  if (read.stored.has(`${module}.weight_format`)) {
    const format = read.expect(`${module}.weight_format`, 'uint8', 1).item();
    const names = ['row', 'col32', 'col_turing', 'col_ampere'];
    if (format !== 0)
      read.fail(
        `${module}.weight_format`,
        `is ${format} (${names[format] ?? 'unknown'}): only row by row (0) is read. Load it with bitsandbytes and save it again`,
      );
  }
  const scales = read.floats(`${module}.SCB`, outputs);
  return { outputs, inputs, codes, scales, nested: null, levels: null, block: 0 };
}

interface QuantState {
  quantType: string;
  shape: number[];
  block: number;
  offset: number | null;
}

/** The tensors of one quantised matrix. Dtype, shape and values are checked, so that a damaged file is refused. */
class Reading {
  readonly stored: StoredTensors;
  readonly #folder: string;
  constructor(stored: StoredTensors, folder: string) {
    this.stored = stored;
    this.#folder = folder;
  }
  fail(name: string, fault: string): never {
    throw new UserError(`${this.#folder}: "${name}" ${fault}.`);
  }
  #tensor(name: string): Tensor {
    if (!this.stored.has(name))
      throw new UserError(
        `${this.#folder}: there is no "${name}", which a quantised matrix needs: the file is not whole.`,
      );
    return this.stored.tensor(name);
  }
  expect(name: string, dtype: DType, count: number): Tensor {
    const found = this.#tensor(name);
    if (found.dtype !== dtype || found.numel !== count)
      this.fail(name, `is ${found.dtype} [${found.shape}], but ${count} numbers of ${dtype} belong there`);
    return found;
  }
  /** Packed codes as bytes. With `bnb_4bit_quant_storage` the file may store these bytes under another dtype. */
  bytes(name: string, count: number): Tensor {
    const found = this.#tensor(name);
    const bytes = found.numel * dtypeBytes[found.dtype];
    if (bytes !== count) this.fail(name, `holds ${bytes} bytes of codes, but its quant_state calls for ${count}`);
    return found.dtype === 'uint8' ? found.reshape(-1) : aten('view.dtype', found.reshape(-1), 'uint8');
  }
  floats(name: string, count: number): Tensor {
    const found = this.expect(name, 'float32', count);
    // Only finite numbers give 0 when multiplied by 0.
    if (count > 0 && found.mul(0).sum().item() !== 0) this.fail(name, 'holds numbers that are not finite');
    return found;
  }
  levels(name: string): Tensor {
    const found = this.floats(name, 16);
    if (found.abs().max().item() > 1) this.fail(name, 'holds levels beyond 1: it is no map of 4-bit codes');
    return found;
  }
  checkMap(name: string): void {
    const found = this.floats(name, 256).numbers();
    if (found.some((value, i) => Math.abs(value - (dynamicMap[i] as number)) > 1e-5))
      this.fail(name, 'is not the dynamic 8-bit map that attune knows');
  }
  state(name: string): QuantState {
    const bytes = this.#tensor(name);
    if (bytes.dtype !== 'uint8') this.fail(name, `is ${bytes.dtype}, but JSON as uint8 belongs there`);
    let json: unknown;
    try {
      json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes.numbers())));
    } catch {
      this.fail(name, 'is not JSON');
    }
    if (!isRecord(json)) this.fail(name, 'is no JSON object');
    const { quant_type: quantType, blocksize: block, shape, nested_blocksize: run, nested_offset: offset } = json;
    if (typeof quantType !== 'string') this.fail(name, 'names no quant_type');
    if (!Array.isArray(shape) || shape.length !== 2) this.fail(name, 'gives no shape of a matrix');
    if (typeof block !== 'number' || !Number.isInteger(Math.log2(block)) || block < 16 || block > 4096)
      this.fail(name, `has blocksize ${JSON.stringify(block)}: a power of two from 16 to 4096 belongs there`);
    if (run === undefined && offset === undefined) return { quantType, shape, block, offset: null };
    if (run !== QUANT_RUN) this.fail(name, `has nested_blocksize ${JSON.stringify(run)}: only ${QUANT_RUN} is read`);
    if (typeof offset !== 'number' || !Number.isFinite(offset)) this.fail(name, 'gives no nested_offset');
    return { quantType, shape, block, offset };
  }
}

/**
 * The 256 levels of the block maxima (bitsandbytes' dynamic map): 0, 1, and for each of seven decades e, 2^e numbers of either
 * sign at the middles of equal parts of [0.1, 1], scaled to that decade.
 */
const dynamicMap: readonly number[] = Array.from({ length: 7 }, (_, e) =>
  Array.from({ length: 2 ** e }, (_, i) => 10 ** (e - 6) * (0.1 + (0.9 * (i + 0.5)) / 2 ** e)),
)
  .flat()
  .flatMap((value) => [value, -value])
  .concat(0, 1)
  .sort((a, b) => a - b);

/** The tensors that a file stores for a quantised matrix. `dtype` is what bitsandbytes dequantises to. */
export function* quantisedTensors(weight: string, part: QuantisedPart, dtype: DType): Iterable<[string, Tensor]> {
  const { codes, scales, nested, levels, block, outputs, inputs } = part;
  if (levels === null) {
    yield [weight, codes];
    yield [`${moduleOf(weight)}.SCB`, scales];
    yield [`${moduleOf(weight)}.weight_format`, tensor(Uint8Array.of(0), { shape: [] })];
    return;
  }
  const kind = kindOf(levels);
  yield [weight, codes.view(codes.numel, 1)];
  yield [`${weight}.absmax`, scales];
  yield [`${weight}.quant_map`, levels];
  const state = { quant_type: kind, blocksize: block, dtype, shape: [outputs, inputs] };
  const doubled = { nested_blocksize: QUANT_RUN, nested_dtype: 'float32', nested_offset: nested?.offset };
  if (nested !== null) {
    yield [`${weight}.nested_absmax`, nested.largest];
    yield [`${weight}.nested_quant_map`, tensor(Float32Array.from(dynamicMap))];
  }
  const json = JSON.stringify(nested === null ? state : { ...state, ...doubled });
  yield [stateName(weight, kind), tensor(new TextEncoder().encode(json))];
}

/** Tells NF4 from FP4: NF4's levels ascend from −1; FP4's begin with 0, because its codes are a sign and a float. */
const kindOf = (levels: Tensor): Kind => (levels.select(0, 0).item() === 0 ? 'fp4' : 'nf4');

/** transformers' `quantization_config` for tensors from `quantisedTensors`. `skipped` lists modules that are not quantised. */
export function quantisationConfig(
  part: QuantisedPart,
  dtype: DType,
  skipped: readonly string[],
): Record<string, unknown> {
  const four = part.levels !== null;
  return {
    _load_in_4bit: four,
    _load_in_8bit: !four,
    bnb_4bit_compute_dtype: dtype,
    bnb_4bit_quant_storage: 'uint8',
    bnb_4bit_quant_type: part.levels === null ? 'nf4' : kindOf(part.levels),
    bnb_4bit_use_double_quant: part.nested !== null,
    llm_int8_enable_fp32_cpu_offload: false,
    llm_int8_has_fp16_weight: false,
    llm_int8_skip_modules: skipped.length === 0 ? null : skipped,
    llm_int8_threshold: 6.0,
    load_in_4bit: four,
    load_in_8bit: !four,
    quant_method: 'bitsandbytes',
  };
}

/** How the weights are quantised according to config.json. Methods other than bitsandbytes have been refused by then. */
export function configQuantType(config: Record<string, unknown>): QuantType | null {
  const said = config.quantization_config;
  if (!isRecord(said)) return null;
  if (said.load_in_4bit === true) return 'int4';
  return said.load_in_8bit === true ? 'int8' : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
