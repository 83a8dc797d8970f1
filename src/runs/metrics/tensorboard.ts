/**
 * TensorBoard event files without TensorFlow: scalars, text, histograms and a run's settings.
 *
 *     const events = new TensorBoardWriter('logs/rm/2026-11-15_01-50-00');
 *     events.scalars(1, { 'train/loss': 0.69 });
 *     events.close();
 *
 * A record is length (uint64), masked CRC32C of the length, payload, masked CRC32C of the payload. The payload is an
 * `Event` message, whose few fields are encoded here by hand (tensorflow/core/util/event.proto, summary.proto).
 */
import { closeSync, existsSync, fdatasyncSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { type SessionEnd, sessionEnd, sessionStart } from './hparams.ts';
import type { MetricSink } from './metrics.ts';
import { bytes, doubles, float32, float64, message, text, varint } from './protobuf.ts';

const filePrefix = 'events.out.tfevents.';
let filesMade = 0;

export class TensorBoardWriter {
  readonly path: string;
  #file: number | undefined;

  /** `resumedAt`: the step that a resumed run continues from. TensorBoard drops later steps of older files. */
  constructor(folder: string, options: { resumedAt?: number } = {}) {
    makeFolder(folder);
    const seconds = Math.floor(Date.now() / 1000);
    this.path = join(
      folder,
      `${filePrefix}${String(seconds).padStart(10, '0')}.${hostname()}.${process.pid}.${filesMade++}`,
    );
    this.#file = openSync(this.path, 'ax');
    this.#write([text(3, 'brain.Event:2')]);
    if (options.resumedAt !== undefined) {
      const sessionStart = message(7, [varint(1, 1)]);
      this.#write([varint(2, options.resumedAt + 1), sessionStart]);
    }
  }

  scalars(step: number, values: Record<string, number>, timeMs = Date.now()): void {
    const entries = Object.entries(values).map(([tag, value]) => message(1, [text(1, tag), float32(2, value)]));
    if (entries.length > 0) this.#write([varint(2, step), message(5, entries)], timeMs);
  }

  text(step: number, tag: string, body: string, timeMs = Date.now()): void {
    const tensor = message(8, [varint(1, 7), message(2, [message(2, [varint(1, 1)])]), bytes(8, Buffer.from(body))]);
    const metadata = message(9, [message(1, [text(1, 'text')])]);
    this.#write([varint(2, step), message(5, [message(1, [text(1, tag), tensor, metadata])])], timeMs);
  }

  histogram(step: number, tag: string, values: ArrayLike<number>, timeMs = Date.now()): void {
    const finite = Array.from(values).filter(Number.isFinite);
    if (finite.length > 0)
      this.#write([varint(2, step), message(5, [message(1, [text(1, tag), histogramProto(finite)])])], timeMs);
  }

  /** The settings of a run, for the HPARAMS page. */
  settings(values: Record<string, unknown>, name: string, timeMs = Date.now()): void {
    this.#write([varint(2, 0), message(5, [sessionStart(values, name, timeMs)])], timeMs);
  }

  /** How the run with these settings ended. */
  ended(status: SessionEnd, timeMs = Date.now()): void {
    this.#write([varint(2, 0), message(5, [sessionEnd(status, timeMs)])], timeMs);
  }

  flush(): void {
    if (this.#file !== undefined) fdatasyncSync(this.#file);
  }

  close(): void {
    if (this.#file === undefined) return;
    closeSync(this.#file);
    this.#file = undefined;
  }

  #write(fields: Buffer[], timeMs = Date.now()): void {
    if (this.#file === undefined) return;
    writeSync(this.#file, record(Buffer.concat([float64(1, timeMs / 1000), ...fields])));
  }
}

/**
 * A run's event files: metrics by step and, in `by_examples/`, the same metrics by number of examples. Those need a
 * file of their own, because TensorBoard drops the steps after a resumption by number, whatever the tag. If a deleted
 * run left event files in the folder, all their steps are dropped.
 */
export class TensorBoardMetrics extends TensorBoardWriter implements MetricSink {
  readonly #makeTwins: () => TensorBoardWriter;
  #twins: TensorBoardWriter | undefined;

  constructor(folder: string, options: { resumedAt?: number; examplesAt?: number } = {}) {
    const isNew = options.resumedAt === undefined;
    const from = (place: string, after?: number) => (isNew && hasEvents(place) ? beforeAll : after);
    super(folder, { resumedAt: from(folder, options.resumedAt) });
    const beside = join(folder, 'by_examples');
    this.#makeTwins = () => new TensorBoardWriter(beside, { resumedAt: from(beside, options.examplesAt) });
  }

  byExamples(examples: number, values: Record<string, number>, timeMs: number): void {
    this.#twins ??= this.#makeTwins();
    const twins = Object.entries(values).map(([name, value]) => [`${name}_by_examples`, value] as const);
    this.#twins.scalars(examples, Object.fromEntries(twins), timeMs);
  }

  override flush(): void {
    super.flush();
    this.#twins?.flush();
  }

  override close(): void {
    super.close();
    this.#twins?.close();
  }
}

/** Drops all steps of older files. */
const beforeAll = -1;

const hasEvents = (folder: string) =>
  existsSync(folder) && readdirSync(folder).some((name) => name.startsWith(filePrefix));

/** Removes the event files of one process. Another run of the same name may have its own beside them. */
export function removeEvents(folder: string, writer: { host: string; pid: number }): void {
  for (const place of [folder, join(folder, 'by_examples')]) {
    if (!existsSync(place)) continue;
    for (const name of readdirSync(place))
      if (name.startsWith(filePrefix) && name.includes(`.${writer.host}.${writer.pid}.`)) rmSync(join(place, name));
  }
}

const bucketCount = 30;

/** HistogramProto: min, max, num, sum, sum of squares, right edges, counts. */
function histogramProto(values: number[]): Buffer {
  const min = values.reduce((a, b) => Math.min(a, b));
  const max = values.reduce((a, b) => Math.max(a, b));
  const width = (max - min) / bucketCount || Math.max(Math.abs(min), 1) * 1e-6;
  const counts = new Array<number>(bucketCount).fill(0);
  let sum = 0;
  let squares = 0;
  for (const value of values) {
    const bucket = Math.min(bucketCount - 1, Math.floor((value - min) / width));
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    sum += value;
    squares += value * value;
  }
  // The first edge has a count of 0. Without it readers would extend the first bucket to -infinity.
  const edges = [min, ...counts.map((_, i) => min + width * (i + 1))];
  return message(5, [
    float64(1, min),
    float64(2, max),
    float64(3, values.length),
    float64(4, sum),
    float64(5, squares),
    bytes(6, doubles(edges)),
    bytes(7, doubles([0, ...counts])),
  ]);
}

/** A framed record with its checksums. */
export function record(payload: Buffer): Buffer {
  const framed = Buffer.alloc(payload.length + 16);
  framed.writeBigUInt64LE(BigInt(payload.length), 0);
  framed.writeUInt32LE(maskedCrc(framed.subarray(0, 8)), 8);
  payload.copy(framed, 12);
  framed.writeUInt32LE(maskedCrc(payload), 12 + payload.length);
  return framed;
}

const crcTable = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

/** CRC-32C (Castagnoli). */
export function crc32c(data: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of data) crc = (crcTable[(crc ^ byte) & 0xff] ?? 0) ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** TFRecord masks its checksums, so that records nested in a record are not mistaken for one. */
function maskedCrc(data: Uint8Array): number {
  const crc = crc32c(data);
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}
