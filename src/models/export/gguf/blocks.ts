/**
 * llama.cpp's two simplest quantised encodings, in blocks of 32 values of a row.
 *
 * q8_0: an f16 scale d = max|x| / 127, then 32 signed bytes round(x / d): 34 bytes.
 * q4_0: an f16 scale d = m / −8, where m is the value of largest magnitude, with its sign; then 16 bytes. The code of x is
 * min(15, ⌊x / d + 8.5⌋) and stands for d·(code − 8). Value i is in the lower half of byte i, value i + 16 in the upper: 18 bytes.
 *
 * The arithmetic is in f32 (Math.fround), so that the bytes are those of llama.cpp's own encoder.
 */
import { layouts } from './format.ts';

export const BLOCK = 32;
type BlockType = 'q8_0' | 'q4_0';

const f32 = Math.fround;

/** Encodes values in blocks; `values.length` must be a multiple of 32. */
export function encodeBlocks(values: Float32Array, type: BlockType): Uint8Array {
  const { blockBytes } = layouts[type];
  const out = new Uint8Array((values.length / BLOCK) * blockBytes);
  const view = new DataView(out.buffer);
  const encode = type === 'q8_0' ? encodeQ8 : encodeQ4;
  for (let from = 0, to = 0; from < values.length; from += BLOCK, to += blockBytes) encode(values, from, view, to);
  return out;
}

export function decodeBlocks(bytes: Uint8Array, type: BlockType): Float32Array {
  const { blockBytes } = layouts[type];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const out = new Float32Array((bytes.length / blockBytes) * BLOCK);
  for (let from = 0, to = 0; from < bytes.length; from += blockBytes, to += BLOCK) {
    const scale = view.getFloat16(from, true);
    for (let i = 0; i < BLOCK; i++) {
      const byte = from + 2 + (type === 'q8_0' ? i : i % 16);
      const code = type === 'q8_0' ? view.getInt8(byte) : ((view.getUint8(byte) >> (i < 16 ? 0 : 4)) & 15) - 8;
      out[to + i] = scale * code;
    }
  }
  return out;
}

function encodeQ8(values: Float32Array, from: number, out: DataView, to: number): void {
  let peak = 0;
  for (let i = 0; i < BLOCK; i++) peak = Math.max(peak, Math.abs(values[from + i] as number));
  const scale = f32(peak / 127);
  const inverse = scale > 0 ? f32(1 / scale) : 0;
  out.setFloat16(to, scale, true);
  for (let i = 0; i < BLOCK; i++) {
    const x = f32((values[from + i] as number) * inverse);
    // round half away from zero, as C's roundf does
    out.setInt8(to + 2 + i, Math.sign(x) * Math.floor(Math.abs(x) + 0.5));
  }
}

function encodeQ4(values: Float32Array, from: number, out: DataView, to: number): void {
  let extreme = 0;
  for (let i = 0; i < BLOCK; i++) {
    const x = values[from + i] as number;
    if (Math.abs(x) > Math.abs(extreme)) extreme = x;
  }
  const scale = f32(extreme / -8);
  const inverse = scale === 0 ? 0 : f32(1 / scale);
  const code = (i: number) => Math.min(15, Math.trunc(f32(f32((values[from + i] as number) * inverse) + 8.5)));
  out.setFloat16(to, scale, true);
  for (let i = 0; i < 16; i++) out.setUint8(to + 2 + i, code(i) | (code(i + 16) << 4));
}
