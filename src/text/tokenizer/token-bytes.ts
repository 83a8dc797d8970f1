/** The bytes of each token of a vocabulary, which constrained decoding matches against a grammar. */
import type { PipelineStep, TokenizerJson } from './files.ts';

/** GPT-2's alphabet: printable bytes are themselves, the others are letters from U+0100 on, in order. */
const letterBytes = new Map<string, number>();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const prints = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  letterBytes.set(String.fromCharCode(prints ? byte : next++), byte);
}

const encoder = new TextEncoder();

/**
 * A token's bytes as the vocabulary writes it: byte-level letters, or SentencePiece's ▁ for a space and <0x0A> for a
 * byte. Added tokens are plain text.
 */
export function bytesOfToken(token: string, style: 'byte-level' | 'plain', isAdded: boolean): Uint8Array {
  if (isAdded) return encoder.encode(token);
  if (style === 'byte-level') {
    const bytes = Array.from(token, (letter) => letterBytes.get(letter));
    return bytes.every((byte) => byte !== undefined) ? Uint8Array.from(bytes) : encoder.encode(token);
  }
  const [, hex] = token.match(/^<0x([0-9A-F]{2})>$/) ?? [];
  return hex === undefined ? encoder.encode(token.replaceAll('▁', ' ')) : Uint8Array.of(Number.parseInt(hex, 16));
}

export function tokenStyle(json: Pick<TokenizerJson, 'pre_tokenizer'> & { decoder?: unknown }): 'byte-level' | 'plain' {
  return /"type":\s*"ByteLevel"/.test(JSON.stringify([json.decoder ?? null, json.pre_tokenizer ?? null]))
    ? 'byte-level'
    : 'plain';
}

/**
 * NFC shortens text to no less than a quarter of its bytes: a letter and three marks (8 bytes) become one letter (3
 * bytes).
 */
const mostComposed = 4;

/**
 * The most bytes of text that one token can stand for, so that a text's bytes give a lower bound on its tokens.
 * Infinity if text may be dropped: by a normaliser or pre-tokenizer that is not known here, by tokens that take the
 * white space around them, or because a byte has no token.
 */
export function mostTokenBytes(json: TokenizerJson): number {
  const { normalizer, pre_tokenizer: splitter, added_tokens: added, model } = json;
  if (normalizer != null && normalizer.type !== 'NFC') return Number.POSITIVE_INFINITY;
  if (tokenStyle(json) !== 'byte-level' || !keepsText(splitter)) return Number.POSITIVE_INFINITY;
  if (added.some(({ lstrip, rstrip }) => lstrip || rstrip)) return Number.POSITIVE_INFINITY;
  if ([...letterBytes.keys()].some((letter) => !Object.hasOwn(model.vocab, letter))) return Number.POSITIVE_INFINITY;
  let most = 1;
  for (const token in model.vocab) if (token.length > most) most = token.length; // one letter per byte
  for (const { content } of added) most = Math.max(most, encoder.encode(content).length);
  return normalizer == null ? most : most * mostComposed;
}

function keepsText(step: PipelineStep | null | undefined): boolean {
  if (step == null || step.type === 'ByteLevel' || step.type === 'Digits') return true;
  if (step.type === 'Sequence') return (step.pretokenizers ?? []).every(keepsText);
  return step.type === 'Split' && step.behavior !== 'Removed';
}
