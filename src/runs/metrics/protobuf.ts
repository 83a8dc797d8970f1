/** Protobuf's wire format, encoded by hand: the few field types that event files need. */
function rawVarint(value: number): Buffer {
  const parts: number[] = [];
  let rest = value;
  do {
    parts.push((rest % 128) | (rest >= 128 ? 0x80 : 0));
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return Buffer.from(parts);
}

const key = (id: number, wire: number) => rawVarint(id * 8 + wire);
export const varint = (id: number, value: number) => Buffer.concat([key(id, 0), rawVarint(value)]);
export const bytes = (id: number, body: Buffer) => Buffer.concat([key(id, 2), rawVarint(body.length), body]);
export const text = (id: number, value: string) => bytes(id, Buffer.from(value));
export const message = (id: number, fields: Buffer[]) => bytes(id, Buffer.concat(fields));
export const doubles = (values: number[]) => Buffer.from(Float64Array.from(values).buffer);
export const float64 = (id: number, value: number) => Buffer.concat([key(id, 1), doubles([value])]);
export const float32 = (id: number, value: number) =>
  Buffer.concat([key(id, 5), Buffer.from(Float32Array.of(value).buffer)]);
