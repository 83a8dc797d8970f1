/** A tokenizer for tests, with readable ids: every piece of text has one id, assigned in order of appearance. */

import type { TextTokenizer } from '../text/chat-format.ts';
import type { Message } from './shapes/shapes.ts';

export interface WordsTokenizer extends TextTokenizer {
  decode(ids: ArrayLike<number>): string;
  /** How many texts were passed to encodeBatch. */
  encoded: number;
}

const special = ['<bos>', '<eos>', '<|user|>', '<|assistant|>', '<|system|>', '<|end|>'];

export function wordsTokenizer(options: { chat?: boolean; bos?: boolean; name?: string } = {}): WordsTokenizer {
  const { chat = true, bos = false } = options;
  const tokens = [...special];
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const idOf = (piece: string) => {
    let id = ids.get(piece);
    if (id === undefined) {
      id = tokens.push(piece) - 1;
      ids.set(piece, id);
    }
    return id;
  };
  const encode = (text: string, { addSpecialTokens = false } = {}) => [
    ...(addSpecialTokens && bos ? [0] : []),
    ...(text.match(/<\|?\w+\|?>|\s?\w+|[^\w]/g) ?? []).map(idOf),
  ];
  const renderChat = (messages: readonly Message[], { addGenerationPrompt = false } = {}) =>
    messages.map(({ role, content }) => `<|${role}|>${content.trim()}<|end|>\n`).join('') +
    (addGenerationPrompt ? '<|assistant|>' : '');
  const tokenizer: WordsTokenizer = {
    fingerprint: options.name ?? 'words',
    chatTemplate: chat ? 'template' : undefined,
    bosId: bos ? 0 : undefined,
    eosId: 1,
    eosIds: chat ? [1, 5] : [1],
    encoded: 0,
    encode,
    async encodeBatch(texts) {
      tokenizer.encoded += texts.length;
      await new Promise((resolve) => setImmediate(resolve));
      return texts.map((text) => Int32Array.from(encode(text)));
    },
    renderChat,
    encodeChat(messages) {
      const parts = messages.map((message) => encode(renderChat([message])));
      const mask = messages.flatMap(({ role }, index) =>
        (parts[index] as number[]).map((_, i, all) => (role === 'assistant' && i > 0 && i < all.length - 1 ? 1 : 0)),
      );
      return { ids: parts.flat(), assistantMask: Uint8Array.from(mask) };
    },
    decode: (list) => Array.from(list, (id) => tokens[id] ?? '?').join(''),
  };
  return tokenizer;
}
