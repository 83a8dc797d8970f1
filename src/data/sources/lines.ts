/** Splits bytes into records, each with the line it starts on. */
import { isUtf8 } from 'node:buffer';
import { UserError } from '../../errors.ts';

const newline = 0x0a;
const quote = 0x22;

export interface TextRecord {
  bytes: Buffer;
  line: number;
}

/** Lines; with `quoted`, a line end inside double quotes does not end the record (RFC 4180). */
export async function* records(chunks: AsyncIterable<Buffer>, quoted = false): AsyncGenerator<TextRecord> {
  let pending: Buffer[] = [];
  let line = 1;
  let startLine = 1;
  let inQuotes = false;
  let first = true;
  for await (let chunk of chunks) {
    if (first) {
      if (chunk.subarray(0, 3).equals(byteOrderMark)) chunk = chunk.subarray(3);
      first = false;
    }
    let start = 0;
    let from = 0;
    let nextQuote = quoted ? chunk.indexOf(quote) : -1;
    while (true) {
      const end = chunk.indexOf(newline, from);
      while (nextQuote >= 0 && (end < 0 || nextQuote < end)) {
        inQuotes = !inQuotes;
        nextQuote = chunk.indexOf(quote, nextQuote + 1);
      }
      if (end < 0) break;
      line++;
      from = end + 1;
      if (inQuotes) continue;
      const piece = chunk.subarray(start, end);
      yield { bytes: pending.length === 0 ? piece : Buffer.concat([...pending, piece]), line: startLine };
      pending = [];
      start = from;
      startLine = line;
    }
    if (start < chunk.length) pending.push(chunk.subarray(start));
  }
  if (pending.length > 0) yield { bytes: Buffer.concat(pending), line: startLine };
}

/** A line of text with its number. */
export interface TextLine {
  text: string;
  line: number;
}

/**
 * Lines that end with \n or \r\n only. JSON text may hold U+2028, at which node:readline would split. `file` is named where
 * one is no text: its bytes would become other characters.
 */
export async function* textLines(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<TextLine> {
  for await (const { bytes, line } of records(chunks)) {
    if (!isUtf8(bytes))
      throw new UserError(`${file}:${line} is not valid UTF-8: it is no text, or text in another encoding.`);
    yield { text: bytes.toString('utf8').replace(/\r$/, ''), line };
  }
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);
