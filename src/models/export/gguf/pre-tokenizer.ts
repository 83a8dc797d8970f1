/**
 * Finds which of llama.cpp's pre-tokenizers a byte-level BPE uses. llama.cpp knows them by name (`tokenizer.ggml.pre`);
 * tokenizer.json has regular expressions, and writes the same one in several ways. So each candidate is tried on texts
 * that tell them apart: it splits the text, the merges do the rest, and the ids are compared with the tokenizer's.
 */
import { Bpe, type BpeModel } from '../../../text/tokenizer/bpe.ts';

interface PreTokenizer {
  name: string;
  /** Applied one after the other. Matches of a pattern, and the text between matches, become separate pieces. */
  patterns: readonly string[];
  /** A piece that is itself a token is not split further. */
  ignoreMerges: boolean;
}

const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
const contraction = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const tiktoken = (digits: string) =>
  `${contraction}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const upper = '(?:(?=\\p{L})[^a-z])';
const lower = '(?:(?=\\p{L})[^A-Z])';
const cased = (digits: string, end = '') =>
  `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${end}|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${end}|${digits}` +
  '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

/** llama.cpp's pre-tokenizers, most common first: if two give the same ids on every text, the first is taken. */
const known: readonly PreTokenizer[] = [
  { name: 'gpt-2', patterns: [gpt2], ignoreMerges: false },
  { name: 'qwen2', patterns: [tiktoken('\\p{N}')], ignoreMerges: false },
  { name: 'llama-bpe', patterns: [tiktoken('\\p{N}{1,3}')], ignoreMerges: true },
  { name: 'smaug-bpe', patterns: [tiktoken('\\p{N}{1,3}')], ignoreMerges: false },
  { name: 'starcoder', patterns: ['\\p{N}', gpt2], ignoreMerges: false },
  { name: 'falcon', patterns: ['[\\p{P}$+<=>^~|`]+', gpt2, '[0-9][0-9][0-9]'], ignoreMerges: false },
  { name: 'bloom', patterns: [' ?[^(\\s|.,!?…。，、।۔،)]+'], ignoreMerges: false },
  { name: 'tekken', patterns: [cased('\\p{N}')], ignoreMerges: true },
  { name: 'gpt-4o', patterns: [cased('\\p{N}{1,3}', `${contraction}?`)], ignoreMerges: false },
  { name: 'default', patterns: ['[\\p{P}$+<=>^~|]+', gpt2, '\\p{N}+', '[0-9][0-9][0-9]'], ignoreMerges: false },
];

const probes: readonly string[] = [
  'Hello world, hello World!',
  "I'm sure you've seen what we'll do; they'd say it's Bob's, DON'T you? YOU'RE",
  '1 12 123 1234 12345 3.14159 1,000,000 x2y3 2nd ½ ٣٤',
  'a  b   c    d\te\t\tf',
  'one\ntwo\n\nthree\n\n\n four \n five\r\nsix',
  '  leading and trailing   ',
  'if (x == 1) { return foo.bar(x)[0]; } // comment\n\t\t}',
  'snake_case camelCase PascalCase HTTPServer kebab-case UPPER',
  '<answer>42</answer> <gloss>well</gloss> <b>',
  'What is 4 + 5? (4+5)=9, 3*3 = 9.',
  'éclair naïve Zürich Ærøskøbing ŁÓDŹ',
  'Привет, мир! Γειά σου Κόσμε',
  '你好，世界。こんにちは 안녕하세요 สวัสดี हिन्दी العربية، سلام۔',
  '🙂🙃👩‍👩‍👧‍👦🇩🇪 … “quoted” ‘single’ — dash',
  '...!!!???---===///\\\\',
  ' !" #$ %& \'( )* +, -. /: ;< => ?@ [\\ ]^ _` {| }~',
  '$12.50 10% #tag @user a@b.co https://x.org/a?b=c&d=e',
  'word\u00a0nbsp\u2009thin\u3000wide',
];

export interface PreTokenizerChoice {
  name: string;
  /** The number of texts on which the ids equal the tokenizer's. */
  alike: number;
  of: number;
}

/** The best candidate. Texts with one of the `added` tokens are left out: those are split off before pre-tokenization. */
export function choosePreTokenizer(
  model: BpeModel,
  added: readonly string[],
  encode: (text: string) => readonly number[],
): PreTokenizerChoice {
  const texts = probes.filter((text) => !added.some((token) => text.includes(token)));
  const bpes = new Map<boolean, Bpe>();
  const wanted = texts.map((text) => encode(text).join());
  let best: PreTokenizerChoice | undefined;
  const fits = ({ ignoreMerges }: PreTokenizer) => (ignoreMerges === (model.ignore_merges ?? false) ? 0 : 1);
  for (const { name, patterns, ignoreMerges } of known.toSorted((a, b) => fits(a) - fits(b))) {
    const bpe = bpes.get(ignoreMerges) ?? new Bpe({ ...model, ignore_merges: ignoreMerges });
    bpes.set(ignoreMerges, bpe);
    const ids = (text: string) => split(text, patterns).flatMap((piece) => bpe.encode(byteLetters(piece)));
    const alike = texts.filter((text, i) => ids(text).join() === wanted[i]).length;
    if (best === undefined || alike > best.alike) best = { name, alike, of: texts.length };
    if (alike === texts.length) break;
  }
  return best as PreTokenizerChoice;
}

function split(text: string, patterns: readonly string[]): string[] {
  let pieces = [text];
  for (const pattern of patterns) {
    const expression = new RegExp(pattern, 'gu');
    pieces = pieces.flatMap((piece) => {
      const parts: string[] = [];
      let end = 0;
      for (const match of piece.matchAll(expression)) {
        parts.push(piece.slice(end, match.index), match[0]);
        end = match.index + match[0].length;
      }
      return [...parts, piece.slice(end)].filter((part) => part !== '');
    });
  }
  return pieces;
}

/** GPT-2's characters for bytes: printable Latin-1 stands for itself, the rest are numbered from U+0100 on. */
const letters = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(printable ? byte : next++);
  });
})();

const byteLetters = (piece: string) =>
  Array.from(new TextEncoder().encode(piece), (byte) => letters[byte] as string).join('');
