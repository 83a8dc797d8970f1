import { existsSync } from 'node:fs';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import {
  addedToken,
  folderWith,
  sentencePieceConfig,
  sentencePieceJson,
  tokenizerWith,
} from './tokenizer.test-support.ts';
import { Tokenizer } from './tokenizer.ts';

const sentencePiece = (overrides = {}, config: object = sentencePieceConfig) =>
  tokenizerWith({ 'tokenizer.json': sentencePieceJson(overrides), 'tokenizer_config.json': config });

/** A reproducible source of numbers in [0, 1). */
function numbers(seed: number) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function randomTexts(count: number, alphabet: string[], seed: number): string[] {
  const next = numbers(seed);
  const text = () =>
    Array.from({ length: 1 + Math.floor(next() * 90) }, () => alphabet[Math.floor(next() * alphabet.length)]).join('');
  return Array.from({ length: count }, text);
}

describe('the least number of tokens', () => {
  it('is told by the bytes of a text, where no text can be dropped', async () => {
    const tokenizer = await Tokenizer.load(join(import.meta.dirname, '../../../models/tiny'));
    const alphabet = ['<|im_start|>', '<answer>', ' Answer', 'x', '    ', 'ö', '😀', '\ud800', '\n'];
    for (const text of randomTexts(300, alphabet, 7))
      expect(tokenizer.leastTokens(text)).toBeLessThanOrEqual(tokenizer.encode(text).length);
    expect(tokenizer.leastTokens('x'.repeat(14_000))).toBeGreaterThan(999);
    expect(tokenizer.leastTokens('')).toBe(0);
    expect((await sentencePiece()).leastTokens('x'.repeat(14_000))).toBe(0);
  });
});

describe('encode and decode', () => {
  // Ids and texts from Python's tokenizers on the same tokenizer.json.
  it.each([
    ['Hello the hall', [259, 286, 264, 295, 274, 294, 259, 267, 260, 295], 'Hello the hall'],
    ['  a    in', [298, 304, 305, 303], '  a    in'],
    ['né 😀 x', [259, 273, 291, 259, 243, 162, 155, 131, 259, 283], 'né 😀 x'],
    ['a</s>the', [304, 2, 294], 'a</s> the'],
  ])('agrees with the Python package on %j', async (text, ids, decoded) => {
    const tokenizer = await sentencePiece();
    expect(tokenizer.encode(text)).toEqual(ids);
    expect(tokenizer.decode(ids)).toBe(decoded);
    expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual([1, ...ids]);
  });

  const words = {
    type: 'Split',
    pattern: { Regex: '\\p{N}{1,3}| ?\\p{L}+|\\s+(?!\\S)|[^\\s\\p{L}]' },
    behavior: 'Isolated',
    invert: false,
  };
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const qwen = {
    ...words,
    pattern: {
      Regex:
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    },
  };
  const ascii = ["'LL", "'s", ' the', '\t', '\r\n', '\v\f', '\x00\x1c\x1f\x7f', '  ', '12', '.', '_', '\n', ...'abT!{'];
  const added = sentencePieceJson().added_tokens;
  it.each<[string, Record<string, unknown>]>([
    ['a normaliser and no pre-tokenizer', {}],
    [
      'Metaspace',
      {
        normalizer: null,
        pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true },
      },
    ],
    ['a regular expression', { normalizer: { type: 'NFC' }, pre_tokenizer: words }],
    ['unknown characters, fused', { model: { ...sentencePieceJson().model, byte_fallback: false } }],
    ['unknown characters, each', { model: { ...sentencePieceJson().model, byte_fallback: false, fuse_unk: false } }],
    ['unknown characters, dropped', { model: { ...sentencePieceJson().model, byte_fallback: false, unk_token: null } }],
    [
      'whole words first',
      { normalizer: null, pre_tokenizer: words, model: { ...sentencePieceJson().model, ignore_merges: true } },
    ],
    [
      'added tokens of every kind',
      {
        added_tokens: [
          ...added,
          addedToken(307, '<l>', { lstrip: true }),
          addedToken(308, '<r>', { rstrip: true }),
          addedToken(309, 'the', { single_word: true, special: false }),
          addedToken(310, 'in on', { normalized: true, special: false }),
          addedToken(311, '<rr>', { rstrip: true, lstrip: true }),
        ],
      },
    ],
    ['bytes', { normalizer: null, pre_tokenizer: bytes }],
    [
      'bytes after a regular expression',
      {
        normalizer: { type: 'NFC' },
        pre_tokenizer: { type: 'Sequence', pretokenizers: [qwen, { ...bytes, use_regex: false }] },
      },
    ],
    ['bytes with a space in front', { normalizer: null, pre_tokenizer: { ...bytes, add_prefix_space: true } }],
  ])('agrees with the native package on random text: %s', async (_, overrides) => {
    const tokenizer = await sentencePiece(overrides);
    const pieces = [
      'Hello',
      'the',
      ' the ',
      'in on',
      ' ',
      '  ',
      '\n',
      'é',
      'e\u0301',
      '日',
      '😀',
      '12345',
      '<s>',
      '</s>',
      '<l>',
      '<r>',
      '<rr>',
      ...'abhelot.,T',
    ];
    // Text that breaks encoders: half surrogates, combining and joined characters, other scripts, other spaces,
    // look-alikes.
    const nasty = [
      '\ud800',
      '\udc00',
      '\u0000',
      '\ufeff',
      '\u200d',
      '\u200b',
      '\u00a0',
      '\u2028',
      '\u3000',
      '\u0301',
      '\u1e9b\u0323',
    ];
    nasty.push(
      '👩‍👩‍👧',
      '🏳️‍🌈',
      '한국',
      'ﬁ',
      'שלום',
      'İı',
      'ǅ',
      '٣',
      '½',
      '<s',
      's>',
      '</s></s>',
      '▁',
      '▁▁',
      '<0x41>',
      'a'.repeat(70),
    );
    const texts = [...randomTexts(150, pieces, 7), ...randomTexts(100, ascii, 11), '', ' ', 'h e'.repeat(300)];
    texts.push(...randomTexts(120, [...nasty, ...pieces.slice(0, 8)], 13));
    const native = await tokenizer.encodeBatch(texts);
    texts.forEach((text, i) => {
      expect(tokenizer.encode(text), JSON.stringify(text)).toEqual([...(native[i] as Int32Array)]);
    });
  });

  it('keeps the order of a batch and adds BOS to each', async () => {
    const tokenizer = await sentencePiece();
    const texts = Array.from({ length: 1300 }, (_, i) => 'ab'.repeat(i % 37));
    const batch = await tokenizer.encodeBatch(texts, { addSpecialTokens: true });
    expect(batch.map((ids) => [...ids])).toEqual(
      texts.map((text) => tokenizer.encode(text, { addSpecialTokens: true })),
    );
  });

  it('takes no notice of padding and truncation that someone saved', async () => {
    const padding = {
      strategy: { Fixed: 16 },
      direction: 'Right',
      pad_to_multiple_of: null,
      pad_id: 0,
      pad_type_id: 0,
      pad_token: '<unk>',
    };
    const truncation = { max_length: 2, strategy: 'LongestFirst', stride: 0, direction: 'Right' };
    const tokenizer = await sentencePiece({ padding, truncation });
    expect([...((await tokenizer.encodeBatch(['Hello the hall']))[0] as Int32Array)]).toHaveLength(10);
  });

  it('skips special tokens and lone halves of characters', async () => {
    const tokenizer = await sentencePiece();
    expect(tokenizer.decode([1, 304, 2], { skipSpecialTokens: true })).toBe('a');
    expect(tokenizer.encode('a\ud83d')).toEqual(tokenizer.encode('a\ufffd'));
  });
});

describe('stream', () => {
  it('gives whole characters, and in all what decode gives', async () => {
    const tokenizer = await sentencePiece();
    for (const text of [
      'Hello  the 😀é日 hall',
      ' a\n in',
      'a</s> the',
      ...randomTexts(60, ['Hello', ' ', 'é', '日', '😀', '</s>', '.', '\n'], 3),
    ]) {
      for (const options of [{}, { skipSpecialTokens: true }]) {
        const ids = tokenizer.encode(text);
        const stream = tokenizer.stream(options);
        const parts = ids.map((id) => stream.push(id));
        for (const part of parts) expect(part).not.toContain('\ufffd');
        expect(parts.join('') + stream.flush()).toBe(tokenizer.decode(ids, options));
      }
    }
  });

  it('gives what decode gives for any tokens of a byte-level vocabulary, broken characters included', async () => {
    const tokenizer = await Tokenizer.load(join(import.meta.dirname, '../../../models/tiny'));
    const next = numbers(11);
    const below = (most: number) => Math.floor(next() * most);
    for (let round = 0; round < 200; round++) {
      const ids = Array.from({ length: 1 + below(40) }, () => below(tokenizer.vocabSize + 2));
      for (const options of [{}, { skipSpecialTokens: true }]) {
        const stream = tokenizer.stream(options);
        expect(ids.map((id) => stream.push(id)).join('') + stream.flush()).toBe(tokenizer.decode(ids, options));
      }
    }
  });

  it('lets broken bytes out at the end', async () => {
    const tokenizer = await sentencePiece();
    const stream = tokenizer.stream();
    expect([304, 3 + 0xf0, 3 + 0x9f].map((id) => stream.push(id))).toEqual(['a', '', '']);
    expect(stream.flush()).toBe('\ufffd\ufffd');
  });
});

describe('special tokens', () => {
  it('follows add_bos_token and add_eos_token before the post-processor', async () => {
    const ids = async (flags: object) =>
      (await sentencePiece({}, { ...sentencePieceConfig, ...flags })).encode('a', { addSpecialTokens: true });
    expect(await ids({})).toEqual([1, 304]);
    expect(await ids({ add_bos_token: false })).toEqual([304]);
    expect(await ids({ add_bos_token: true, add_eos_token: true })).toEqual([1, 304, 2]);
  });

  it('reads ids from every file, the EOS standing in for a missing pad', async () => {
    const tokenizer = await tokenizerWith({
      'tokenizer.json': sentencePieceJson(),
      'special_tokens_map.json': { bos_token: { content: '<s>' }, eos_token: '</s>', pad_token: '[PAD]' },
      'generation_config.json': { eos_token_id: [2, 260] },
    });
    expect(tokenizer).toMatchObject({ bosId: 1, eosId: 2, padId: 2, eosIds: [2, 260], vocabSize: 307 });
  });

  it('counts the end of a chat turn among the ids that end one', async () => {
    const added_tokens = [...sentencePieceJson().added_tokens, addedToken(307, '<eot>')];
    const chat_template = "{% for m in messages %}{{ m.role + ': ' + m.content + '<eot>' }}{% endfor %}";
    expect((await sentencePiece({ added_tokens }, { ...sentencePieceConfig, chat_template })).eosIds).toEqual([2, 307]);
  });

  it('takes added tokens that only tokenizer_config.json has', async () => {
    const decoder = { 307: { content: '<new>', special: true }, 1: { content: '<s>', special: true } };
    const tokenizer = await sentencePiece({}, { ...sentencePieceConfig, added_tokens_decoder: decoder });
    expect(tokenizer.encode('a<new>')).toEqual([304, 307]);
    expect([...((await tokenizer.encodeBatch(['a<new>']))[0] as Int32Array)]).toEqual([304, 307]);
    expect(tokenizer.isSpecial(307)).toBe(true);
  });
});

describe('files', () => {
  it('saves what it loaded', async () => {
    const tokenizer = await sentencePiece();
    const folder = join(await mkdtemp(join(tmpdir(), 'attune-text-')), 'new');
    await tokenizer.save(folder);
    const again = await Tokenizer.load(folder);
    expect(again.fingerprint).toBe(tokenizer.fingerprint);
    expect(JSON.parse(await readFile(join(folder, 'tokenizer_config.json'), 'utf8'))).toEqual(sentencePieceConfig);
    await writeFile(join(folder, 'chat_template.jinja'), 'x');
    expect((await Tokenizer.load(folder)).fingerprint).not.toBe(tokenizer.fingerprint);
  });

  it.each<[string, Record<string, unknown>, RegExp]>([
    ['nothing', {}, /tokenizer\.json does not exist\. Save/],
    ['only a SentencePiece model', { 'tokenizer.model': 'x' }, /holds tokenizer\.model, which attune does not read/],
    ['broken JSON', { 'tokenizer.json': '{"a":' }, /tokenizer\.json is not valid JSON/],
    ['something else', { 'tokenizer.json': {} }, /no model\.vocab/],
    ['another kind', { 'tokenizer.json': { model: { type: 'Unigram', vocab: [] } } }, /type Unigram; attune reads BPE/],
    [
      'a bad merge',
      { 'tokenizer.json': { model: { type: 'BPE', vocab: { a: 0 }, merges: [['a', 'b']] } } },
      /tokenizer\.json cannot be used/,
    ],
    [
      'a broken config',
      { 'tokenizer.json': sentencePieceJson(), 'tokenizer_config.json': '{' },
      /tokenizer_config\.json is not valid JSON/,
    ],
    [
      'an EOS that is not there',
      { 'tokenizer.json': sentencePieceJson(), 'tokenizer_config.json': { eos_token: '<end>' } },
      /eos_token "<end>"/,
    ],
  ])('names the fault of a folder with %s', async (_, files, message) => {
    const error = await folderWith(files)
      .then(Tokenizer.load)
      .catch((reason) => reason);
    expect(error).toMatchObject({ name: 'UserError', message: expect.stringMatching(message) });
  });
});

// Reference ids: transformers 5.18 AutoTokenizer.
const shared = join(process.env.ATTUNE_SHARED ?? '../shared', 'tokenizers');
async function sharedTokenizer(name: string): Promise<Tokenizer> {
  const source = join(shared, name);
  return tokenizerWith({
    'tokenizer.json': gunzipSync(await readFile(join(source, 'tokenizer.json.gz'))).toString(),
    'tokenizer_config.json': await readFile(join(source, 'tokenizer_config.json'), 'utf8'),
  });
}

describe.runIf(existsSync(shared))('real tokenizers', () => {
  it('splits as transformers does: Qwen3', async () => {
    const tokenizer = await sharedTokenizer('qwen3');
    expect(tokenizer.encode("Hello world, I'm 42!")).toEqual([9707, 1879, 11, 358, 2776, 220, 19, 17, 0]);
    expect(tokenizer.encode('naïve e\u0301 日本語 👩‍👩‍👧')).toEqual([
      3376, 37572, 586, 3958, 75402, 21894, 102819, 61804, 102, 378, 235, 145233, 378, 235, 145665,
    ]);
    expect(tokenizer.encode(' <|im_end|>\n\n')).toEqual([220, 151645, 271]);
    const thought = (answer: string) => ({
      role: 'assistant' as const,
      content: `<think>\nsum\n</think>\n\n${answer}`,
    });
    const chat = [
      { role: 'user' as const, content: '2+2?' },
      thought('4'),
      { role: 'user' as const, content: '3+3?' },
      thought('6'),
    ];
    const { ids, assistantMask } = tokenizer.encodeChat(chat);
    // biome-ignore format: one line per turn
    expect(ids).toEqual([
      151644, 872, 198, 17, 10, 17, 30, 151645, 198, 151644, 77091, 198, 19, 151645, 198,
      151644, 872, 198, 18, 10, 18, 30, 151645, 198, 151644, 77091, 198, 151667, 198, 1242, 198, 151668, 271, 21, 151645, 198,
    ]);
    const spoken = ids.filter((_, i) => assistantMask[i]);
    expect(tokenizer.decode(spoken)).toBe('4<|im_end|><think>\nsum\n</think>\n\n6<|im_end|>');
  });

  it('splits as transformers does: GPT-2', async () => {
    const tokenizer = await sharedTokenizer('gpt2');
    expect(tokenizer.encode('def f(x):\n    return x**2\n\n\n')).toEqual([
      4299, 277, 7, 87, 2599, 198, 220, 220, 220, 1441, 2124, 1174, 17, 628, 198,
    ]);
    expect(tokenizer).toMatchObject({ bosId: 50256, eosId: 50256, padId: 50256, chatTemplate: undefined });
  });
});

describe('tokenizer files of strangers', () => {
  const split = (pattern: string) => ({
    type: 'Split',
    pattern: { Regex: pattern },
    behavior: 'Isolated',
    invert: false,
  });
  const model = sentencePieceJson().model;
  const tenfold = { type: 'Replace', pattern: { String: 'a' }, content: 'aaaaaaaaaa' };
  it.each<[string, Record<string, unknown>, string]>([
    // The native package ends the process when this pattern fails on a text.
    ['a pattern that backtracks', { pre_tokenizer: split('(a+)+$') }, 'could run for ever'],
    [
      'one in a chain',
      { normalizer: { type: 'Sequence', normalizers: [{ ...tenfold, pattern: { Regex: '(a|a)*c' } }] } },
      'could run',
    ],
    [
      'replacements that explode',
      { normalizer: { type: 'Sequence', normalizers: Array(9).fill(tenfold) } },
      '1000 times as long',
    ],
    ['a step that is text', { pre_tokenizer: 'Split' }, 'pre_tokenizer: a step is not an object'],
    ['an absurd id', { model: { ...model, vocab: { ...model.vocab, zz: 1e9 } } }, 'gives "zz" the id 1000000000'],
    ['an id that is text', { model: { ...model, vocab: { ...model.vocab, zz: '5' } } }, 'gives "zz" the id "5"'],
    ['a merge that is a number', { model: { ...model, merges: [['h', 'e'], 5] } }, 'model.merges[1] is not a pair'],
    ['an added token without text', { added_tokens: [{ id: 3 }] }, 'added_tokens[0]'],
    ['added tokens in an object', { added_tokens: {} }, 'added_tokens must be a list'],
  ])('refuses %s', async (_, overrides, message) => {
    const error = await sentencePiece(overrides).catch((reason) => reason);
    expect(error).toMatchObject({ name: 'UserError' });
    expect(error.message).toContain(message);
  });
});
