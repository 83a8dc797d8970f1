/** The bytes of each token of a vocabulary, which constrained decoding matches against a grammar. */
import type { TokenizerJson } from './files.ts';

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
