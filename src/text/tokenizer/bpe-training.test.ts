import { existsSync } from 'node:fs';
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { trainBpe } from './bpe-training.ts';
import { Tokenizer } from './tokenizer.ts';

const corpus = [
  'the cat sat on the mat\n',
  'the cat ate the rat\n',
  'aaaa aaaa aaa\n',
  'naïve café, naïve 日本 日本\n',
];
const out = () => mkdtemp(join(tmpdir(), 'attune-bpe-'));

describe('trainBpe', () => {
  it("learns the merges of Hugging Face's own trainer", async () => {
    const folder = await out();
    const tokenizer = await trainBpe(corpus, { out: folder, vocabSize: 280 });
    const { model } = JSON.parse(await readFile(join(folder, 'tokenizer.json'), 'utf8'));
    // From Python's tokenizers: BpeTrainer(vocab_size=280, min_frequency=2) on the same texts.
    // biome-ignore format: as the trainer gives them
    expect(model.merges.map((pair: string[]) => pair.join(' '))).toEqual([
      'a a', 'a t', 'h e', 't he', 'Ġ c', 'a Ã', 'n aÃ', 'v e', '¥ æ', '¯ ve', 'æ Ĺ', 'Ġ aa', 'Ġ the', 'Ġ æĹ', 'ľ ¬', 'Ġc at',
      'naÃ ¯ve', '¥æ ľ¬', 'ĠæĹ ¥æľ¬',
    ]);
    expect(tokenizer.encode('the naïve rat 日本😀')).toEqual([262, 223, 275, 223, 84, 260, 277, 175, 256, 249, 225]);
  });

  it('saves a whole tokenizer with a chat template', async () => {
    const folder = await out();
    async function* texts() {
      yield* corpus;
    }
    await trainBpe(texts(), { out: folder, vocabSize: 300, minFrequency: 3 });
    const tokenizer = await Tokenizer.load(folder);
    expect(tokenizer).toMatchObject({ bosId: undefined, eosId: 2, padId: 0, eosIds: [2] });
    const { ids, assistantMask } = tokenizer.encodeChat([
      { role: 'user', content: 'the cat' },
      { role: 'assistant', content: 'sat 😀' },
    ]);
    expect(tokenizer.decode(ids.filter((_, i) => assistantMask[i]))).toBe('sat 😀<|im_end|>');
    const stream = tokenizer.stream();
    const parts = tokenizer.encode('日本 😀é').map((id) => stream.push(id));
    expect(parts.join('')).toBe('日本 😀é');
    expect(parts.join('|')).not.toContain('\ufffd');
    expect(await tokenizer.encodeBatch(['naïve\n\n  x'])).toEqual([Int32Array.from(tokenizer.encode('naïve\n\n  x'))]);
  });

  it('refuses what cannot be', async () => {
    const folder = await out();
    await expect(trainBpe(corpus, { out: folder, vocabSize: 100 })).rejects.toThrow('at least 259');
    await expect(trainBpe([], { out: folder, vocabSize: 300 })).rejects.toThrow('no text');
    await expect(trainBpe(corpus, { out: folder, vocabSize: 300, eosToken: '</s>' })).rejects.toThrow(
      '"</s>" is not among',
    );
  });

  it('refuses a pattern that no tokenizer could be read with before it reads a text, and writes nothing', async () => {
    const folder = join(await out(), 'new');
    const unread = (function* (): Generator<string> {
      throw new Error('a text was read');
      // biome-ignore lint/correctness/noUnreachable: a generator of texts
      yield '';
    })();
    const train = (pattern: string) => trainBpe(unread, { out: folder, vocabSize: 300, pattern });
    await expect(train('(a+)+$')).rejects.toThrow(/pattern \(a\+\)\+\$ cannot be used: it could run for ever/);
    await expect(train('(a')).rejects.toThrow(/pattern \(a cannot be used: .*Unterminated group/);
    // Valid only in JavaScript.
    await expect(train('\\u{1F600}')).rejects.toThrow(/pattern .* cannot be used: /);
    expect(existsSync(folder)).toBe(false);
  });
});

it('names what a program left out or misspelt, before a text is read', async () => {
  const train = (options: object, texts: unknown[] = ['a b']) => trainBpe(texts as string[], options as never);
  await expect(train({ vocabSize: 300 })).rejects.toThrow(/trainBpe: out is missing: expected text/);
  await expect(train({ out: 'x', vocabSize: 300, minFrequncy: 3 })).rejects.toThrow(/Did you mean "minFrequency"/);
  await expect(train({ out: 'x', vocabSize: 300 }, [1])).rejects.toThrow(/a text to train on is number: expected text/);
});
