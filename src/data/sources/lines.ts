/** Splits bytes into records, each with the line it starts on. */
import { isUtf8 } from 'node:buffer';
import { UserError } from '../../errors.ts';

const newline = 0x0a;
const quote = 0x22;

/**
 * Most bytes of a row. A packed file of some megabytes can hold a line of gigabytes, which is too long for a string.
 */
const longestRow = 1 << 28;

const endlessRow = (file: string, line: number) =>
  new UserError(
    `${file}:${line}: a row of more than ${longestRow >> 20} MiB. No row of text is so long: the file is of another kind, or damaged.`,
  );

export interface TextRecord {
  bytes: Buffer;
  line: number;
}

/**
 * Lines. With a field `separator`, a line end inside double quotes does not end the record (RFC 4180). Quotes count
 * only at the start of a field: `5" disk` has none.
 */
export async function* records(
  chunks: AsyncIterable<Buffer>,
  file: string,
  separator?: string,
): AsyncGenerator<TextRecord> {
  const between = separator?.charCodeAt(0);
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let line = 1;
  let startLine = 1;
  let inQuotes = false;
  let first = true;
  /**
   * The byte before this chunk, and the place in this chunk after which a quote was closed: a second quote there
   * reopens it.
   */
  let before = newline;
  let closed = -1;
  for await (let chunk of chunks) {
    if (first) {
      if (chunk.subarray(0, 3).equals(byteOrderMark)) chunk = chunk.subarray(3);
      first = false;
    }
    let start = 0;
    let from = 0;
    let nextQuote = between === undefined ? -1 : chunk.indexOf(quote);
    while (true) {
      const end = chunk.indexOf(newline, from);
      while (nextQuote >= 0 && (end < 0 || nextQuote < end)) {
        const previous = nextQuote === 0 ? before : (chunk[nextQuote - 1] as number);
        if (inQuotes) {
          inQuotes = false;
          closed = nextQuote + 1;
        } else inQuotes = closed === nextQuote || previous === newline || previous === between;
        nextQuote = chunk.indexOf(quote, nextQuote + 1);
      }
      if (end < 0) break;
      line++;
      from = end + 1;
      if (inQuotes) continue;
      const piece = chunk.subarray(start, end);
      yield { bytes: pending.length === 0 ? piece : Buffer.concat([...pending, piece]), line: startLine };
      pending = [];
      pendingBytes = 0;
      start = from;
      startLine = line;
    }
    if (start < chunk.length) pending.push(chunk.subarray(start));
    pendingBytes += chunk.length - start;
    if (pendingBytes > longestRow) throw endlessRow(file, startLine);
    if (chunk.length > 0) before = chunk[chunk.length - 1] as number;
    closed -= chunk.length;
  }
  if (pending.length > 0) yield { bytes: Buffer.concat(pending), line: startLine };
}

/** A line of text with its number. */
export interface TextLine {
  text: string;
  line: number;
}

/**
 * Lines that end with
 *  or \r
 *  only. JSON text may hold U+2028, at which node:readline would split. `file` is named in the error if a line is not
 * UTF-8 text: its bytes would become other characters.
 */
export async function* textLines(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<TextLine> {
  for await (const { bytes, line } of records(chunks, file)) {
    if (!isUtf8(bytes))
      throw new UserError(`${file}:${line} is not valid UTF-8: it is no text, or text in another encoding.`);
    yield { text: bytes.toString('utf8').replace(/\r$/, ''), line };
  }
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);
