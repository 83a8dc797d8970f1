/**
 * How fast text becomes tokens: `npm run bench -- tokenizer [--tokenizer folder] [--megabytes 4] [--pure-js node_modules]`.
 *   encode        our own merging in TypeScript, synchronous (Tokenizer.encode)
 *   encodeBatch   Hugging Face's `tokenizers`, on its threads (Tokenizer.encodeBatch)
 *   native encode the same package, one text at a time
 *   pure JS       `@huggingface/tokenizers`, synchronous; not a dependency, so `--pure-js` names a node_modules folder that has it
 * Texts are generated, ASCII and mixed. `same` says whether the ids are those of `encode`.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Tokenizer as NativeTokenizer } from 'tokenizers';
import { Random } from '../src/random.ts';
import { Tokenizer } from '../src/text/index.ts';
import type { Reading } from './run.ts';

const words = 'the model writes a response and the reward of it is 42 % of what was hoped for, he said: "no".'.split(
  ' ',
);
const others = 'Größe naïve 日本語 мир 😀 é ñandú 東京 αβγ fi — “so”'.split(' ');

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      tokenizer: { type: 'string', default: 'models/tiny' },
      megabytes: { type: 'string', default: '4' },
      'pure-js': { type: 'string' },
    },
  });
  if (!existsSync(join(values.tokenizer, 'tokenizer.json'))) throw new Error(`${values.tokenizer}: no tokenizer.json`);
  const tokenizer = await Tokenizer.load(values.tokenizer);
  const native = NativeTokenizer.fromFile(join(values.tokenizer, 'tokenizer.json'));
  const pure = values['pure-js'] === undefined ? undefined : pureTokenizer(values['pure-js'], values.tokenizer);
  for (const [name, mixed] of [
    ['ASCII', false],
    ['mixed', true],
  ] as const) {
    const texts = sample(Number(values.megabytes) * 1e6, mixed);
    const megabytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0) / 1e6;
    const results: number[][][] = [];
    const timed = async (way: string, encode: () => Promise<number[][]>): Promise<Reading> => {
      const start = performance.now();
      results.push(await encode());
      const seconds = (performance.now() - start) / 1000;
      const same = JSON.stringify(results[0]) === JSON.stringify(results.at(-1));
      return { name: `${name}: ${way}`, megabytesPerSecond: round(megabytes / seconds), same: String(same) };
    };
    for (const text of texts.slice(0, 50)) tokenizer.encode(text);
    yield await timed('encode', async () => texts.map((text) => tokenizer.encode(text)));
    yield await timed('encodeBatch', async () => (await tokenizer.encodeBatch(texts)).map((ids) => [...ids]));
    yield await timed('native encode', async () => {
      const ids: number[][] = [];
      for (const text of texts) ids.push((await native.encode(text, null, { addSpecialTokens: false })).getIds());
      return ids;
    });
    if (pure !== undefined) {
      for (const text of texts.slice(0, 50)) pure.encode(text);
      yield await timed('pure JS', async () =>
        texts.map((text) => pure.encode(text, { add_special_tokens: false }).ids),
      );
    }
  }
}

interface PureTokenizer {
  encode(text: string, options?: { add_special_tokens: boolean }): { ids: number[] };
}

/** `@huggingface/tokenizers` from a node_modules folder, with a tokenizer's files. */
function pureTokenizer(modules: string, folder: string): PureTokenizer {
  const require = createRequire(join(resolve(modules), 'none.js'));
  const { Tokenizer: Pure } = require('@huggingface/tokenizers') as {
    Tokenizer: new (tokenizer: object, config: object) => PureTokenizer;
  };
  const json = (name: string) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as object;
  return new Pure(json('tokenizer.json'), json('tokenizer_config.json'));
}

/** Texts of some 800 characters, as chats have them. */
function sample(bytes: number, mixed: boolean): string[] {
  const random = new Random('tokenizer benchmark', String(mixed));
  const texts: string[] = [];
  for (let made = 0; made < bytes; ) {
    const text = Array.from({ length: random.int(20, 300) }, () => {
      if (mixed && random.chance(0.3)) return random.pick(others);
      return random.chance(0.1) ? String(random.int(0, 9999)) : random.pick(words);
    }).join(' ');
    texts.push(text);
    made += Buffer.byteLength(text);
  }
  return texts;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
