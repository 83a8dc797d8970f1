/** llama.cpp makes the same tokens of text as the tokenizer that was exported, and is given the same chat template. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, expect, it } from 'vitest';
import { exportGguf, initModel, saveModel } from '../../src/models/index.ts';
import { plainChatTemplate, Tokenizer, trainBpe } from '../../src/text/index.ts';
import { llamaCpp } from './llama-cpp.ts';

const scratch = mkdtempSync(join(tmpdir(), 'attune-gguf-'));
const shared = process.env.ATTUNE_SHARED ?? join(import.meta.dirname, '../../../shared');
const found = await llamaCpp();
afterAll(async () => {
  rmSync(scratch, { recursive: true });
  if ('llama' in found) await found.llama.dispose();
});

const nasty = [
  '',
  ' ',
  '   ',
  '\n',
  'a\r\nb\n\n\nc\t\td',
  "It's what they'd've DONE, isn't IT? we'll see: YOU'LL",
  'x=1;y==2&&z!=3||!w // ok?',
  '12345678901234567890 1,234.56 -7 ½ ³ ٣٤٥ 一二三',
  'ünïcödé ŁÓDŹ Ærøskøbing ß ſ',
  'e\u0301 combining a\u030a, zero\u200bwidth, joiner\u200d, nbsp\u00a0thin\u2009wide\u3000.',
  '🙂🙃👩‍👩‍👧‍👦🇩🇪👍🏽 ☃︎',
  '你好，世界。こんにちは、안녕하세요 สวัสดี हिन्दी العربية، שלום',
  '<answer>42</answer><|im_start|x <think>…</think>',
  '((((____----====....!!!!????\\\\////',
  'http://a.b/c?d=e#f user@host.org #tag $9.99 100%',
  'CamelCaseHTTPServer2Go snake_case_name kebab-case-name',
  '  indented\n    code {\n\t\t}\n  ',
  'the quick brown fox jumps over the lazy dog the quick brown fox',
  '\u0001\u0002\u001b[0m\u007f\ufeff',
  `${'long '.repeat(40)}${'x'.repeat(100)}`,
];

/** A model that is only there to carry the tokenizer. */
async function carrier(folder: string): Promise<string> {
  const { vocabSize } = await Tokenizer.load(folder);
  using model = initModel(
    {
      ...{ model_type: 'qwen3', architectures: ['Qwen3ForCausalLM'], vocab_size: vocabSize + 5, hidden_size: 32 },
      ...{ intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2, head_dim: 16 },
      ...{ max_position_embeddings: 512, tie_word_embeddings: true },
    },
    { seed: 1, dtype: 'float32' },
  );
  saveModel(model, folder);
  return folder;
}

const corpus = readFileSync(join(import.meta.dirname, '../../README.md'), 'utf8') + nasty.join('\n').repeat(3);

const trained = (name: string, pattern?: string) => async () => {
  const folder = join(scratch, name);
  await trainBpe([corpus], { out: folder, vocabSize: 900, pattern, bosToken: '<|endoftext|>' });
  return folder;
};

/** All pairs of tokens whose union is a token, best first: how tokenizer.json writes a SentencePiece model. */
async function sentencePiece(): Promise<string> {
  const folder = await trained('pieces')();
  const path = join(folder, 'tokenizer.json');
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const special = ['<unk>', '<s>', '</s>'].map((content, id) => ({ id, content, ...plain }));
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const words = corpus.split(/\s+/).map((word) => [...`▁${word}`]);
  const counts = new Map<string, number>();
  for (const word of words)
    for (let i = 0; i < word.length; i++)
      for (let j = i + 2; j <= Math.min(word.length, i + 6); j++) {
        const part = word.slice(i, j).join('');
        counts.set(part, (counts.get(part) ?? 0) + 1);
      }
  const pieces = [...counts]
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .slice(0, 600)
    .map(([piece]) => piece);
  const characters = [...new Set(`▁${corpus}`)].filter((character) => character >= '!');
  const vocab = new Map(
    [...special.map(({ content }) => content), ...bytes, ...pieces, ...characters].map((token, id) => [token, id]),
  );
  const merges = pieces.flatMap((piece) => {
    const letters = [...piece];
    return letters.slice(1).flatMap((_, i): [string, string][] => {
      const pair: [string, string] = [letters.slice(0, i + 1).join(''), letters.slice(i + 1).join('')];
      return pair.every((part) => vocab.has(part)) ? [pair] : [];
    });
  });
  const normalizers = [
    { type: 'Prepend', prepend: '▁' },
    { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
  ];
  const decoders = [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
  ];
  const json = {
    version: '1.0',
    added_tokens: special,
    normalizer: { type: 'Sequence', normalizers },
    decoder: { type: 'Sequence', decoders },
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(vocab),
      merges,
    },
  };
  writeFileSync(path, JSON.stringify(json));
  const config = {
    bos_token: '<s>',
    eos_token: '</s>',
    unk_token: '<unk>',
    add_bos_token: true,
    chat_template: plainChatTemplate,
  };
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(config));
  return folder;
}

const sharedTokenizer = (name: string) => async () => {
  const folder = join(scratch, name);
  mkdirSync(folder);
  writeFileSync(
    join(folder, 'tokenizer.json'),
    gunzipSync(readFileSync(join(shared, 'tokenizers', name, 'tokenizer.json.gz'))),
  );
  writeFileSync(
    join(folder, 'tokenizer_config.json'),
    readFileSync(join(shared, 'tokenizers', name, 'tokenizer_config.json')),
  );
  return folder;
};

const tail = '[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|DIGITS| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const contractions = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|";
const cases: [name: string, pre: string | null, make: () => Promise<string>, except?: RegExp][] = [
  ['byte-level', 'gpt-2', trained('byte-level')],
  ['single digits', 'qwen2', trained('single-digits', contractions + tail.replace('DIGITS', '\\p{N}'))],
  ['three digits', 'smaug-bpe', trained('three-digits', contractions + tail.replace('DIGITS', '\\p{N}{1,3}'))],
  ['SentencePiece-like', null, sentencePiece],
  ...(existsSync(join(shared, 'tokenizers/qwen3'))
    ? ([
        // Qwen composes accents first
        ['qwen3', 'qwen2', sharedTokenizer('qwen3'), /e\u0301/],
        ['gpt2', 'gpt-2', sharedTokenizer('gpt2')],
      ] as (typeof cases)[number][])
    : []),
];

if ('missing' in found)
  it(`llama.cpp is not to be had here: ${found.missing}`, () => expect(found.missing).not.toBe(''));
else
  it.each(cases)('%s is %s', async (name, pre, make, except = /^$a/) => {
    const folder = await carrier(await make());
    const tokenizer = await Tokenizer.load(folder);
    const made = await exportGguf({ model: folder, type: 'f16', out: join(scratch, `${name}.gguf`) });
    expect(made.preTokenizer).toBe(pre);
    expect(made.notes.filter((note) => !note.includes('NFC'))).toEqual([]);
    const model = await found.llama.loadModel({ modelPath: made.path, gpuLayers: 0 });
    for (const text of nasty.filter((candidate) => !except.test(candidate)))
      expect([text, ...model.tokenize(text, false)]).toEqual([text, ...tokenizer.encode(text)]);
    expect(model.fileInfo.metadata.tokenizer.chat_template).toBe(tokenizer.chatTemplate);
    const chat =
      tokenizer.chatTemplate === undefined ? 'a</s>b' : tokenizer.renderChat([{ role: 'user', content: 'Hi there' }]);
    expect(model.tokenize(chat, true)).toEqual(tokenizer.encode(chat));
    expect(model.tokens.eos).toBe(tokenizer.eosId);
    await model.dispose();
  });
