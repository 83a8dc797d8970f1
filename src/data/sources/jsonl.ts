/** One JSON object per line (.jsonl, .ndjson; compressed or not). Blank lines are skipped. */
import { fileBytes } from './bytes.ts';
import { records } from './lines.ts';
import { type BadRow, type LocatedRow, parseRow } from './row.ts';

export async function* readJsonl(path: string, bad: BadRow): AsyncGenerator<LocatedRow> {
  for await (const { bytes, line } of records(fileBytes(path), path)) {
    if (isBlank(bytes)) continue;
    const located = parseRow(bytes, path, line, bad);
    if (located !== undefined) yield located;
  }
}

function isBlank(bytes: Buffer): boolean {
  for (const byte of bytes) if (byte !== 0x20 && byte !== 0x0d && byte !== 0x09) return false;
  return true;
}
