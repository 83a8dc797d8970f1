/** Small tokenizers for tests, written as the folders that `Tokenizer.load` reads. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tokenizer } from './tokenizer.ts';

export async function folderWith(files: Record<string, unknown>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'attune-text-'));
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return folder;
}

export async function tokenizerWith(files: Record<string, unknown>): Promise<Tokenizer> {
  return Tokenizer.load(await folderWith(files));
}

export function addedToken(id: number, content: string, flags: Record<string, boolean> = {}) {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...flags };
}

/** A Llama-like vocabulary: SentencePiece spaces, byte fallback, a few words. */
export function sentencePieceJson(overrides: Record<string, unknown> = {}) {
  const vocab: Record<string, number> = { '<unk>': 0, '<s>': 1, '</s>': 2 };
  const add = (token: string) => {
    vocab[token] ??= Object.keys(vocab).length;
  };
  for (let byte = 0; byte < 256; byte++) add(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  for (const char of '▁abcdefghijklmnopqrstuvwxyzHTI.,é') add(char);
  const merges = [
    '▁ t',
    'h e',
    '▁t he',
    'l l',
    'e l',
    'H el',
    '▁ ▁',
    'l o',
    '▁ Hel',
    '▁Hel lo',
    'o n',
    'i n',
    '▁ a',
    '▁▁ ▁▁',
    'r e',
  ];
  const pairs = merges.map((merge) => merge.split(' ') as [string, string]);
  for (const pair of pairs) add(pair.join(''));
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [addedToken(0, '<unk>'), addedToken(1, '<s>'), addedToken(2, '</s>')],
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '▁' },
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab,
      merges: pairs,
    },
    ...overrides,
  };
}

export const sentencePieceConfig = {
  tokenizer_class: 'LlamaTokenizer',
  bos_token: '<s>',
  eos_token: '</s>',
  unk_token: { content: '<unk>' },
};
