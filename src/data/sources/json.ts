/**
 * JSON files: a list of rows, an object with the list inside (`{"data": [...]}`), or row objects one after another.
 * A list is streamed, so its size does not matter; a wrapping object is read whole.
 */
import { constants } from 'node:buffer';
import { UserError } from '../../errors.ts';
import { fileBytes } from './bytes.ts';
import { type BadRow, isRow, kindOf, type LocatedRow, parseRow } from './row.ts';

const wrappers = ['data', 'rows', 'examples', 'instances', 'train'];

export async function* readJson(path: string, bad: BadRow): AsyncGenerator<LocatedRow> {
  let number = 0;
  for await (const { bytes, line, inList } of values(fileBytes(path), path)) {
    number++;
    const located = parseRow(bytes, path, line, bad);
    if (located === undefined) continue;
    const wrapper = inList || number > 1 ? undefined : wrappers.find((name) => Array.isArray(located.row[name]));
    if (wrapper === undefined) {
      yield located;
      continue;
    }
    for (const [index, row] of (located.row[wrapper] as unknown[]).entries()) {
      if (isRow(row)) yield { row, file: path, line: index + 1 };
      else bad(path, index + 1, `"${wrapper}" must hold JSON objects, this is a ${kindOf(row)}`);
    }
  }
}

interface Value {
  bytes: Buffer;
  line: number;
  inList: boolean;
}

/** The values of the outer list, or the top-level values if there is no outer list. */
async function* values(chunks: AsyncIterable<Buffer>, path: string): AsyncGenerator<Value> {
  let line = 1;
  let startLine = 1;
  let depth = 0; // of brackets inside the current value
  let inString = false;
  let escaped = false;
  let scalar = false; // inside a number or a bare word
  let inList = false;
  let listClosed = false;
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let start = -1;
  let first = true;

  for await (const chunk of chunks) {
    if (start >= 0) start = 0;
    for (let i = first && chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf ? 3 : 0; i < chunk.length; i++) {
      const byte = chunk[i] as number;
      if (byte === 0x0a) line++;
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === 0x5c) escaped = true;
        else if (byte === 0x22) inString = false;
        if (inString || depth > 0) continue;
        yield take(chunk, i + 1);
        continue;
      }
      const space = byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
      if (scalar && (space || byte === 0x2c || byte === 0x5d)) {
        scalar = false;
        yield take(chunk, i);
      }
      if (space || scalar) continue;
      if (start < 0) {
        if (byte === 0x2c) continue;
        if (byte === 0x5b && !inList && !listClosed) {
          inList = true;
          continue;
        }
        if (byte === 0x5d && inList) {
          inList = false;
          listClosed = true;
          continue;
        }
        if (byte === 0x5d || byte === 0x7d)
          throw new UserError(`${path}:${line}: a closing bracket without its opening one.`);
        start = i;
        startLine = line;
      }
      if (byte === 0x22) inString = true;
      else if (byte === 0x7b || byte === 0x5b) depth++;
      else if (byte === 0x7d || byte === 0x5d) {
        depth--;
        if (depth === 0) yield take(chunk, i + 1);
      } else if (depth === 0) scalar = true;
    }
    if (start >= 0) {
      pending.push(chunk.subarray(start));
      pendingBytes += chunk.length - start;
      if (pendingBytes > constants.MAX_STRING_LENGTH) throw tooLong(path, startLine);
    }
    first = false;
  }
  if (scalar) yield take(Buffer.alloc(0), 0);
  if (start >= 0 || inList) {
    throw new UserError(`${path}:${startLine}: the file ends in the middle of a value (a broken download?).`);
  }

  function take(chunk: Buffer, end: number): Value {
    const piece = chunk.subarray(Math.max(start, 0), end);
    const bytes = pending.length === 0 ? piece : Buffer.concat([...pending, piece]);
    pending = [];
    pendingBytes = 0;
    start = -1;
    return { bytes, line: startLine, inList };
  }
}

const tooLong = (path: string, line: number) =>
  new UserError(
    `${path}:${line}: a value of more than ${constants.MAX_STRING_LENGTH >> 20} MiB, which would be read whole. Write the rows as a list, or one a line (.jsonl).`,
  );

/** Whether a `.json` file is metadata (`dataset_info.json`), which holds no rows. */
export function isMetadataName(name: string): boolean {
  return /^(dataset_infos?|state|config|package|metadata|.*_config|croissant)\.json$/i.test(name);
}
