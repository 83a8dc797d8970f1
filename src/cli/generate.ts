/**
 * attune generate MODEL "Once upon a time" [--chat] [--temperature 0 --max-new-tokens 64 --seed 1 --json]
 * attune generate MODEL --ids 1,2,3
 */
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { exitCodeOf } from '../exit-codes.ts';
import { loadTokenizer } from '../models/files/tokenizer.ts';
import { deviceOf, dtypeOf, loadModel, type Model, type SampledResponse, Sampler } from '../models/index.ts';
import { field, withRules } from '../runs/index.ts';
import { quoted } from '../shell.ts';
import { counted } from '../spelling.ts';
import type { Tokenizer } from '../text/index.ts';
import { registerCommand } from './options/command.ts';
import {
  cacheDtypeField,
  deviceField,
  dtypeField,
  modelField,
  precisionField,
  quantTypeField,
  tokenizerField,
} from './options/model-fields.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, printJson, printPart, tell } from './terminal/print.ts';

const prompting = 'Prompt';
const sampling = 'Sampling';
const count = () => z.number().int().positive();

const options = z.object({
  model: modelField,
  tokenizer: tokenizerField,
  dtype: dtypeField,
  device: deviceField,
  quantType: quantTypeField,
  precision: precisionField,
  cacheDtype: cacheDtypeField,
  prompt: field(z.string().optional(), { description: 'what to continue', group: prompting }),
  ids: field(z.array(z.number().int().min(0)).min(1).optional(), {
    description: 'the same as token ids; needs no tokenizer',
    group: prompting,
  }),
  chat: field(z.boolean().default(false), {
    description: "the prompt is a user's message in the model's chat template",
    group: prompting,
  }),
  maxNewTokens: field(count().default(128), { description: 'tokens at most', group: sampling }),
  temperature: field(z.number().min(0).default(0), {
    description: '0 takes the likeliest token each time',
    group: sampling,
  }),
  topK: field(z.number().int().min(0).default(0), { description: 'only the k likeliest; 0 = all', group: sampling }),
  topP: field(z.number().positive().max(1).default(1), {
    description: 'the fewest tokens that hold this much probability',
    group: sampling,
  }),
  minP: field(z.number().min(0).max(1).default(0), {
    description: "only tokens with this share of the likeliest one's probability",
    group: sampling,
  }),
  repetitionPenalty: field(z.number().positive().default(1), {
    description: 'above 1 makes tokens that occurred before less likely',
    group: sampling,
  }),
  stop: field(z.array(z.string().min(1)).default([]), {
    description: 'strings that end the response',
    group: sampling,
    variadic: true,
  }),
  ignoreEos: field(z.boolean().default(false), {
    description: 'continue past the end-of-text token',
    group: sampling,
  }),
  samples: field(count().default(1), { description: 'responses', group: sampling }),
  seed: field(z.number().int().min(0).default(42), { description: 'response i has seed + i', group: sampling }),
  json: field(z.boolean().default(false), { description: 'ids, log-probs and text as JSON, printed at the end' }),
});

const greedy = 'the likeliest token is taken each time (--temperature 0)';

export const generateSchema = withRules(options, [
  { options: ['topK', 'minP'], unread: ({ temperature }) => temperature === 0, because: greedy },
  { options: ['topP'], unread: ({ temperature, topP }) => temperature === 0 && topP < 1, because: greedy },
  {
    options: ['samples'],
    unread: ({ temperature, samples }) => temperature === 0 && samples > 1,
    because: `all of them would be the same: ${greedy}`,
  },
  { options: ['chat'], unread: ({ ids }) => ids !== undefined, because: '--ids are taken as they are' },
]);

type Config = z.output<typeof generateSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'generate',
    description: 'continue a prompt: a folder, an adapter, a run, or a name on the hub',
    schema: generateSchema,
    words: ['model', 'prompt'],
    examples: [
      'attune generate models/tiny --chat --prompt "What is 4 + 5?" --temperature 0.8 --samples 3',
      'attune generate checkpoints/grpo/run --prompt "Once upon a time" --stop "." "!"',
      'attune generate models/tiny --prompt "Once upon a time" --quant-type int4 --precision fast',
    ],
    run: generate,
  });
}

async function generate(config: Config): Promise<void> {
  if ((config.prompt === undefined) === (config.ids === undefined))
    throw new UserError(
      'Give the text to continue (attune generate MODEL "text", or --prompt), or its tokens with --ids, and not both.',
    );
  const progress = consoleProgress();
  const tokenizer = await tokenizerOf(config, progress);
  const device = deviceOf(config.device);
  const { quantType } = config;
  using model = await loadModel(config.model, {
    device,
    dtype: dtypeOf(config.dtype, device),
    ...(quantType === undefined ? {} : { quantType }),
    progress,
  });
  noteRewardModel(config.model, model);
  const prompt = promptIds(config, tokenizer);
  const vocabulary = model.decoder.spec.vocabSize;
  const foreign = prompt.find((id) => id >= vocabulary);
  if (foreign !== undefined) throw new UserError(`Token ${foreign} is not among the model's ${vocabulary}.`);
  const maxNewTokens = roomFor(config.maxNewTokens, prompt.length, model);
  using sampler = new Sampler(model, {
    precision: config.precision,
    cacheDtype: config.cacheDtype,
    ...(tokenizer === undefined ? {} : { tokenizer }),
  });
  using interrupt = onInterrupt();
  const streaming = config.samples === 1 && !config.json;
  const text = streaming ? tokenizer?.stream({ skipSpecialTokens: true }) : undefined;
  const onToken = (_: number, id: number) => printPart(text === undefined ? `${id} ` : text.push(id));
  const { samples, temperature, topK, topP, minP, repetitionPenalty, seed } = config;
  const started = performance.now();
  const [responses] = (await sampler.generate(
    [
      {
        prompt,
        samples,
        maxNewTokens,
        temperature,
        topK,
        topP,
        minP,
        repetitionPenalty,
        seed,
        stopStrings: config.stop,
        stopIds: config.ignoreEos ? [] : stopIds(tokenizer, model.config),
        ...(streaming ? { onToken } : {}),
      },
    ],
    { signal: interrupt.signal },
  )) as [SampledResponse[]];
  if (streaming) printPart(`${text?.flush() ?? ''}\n`);
  report(responses, config, (performance.now() - started) / 1000, streaming, prompt);
  if (interrupt.signal.aborted) process.exitCode = exitCodeOf(interrupt.signal);
}

/** --ids needs no tokenizer, but shows text if there is one. */
async function tokenizerOf(
  config: Config,
  progress: ReturnType<typeof consoleProgress>,
): Promise<Tokenizer | undefined> {
  const loading = loadTokenizer(config, progress);
  if (config.prompt !== undefined) return loading;
  return loading.catch((error) => {
    if (error instanceof UserError && config.tokenizer === undefined) return undefined;
    throw error;
  });
}

/** A reward model writes, too, but that is not what it was trained for. */
export function noteRewardModel(name: string, model: Model): void {
  if (model.head === null) return;
  tell(
    `Note: ${name} was trained to score, not to write; its rewards are given by attune score --checkpoint ${quoted(name)}.`,
  );
}

/** How many tokens fit after the prompt into the model's context; beyond it models are untrained, and some fail. */
function roomFor(asked: number, prompt: number, { decoder }: Model): number {
  const { maxPositions } = decoder.spec;
  if (prompt >= maxPositions)
    throw new UserError(`The prompt has ${prompt} tokens; the model reads ${maxPositions} positions.`);
  const room = maxPositions - prompt;
  if (asked <= room) return asked;
  tell(
    `--max-new-tokens ${asked}: the model reads ${maxPositions} positions, so the response ends after ${room} tokens at most.`,
  );
  return room;
}

function promptIds(config: Config, tokenizer: Tokenizer | undefined): number[] {
  if (config.ids !== undefined) return config.ids;
  const loaded = tokenizer as Tokenizer;
  const prompt = config.prompt as string;
  const ids = config.chat
    ? loaded.encode(loaded.renderChat([{ role: 'user', content: prompt }], { addGenerationPrompt: true }))
    : loaded.encode(prompt, { addSpecialTokens: true });
  if (ids.length === 0) throw new UserError('The prompt has no tokens: give at least one character.');
  return ids;
}

function stopIds(tokenizer: Tokenizer | undefined, config: Record<string, unknown>): number[] {
  if (tokenizer !== undefined) return [...tokenizer.eosIds];
  return [config.eos_token_id].flat().filter((id) => typeof id === 'number');
}

function report(
  responses: SampledResponse[],
  config: Config,
  seconds: number,
  streamed: boolean,
  prompt: number[],
): void {
  const tokens = responses.reduce((sum, response) => sum + response.ids.length, 0);
  if (config.json) {
    const rows = responses.map((response) => ({ ...response, logprobs: Array.from(response.logprobs) }));
    printJson({ prompt_ids: prompt, replies: rows, tokens_per_second: tokens / seconds }, 2);
    return;
  }
  if (!streamed)
    for (const [i, response] of responses.entries()) print(`[${i + 1}] ${response.text ?? response.ids.join(' ')}\n`);
  const ends = responses.map((response) => response.finish).join(', ');
  tell(`${counted(tokens, 'token')} in ${seconds.toFixed(1)} s (${Math.round(tokens / seconds)}/s), ${ends}`);
}
