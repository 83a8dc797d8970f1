/**
 * Byte-level pre-tokenization of ASCII text in JavaScript. Most text is ASCII, and passing the native pre-tokenizer's
 * results to JavaScript costs more than computing them. It handles only patterns that mean the same in both regular
 * expression engines; for others the native pre-tokenizer is used.
 */
import type { PipelineStep } from './files.ts';

/** Where each piece of an ASCII text starts; a piece runs to the next start. */
export type AsciiSplitter = (text: string) => number[];

/** The pattern of GPT-2, which the byte-level pre-tokenizer has built in. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

export function asciiSplitter(step: PipelineStep | null | undefined): AsciiSplitter | undefined {
  const source = patternOf(step);
  if (source === undefined) return undefined;
  // "." and the anchors differ between the engines even on ASCII.
  const bare = source.replace(/\\./g, '').replace(/\[[^\]]*\]/g, '');
  if (/[.^$]/.test(bare)) return undefined;
  let pattern: RegExp;
  try {
    pattern = new RegExp(source, 'gu');
  } catch {
    return undefined;
  }
  return (text) => {
    const starts: number[] = [];
    let done = 0;
    for (const match of text.matchAll(pattern)) {
      if (match[0] === '') continue;
      if (match.index > done) starts.push(done);
      starts.push(match.index);
      done = match.index + match[0].length;
    }
    if (done < text.length) starts.push(done);
    return starts;
  };
}

function patternOf(step: PipelineStep | null | undefined): string | undefined {
  if (step?.type === 'ByteLevel') return step.use_regex !== false && !step.add_prefix_space ? GPT2 : undefined;
  const [split, bytes, ...more] = step?.type === 'Sequence' ? (step.pretokenizers ?? []) : [];
  if (split?.type !== 'Split' || bytes?.type !== 'ByteLevel' || more.length > 0) return undefined;
  if (split.behavior !== 'Isolated' || split.invert || bytes.use_regex !== false || bytes.add_prefix_space)
    return undefined;
  return split.pattern?.Regex;
}

export function isAscii(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 127) return false;
  return true;
}

/** ASCII text in the alphabet of byte-level vocabularies; printable characters are unchanged. */
export function asciiByteLetters(text: string): string {
  return text.replace(/[^!-~]/g, (char) => BYTE_LETTERS[char.charCodeAt(0)] as string);
}

/** GPT-2 maps unprintable bytes to letters from U+0100 on, in order; of ASCII these are 0–32 and 127. */
const BYTE_LETTERS = Array.from({ length: 128 }, (_, byte) => {
  if (byte <= 32) return String.fromCharCode(256 + byte);
  return String.fromCharCode(byte === 127 ? 256 + 33 : byte);
});
