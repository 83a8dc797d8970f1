/**
 * Widths of text in the plots' font, from the font's own tables, so that labels, legends and margins get the room they
 * need.
 */
import { readFileSync } from 'node:fs';
import { fontFile } from './font.ts';

let widths: Map<number, number> | undefined;

/** The width of a character that the font lacks, as a share of the font size. Reports use the reader's fonts for it. */
const unknown = 0.6;

/** The width of a text in pixels. */
export function textWidth(text: string, size: number): number {
  widths ??= advances(readFileSync(fontFile));
  let width = 0;
  for (const letter of text) width += widths.get(letter.codePointAt(0) as number) ?? unknown;
  return width * size;
}

/** The text, or as much of its beginning as fits. */
export function shortened(text: string, size: number, room: number): string {
  if (textWidth(text, size) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && textWidth(`${letters.join('')}…`, size) > room) letters.pop();
  return `${letters.join('').trimEnd()}…`;
}

/** The advance of each character as a share of the font size. TrueType: `cmap` format 4, `hmtx`. */
function advances(font: Buffer): Map<number, number> {
  const tables = new Map<string, number>();
  for (let i = 0; i < font.readUInt16BE(4); i++) {
    const entry = 12 + 16 * i;
    tables.set(font.toString('latin1', entry, entry + 4), font.readUInt32BE(entry + 8));
  }
  const at = (name: string) => tables.get(name) as number;
  const unitsPerEm = font.readUInt16BE(at('head') + 18);
  const measured = font.readUInt16BE(at('hhea') + 34);
  const advance = (glyph: number) => font.readUInt16BE(at('hmtx') + 4 * Math.min(glyph, measured - 1)) / unitsPerEm;
  const map = at('cmap') + font.readUInt32BE(at('cmap') + 8);
  const span = font.readUInt16BE(map + 6);
  const found = new Map<number, number>();
  for (let segment = 0; segment < span; segment += 2) {
    const last = font.readUInt16BE(map + 14 + segment);
    const first = font.readUInt16BE(map + 16 + span + segment);
    const delta = font.readUInt16BE(map + 16 + 2 * span + segment);
    const offsetAt = map + 16 + 3 * span + segment;
    const offset = font.readUInt16BE(offsetAt);
    for (let code = first; code <= last && code !== 0xffff; code++) {
      const glyph = offset === 0 ? code + delta : font.readUInt16BE(offsetAt + offset + 2 * (code - first));
      found.set(code, advance(glyph & 0xffff));
    }
  }
  return found;
}
