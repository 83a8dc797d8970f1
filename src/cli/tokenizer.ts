/**
 * attune tokenizer train --files corpus.txt notes.jsonl --vocab-size 4096 --out ./tokenizer
 * attune tokenizer encode MODEL "some text"
 * attune tokenizer decode MODEL 1,2,3
 */
import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import type { Command } from 'commander';
import { fileBytes, textLines } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { resolveModel } from '../hub/hub.ts';
import { Tokenizer, trainBpe } from '../text/index.ts';
import { wholeNumber, wholeNumbers } from './options/numbers.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, printJson } from './terminal/print.ts';

interface TrainFlags {
  files: string[];
  vocabSize: string;
  out: string;
  minFrequency: string;
  specialTokens?: string;
  eosToken?: string;
  chatTemplate?: string;
  field: string;
  pattern?: string;
}

export function register(program: Command): void {
  const tokenizer = program.command('tokenizer').description('train a tokenizer, or look at how one splits text');
  tokenizer
    .command('train')
    .description('byte-level BPE from text files, saved as a Hugging Face tokenizer folder')
    .requiredOption(
      '--files <paths...>',
      'text files (a text per line), or .jsonl with the text in --field; also .gz and .zst',
    )
    .requiredOption('--vocab-size <n>', 'ids in all')
    .requiredOption('--out <folder>', 'where to write it')
    .option('--min-frequency <n>', 'join only pairs seen as often as this', '2')
    .option('--special-tokens <list>', 'comma-separated; they get the first ids')
    .option('--eos-token <token>', 'which of them ends a reply')
    .option('--chat-template <file>', 'a Jinja file in place of ChatML')
    .option('--pattern <regex>', "pieces that are never joined with one another, in place of GPT-2's")
    .option('--field <name>', 'field of a .jsonl line that holds the text, or a list of messages', 'text')
    .action(train);
  tokenizer
    .command('encode <model> [text]')
    .description('tokens and ids of a text (standard input where left out)')
    .option('--add-special-tokens', 'with BOS and EOS as the model wants them')
    .option('--json', 'the ids alone, as JSON')
    .action(encode);
  tokenizer
    .command('decode <model> <ids>')
    .description('the text of comma-separated ids')
    .option('--skip-special-tokens', 'leave out BOS, EOS and their kind')
    .action(decode);
}

async function train(flags: TrainFlags): Promise<void> {
  const trained = await trainBpe(lines(flags.files, flags.field), {
    out: flags.out,
    vocabSize: wholeNumber('--vocab-size', flags.vocabSize),
    minFrequency: wholeNumber('--min-frequency', flags.minFrequency),
    specialTokens: flags.specialTokens?.split(',').map((token) => token.trim()),
    eosToken: flags.eosToken,
    pattern: flags.pattern,
    chatTemplate: flags.chatTemplate === undefined ? undefined : await readTemplate(flags.chatTemplate),
    progress: consoleProgress(),
  });
  print(`${flags.out}: ${trained.vocabSize} tokens`);
}

async function encode(
  model: string,
  text: string | undefined,
  flags: { addSpecialTokens?: boolean; json?: boolean },
): Promise<void> {
  const tokenizer = await load(model);
  const ids = tokenizer.encode(text ?? (await readAll(process.stdin)), flags);
  if (flags.json) return printJson(ids);
  for (const id of ids) print(`${String(id).padStart(7)}  ${tokenizer.token(id) ?? ''}`);
  print(`${ids.length} tokens`);
}

async function decode(model: string, list: string, flags: { skipSpecialTokens?: boolean }): Promise<void> {
  const tokenizer = await load(model);
  const ids = wholeNumbers('ids', list);
  const unknown = ids.find((id) => id >= tokenizer.vocabSize);
  if (unknown !== undefined)
    throw new UserError(`There is no token ${unknown}; the vocabulary ends at ${tokenizer.vocabSize - 1}.`);
  print(tokenizer.decode(ids, flags));
}

async function load(model: string): Promise<Tokenizer> {
  return Tokenizer.load(await resolveModel(model, { tokenizerOnly: true, progress: consoleProgress() }));
}

async function* lines(paths: readonly string[], field: string): AsyncGenerator<string> {
  for (const path of paths) {
    const isJson = /\.jsonl(\.gz|\.zst)?$/.test(path);
    for await (const { text, line } of textLines(fileBytes(path))) {
      if (isJson) yield jsonText(text, field, `${path}:${line}`);
      // The line's end belongs to the text: a tokenizer must learn it too.
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
  if (Array.isArray(value)) return value.map((message) => String(message?.content ?? '')).join('\n');
  if (typeof value !== 'string') throw new UserError(`${where} has no text in "${field}" (choose with --field).`);
  return value;
}

async function readTemplate(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error) => {
    throw new UserError(`${path} cannot be read: ${error.message}`);
  });
}
