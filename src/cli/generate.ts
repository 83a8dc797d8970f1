/**
 * attune generate MODEL --prompt "Once upon a time" [--chat] [--temperature 0 --max-new-tokens 64 --seed 1 --json]
 * attune generate MODEL --ids 1,2,3
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { UserError } from '../errors.ts';
import { resolveModel } from '../hub/hub.ts';
import { type Generation, loadModelFolder, Sampler } from '../models/index.ts';
import { type DType, defaultDevice } from '../tensor/index.ts';
import { Tokenizer } from '../text/index.ts';
import { anyNumber, wholeNumber, wholeNumbers } from './options/numbers.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, printJson, printPart, tell } from './terminal/print.ts';

interface Flags {
  prompt?: string;
  ids?: string;
  chat?: boolean;
  maxNewTokens: string;
  temperature: string;
  topK: string;
  topP: string;
  minP: string;
  repetitionPenalty: string;
  stop?: string[];
  ignoreEos?: boolean;
  samples: string;
  seed: string;
  dtype?: DType;
  device?: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('generate <model>')
    .description('continue a prompt: a folder, an adapter, or a name on the hub')
    .option('--prompt <text>', 'what to continue')
    .option('--ids <list>', 'the same as comma-separated token ids; needs no tokenizer')
    .option('--chat', "the prompt is a user's message in the model's chat template")
    .option('--max-new-tokens <n>', 'tokens at most', '128')
    .option('--temperature <number>', '0 takes the likeliest token each time', '0')
    .option('--top-k <n>', 'only the k likeliest; 0 = all', '0')
    .option('--top-p <number>', 'the fewest tokens that hold this much probability', '1')
    .option('--min-p <number>', "only tokens with this share of the likeliest one's probability", '0')
    .option('--repetition-penalty <number>', 'above 1 makes what is already there less likely', '1')
    .option('--stop <text...>', 'strings that end the reply')
    .option('--ignore-eos', 'go on past the end of the text, to the last of the new tokens')
    .option('--samples <n>', 'replies', '1')
    .option('--seed <n>', 'of sampling; reply i has seed + i', '42')
    .addOption(
      new Option('--dtype <name>', 'of the weights (default: as stored)').choices(['float32', 'bfloat16', 'float16']),
    )
    .option('--device <name>', 'cpu, cuda:0, … (default: a GPU where there is one)')
    .option('--json', 'ids, log-probs and text as JSON, when all is done')
    .addHelpText(
      'after',
      '\nExample: attune generate models/tiny --chat --prompt "What is 4 + 5?" --temperature 0.8 --samples 3',
    )
    .action(generate);
}

async function generate(name: string, flags: Flags): Promise<void> {
  if ((flags.prompt === undefined) === (flags.ids === undefined))
    throw new UserError('Give the text with --prompt, or its tokens with --ids.');
  const folder = await resolveModel(name, { progress: consoleProgress() });
  const tokenizer = await tokenizerOf(folder, flags);
  const device = flags.device ?? defaultDevice();
  using model = loadModelFolder(folder, { device, ...(flags.dtype === undefined ? {} : { dtype: flags.dtype }) });
  const prompt = promptIds(flags, tokenizer);
  const vocabulary = model.decoder.spec.vocabSize;
  const foreign = prompt.find((id) => id >= vocabulary);
  if (foreign !== undefined) throw new UserError(`Token ${foreign} is not among the model's ${vocabulary}.`);
  const samples = wholeNumber('--samples', flags.samples, 1);
  using sampler = new Sampler(model, tokenizer === undefined ? {} : { tokenizer });
  const interrupt = onInterrupt(() => {});
  const streaming = samples === 1 && flags.json !== true;
  const text = streaming ? tokenizer?.stream({ skipSpecialTokens: true }) : undefined;
  const started = performance.now();
  const [replies] = (await sampler.generate(
    [
      {
        prompt,
        samples,
        maxNewTokens: wholeNumber('--max-new-tokens', flags.maxNewTokens, 1),
        temperature: anyNumber('--temperature', flags.temperature),
        topK: wholeNumber('--top-k', flags.topK, 0),
        topP: anyNumber('--top-p', flags.topP),
        minP: anyNumber('--min-p', flags.minP),
        repetitionPenalty: anyNumber('--repetition-penalty', flags.repetitionPenalty),
        stopStrings: flags.stop ?? [],
        stopIds: flags.ignoreEos ? [] : stopIds(tokenizer, model.config),
        seed: wholeNumber('--seed', flags.seed, 0),
        ...(streaming
          ? {
              onToken: (_: number, id: number) => void printPart(text === undefined ? `${id} ` : text.push(id)),
            }
          : {}),
      },
    ],
    { signal: interrupt.signal },
  )) as [Generation[]];
  interrupt.dispose();
  if (streaming) printPart(`${text?.flush() ?? ''}\n`);
  printReplies(replies, flags, (performance.now() - started) / 1000, streaming, prompt);
}

/** --ids needs none, but shows text where there is one. */
async function tokenizerOf(folder: string, flags: Flags): Promise<Tokenizer | undefined> {
  if (flags.prompt === undefined && !existsSync(join(folder, 'tokenizer.json'))) return undefined;
  return Tokenizer.load(folder);
}

function promptIds(flags: Flags, tokenizer: Tokenizer | undefined): number[] {
  if (flags.ids !== undefined) return wholeNumbers('--ids', flags.ids);
  const loaded = tokenizer as Tokenizer;
  const prompt = flags.prompt as string;
  const ids = flags.chat
    ? loaded.encode(loaded.renderChat([{ role: 'user', content: prompt }], { addGenerationPrompt: true }))
    : loaded.encode(prompt, { addSpecialTokens: true });
  if (ids.length === 0) throw new UserError('The prompt has no tokens: give at least one character.');
  return ids;
}

function stopIds(tokenizer: Tokenizer | undefined, config: Record<string, unknown>): number[] {
  if (tokenizer !== undefined) return [...tokenizer.eosIds];
  return [config.eos_token_id].flat().filter((id) => typeof id === 'number');
}

function printReplies(replies: Generation[], flags: Flags, seconds: number, streamed: boolean, prompt: number[]): void {
  const tokens = replies.reduce((sum, reply) => sum + reply.ids.length, 0);
  if (flags.json) {
    const rows = replies.map((reply) => ({ ...reply, logprobs: Array.from(reply.logprobs) }));
    printJson({ prompt_ids: prompt, replies: rows, tokens_per_second: tokens / seconds }, 2);
    return;
  }
  if (!streamed) for (const [i, reply] of replies.entries()) print(`[${i + 1}] ${reply.text ?? reply.ids.join(' ')}\n`);
  tell(
    `${tokens} tokens in ${seconds.toFixed(1)} s (${Math.round(tokens / seconds)}/s), ${replies.map((reply) => reply.finish).join(', ')}`,
  );
}
