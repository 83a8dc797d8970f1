/**
 * attune tokenizer train --files corpus.txt notes.jsonl --vocab-size 4096 --out ./tokenizer
 * attune tokenizer encode MODEL "some text"
 * attune tokenizer decode MODEL 1,2,3
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import type { Command } from 'commander';
import { z } from 'zod';
import { fileBytes } from '../data/sources/bytes.ts';
import { textLines } from '../data/sources/lines.ts';
import { UserError } from '../errors.ts';
import { loadTokenizer } from '../models/files/tokenizer.ts';
import { field, withRules } from '../runs/index.ts';
import { counted } from '../spelling.ts';
import { trainBpe } from '../text/index.ts';
import { registerCommand } from './options/command.ts';
import { modelField } from './options/model-fields.ts';
import { checkOutputFolder } from './options/outputs.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, printJson, tell } from './terminal/print.ts';

const trainOptions = z.object({
  files: field(z.array(z.string()).min(1), {
    description: 'text files (a text per line), or .jsonl with the text in --field; also .gz and .zst',
    variadic: true,
  }),
  vocabSize: field(z.number().int().positive(), { description: 'ids in all' }),
  out: field(z.string(), { description: 'folder for it', aliases: ['outputDir'] }),
  overwrite: field(z.boolean().default(false), { description: 'replace an existing tokenizer' }),
  minFrequency: field(z.number().int().min(0).default(2), { description: 'merge only pairs seen at least this often' }),
  specialTokens: field(z.array(z.string()).optional(), { description: 'special tokens, which get the first ids' }),
  eosToken: field(z.string().optional(), { description: 'which of them ends a response' }),
  chatTemplate: field(z.string().optional(), { description: 'a Jinja file in place of ChatML' }),
  pattern: field(z.string().optional(), {
    description: "regular expression that splits text into pieces before merging, in place of GPT-2's",
  }),
  field: field(z.string().default('text'), {
    description: 'field of a .jsonl line that holds the text, or a list of messages',
  }),
});

const isJsonLines = (path: string) => /\.jsonl(\.gz|\.zst)?$/.test(path);

export const trainSchema = withRules(trainOptions, [
  {
    options: ['field'],
    unread: ({ files }) => !files.some(isJsonLines),
    because: 'no file is .jsonl, and of others every line is a text',
  },
]);

export const encodeSchema = z.object({
  model: modelField,
  text: field(z.string().optional(), { description: 'what to split; standard input where left out' }),
  addSpecialTokens: field(z.boolean().default(false), { description: 'with BOS and EOS as the model wants them' }),
  json: field(z.boolean().default(false), { description: 'the ids alone, as JSON' }),
});

export const decodeSchema = z.object({
  model: modelField,
  ids: field(z.array(z.number().int().min(0)).min(1), { description: 'token ids', examples: ['1,2,3'] }),
  skipSpecialTokens: field(z.boolean().default(false), { description: 'leave out BOS, EOS and their kind' }),
  json: field(z.boolean().default(false), { description: 'the text as a JSON string, to the last character' }),
});

export function register(program: Command): void {
  const tokenizer = program.command('tokenizer').description('train a tokenizer, or look at how one splits text');
  registerCommand(tokenizer, {
    name: 'train',
    description: 'byte-level BPE from text files, saved as a Hugging Face tokenizer folder',
    schema: trainSchema,
    examples: ['attune tokenizer train --files corpus.txt notes.jsonl --vocab-size 4096 --out ./tokenizer'],
    run: train,
  });
  registerCommand(tokenizer, {
    name: 'encode',
    description: 'tokens and ids of a text (standard input where left out)',
    schema: encodeSchema,
    words: ['model', 'text'],
    run: encode,
  });
  registerCommand(tokenizer, {
    name: 'decode',
    description: 'the text of comma-separated ids',
    schema: decodeSchema,
    words: ['model', 'ids'],
    run: decode,
  });
}

async function train(config: z.output<typeof trainSchema>): Promise<void> {
  const { out, vocabSize, minFrequency, specialTokens, eosToken, pattern } = config;
  checkOutputFolder('--out', out);
  if (!config.overwrite && existsSync(join(out, 'tokenizer.json')))
    throw new UserError(`--out ${out} holds a tokenizer already: name another folder, or replace it with --overwrite.`);
  const trained = await trainBpe(lines(config.files, config.field), {
    out,
    vocabSize,
    minFrequency,
    specialTokens,
    eosToken,
    pattern,
    chatTemplate: config.chatTemplate === undefined ? undefined : await readTemplate(config.chatTemplate),
    progress: consoleProgress(),
  });
  print(`${out}: ${trained.vocabSize} tokens`);
  if (trained.vocabSize < vocabSize)
    tell(
      `That is fewer than --vocab-size ${vocabSize}: no other pair of tokens is in the texts ${minFrequency > 1 ? `${minFrequency} times` : 'at all'} (--min-frequency). More text gives more.`,
    );
}

async function encode(config: z.output<typeof encodeSchema>): Promise<void> {
  const { addSpecialTokens } = config;
  const tokenizer = await loadTokenizer(config, consoleProgress());
  const ids = tokenizer.encode(config.text ?? (await readAll(process.stdin)), { addSpecialTokens });
  if (config.json) return printJson(ids);
  for (const id of ids) print(`${String(id).padStart(7)}  ${tokenizer.token(id) ?? ''}`);
  print(counted(ids.length, 'token'));
}

async function decode(config: z.output<typeof decodeSchema>): Promise<void> {
  const { ids, skipSpecialTokens } = config;
  const tokenizer = await loadTokenizer(config, consoleProgress());
  const unknown = ids.find((id) => id >= tokenizer.vocabSize);
  if (unknown !== undefined)
    throw new UserError(`There is no token ${unknown}; the vocabulary ends at ${tokenizer.vocabSize - 1}.`);
  const text = tokenizer.decode(ids, { skipSpecialTokens });
  if (config.json) printJson(text);
  else print(text);
}

async function* lines(paths: readonly string[], field: string): AsyncGenerator<string> {
  for (const path of paths) {
    const isJson = isJsonLines(path);
    for await (const { text, line } of textLines(fileBytes(path), path)) {
      if (isJson) yield jsonText(text, field, `${path}:${line}`);
      // The line feed belongs to the text: the tokenizer must learn it too.
      else yield `${text}\n`;
    }
  }
}

function jsonText(line: string, field: string, where: string): string {
  let value: unknown;
  try {
    value = JSON.parse(line)?.[field];
  } catch (error) {
    throw new UserError(`${where} is not JSON: ${(error as Error).message}`);
  }
  // A chat is the text of its messages.
  if (Array.isArray(value)) return value.map((message) => contentOf(message, where)).join('\n');
  if (typeof value !== 'string') throw new UserError(`${where} has no text in "${field}" (choose with --field).`);
  return value;
}

/** The text of a message: a string, a list of parts as APIs have them, or nothing beside tool calls. */
function contentOf(message: unknown, where: string): string {
  const { content } = (message ?? {}) as { content?: unknown };
  const parts = (Array.isArray(content) ? content : [content ?? '']).map((part) => part?.text ?? part);
  if (typeof message === 'object' && parts.every((part) => typeof part === 'string')) return parts.join('');
  throw new UserError(`${where} has a message without text: its "content" is ${JSON.stringify(content) ?? 'missing'}.`);
}

async function readTemplate(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error) => {
    throw new UserError(`${path} cannot be read: ${error.message}`);
  });
}
