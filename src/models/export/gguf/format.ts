/**
 * GGUF, the file format of llama.cpp (version 3): a header of typed key-value pairs, a table of tensors, and their data.
 * Everything is little-endian; strings are UTF-8 behind a 64-bit length; shapes are written fastest dimension first.
 *
 *     magic "GGUF" · u32 version · u64 tensors · u64 pairs
 *     pairs:   string key · u32 type · value           (an array: u32 element type · u64 count · values)
 *     tensors: string name · u32 rank · u64 shape… · u32 type · u64 offset
 *     padding to the alignment, then each tensor at its offset, padded likewise
 */

export const MAGIC = 0x46554747; // "GGUF"
export const VERSION = 3;
export const ALIGNMENT = 32;

/** Types of a metadata value, by the number that the file holds. */
export const valueTypes = [
  ...['uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'float32', 'bool', 'string', 'array'],
  ...['uint64', 'int64', 'float64'],
] as const;
export type ScalarType = 'uint32' | 'int32' | 'float32' | 'bool' | 'string' | 'uint64';

/** A value with the type it is written in. */
export type MetadataValue =
  | { type: 'uint32' | 'int32' | 'float32' | 'uint64'; value: number }
  | { type: 'bool'; value: boolean }
  | { type: 'string'; value: string }
  | { type: 'array'; of: ScalarType; value: readonly (string | number | boolean)[] };

export type Metadata = Map<string, MetadataValue>;

export const uint32 = (value: number): MetadataValue => ({ type: 'uint32', value });
export const float32 = (value: number): MetadataValue => ({ type: 'float32', value });
export const bool = (value: boolean): MetadataValue => ({ type: 'bool', value });
export const string = (value: string): MetadataValue => ({ type: 'string', value });
export const array = (of: ScalarType, value: readonly (string | number | boolean)[]): MetadataValue => ({
  type: 'array',
  of,
  value,
});

/** The types of GGUF tensors that the export writes. */
export const tensorTypes = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0'] as const;
/** How the values of a GGUF tensor are encoded. */
export type TensorType = (typeof tensorTypes)[number];

interface TensorLayout {
  /** Its number in the table of tensors. */
  code: number;
  /** The value of `general.file_type` if most matrices are of this type. */
  fileType: number;
  /** Values that are encoded together, and the bytes they take. */
  blockValues: number;
  blockBytes: number;
}

export const layouts: Record<TensorType, TensorLayout> = {
  f32: { code: 0, fileType: 0, blockValues: 1, blockBytes: 4 },
  f16: { code: 1, fileType: 1, blockValues: 1, blockBytes: 2 },
  bf16: { code: 30, fileType: 32, blockValues: 1, blockBytes: 2 },
  q8_0: { code: 8, fileType: 7, blockValues: 32, blockBytes: 34 },
  q4_0: { code: 2, fileType: 2, blockValues: 32, blockBytes: 18 },
};

export interface TensorInfo {
  name: string;
  /** In torch's order: rows before columns. */
  shape: readonly number[];
  type: TensorType;
}

export function tensorBytes({ shape, type }: TensorInfo): number {
  const { blockValues, blockBytes } = layouts[type];
  return (shape.reduce((a, b) => a * b, 1) / blockValues) * blockBytes;
}

export const aligned = (bytes: number, alignment = ALIGNMENT) => Math.ceil(bytes / alignment) * alignment;
