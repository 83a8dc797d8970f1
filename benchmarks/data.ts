/**
 * Tokenising and batching pairs of HH-RLHF's size, generated: `npm run bench -- data [--pairs 100000] [--tokenizer folder]`.
 * The lengths follow HH's (prompt 517, responses 263 and 241 characters on average); without a tokenizer one is trained.
 */
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import { Batches, openDataset, tokenise } from '../src/data/index.ts';
import { Random } from '../src/random.ts';
import { Tokenizer, trainBpe } from '../src/text/index.ts';
import type { Reading } from './run.ts';

const vocabulary = words(20_000);
const stepMs = 30;
const timedSteps = 200;

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: { pairs: { type: 'string', default: '100000' }, tokenizer: { type: 'string' } },
  });
  const pairs = Number(values.pairs);
  const folder = await mkdtemp(join(tmpdir(), 'attune-bench-data-'));
  try {
    const file = join(folder, 'pairs.jsonl');
    await writePairs(file, pairs);
    const megabytes = (await stat(file)).size / 1e6;
    const tokenizer = await (values.tokenizer === undefined ? trained(folder) : Tokenizer.load(values.tokenizer));
    const dataset = await openDataset(file, { shape: 'preference' });

    let took = await timed(async () => {
      for await (const _ of dataset);
    });
    yield reading('read', took, { pairsPerSecond: pairs / took.seconds, megabytesPerSecond: megabytes / took.seconds });

    const cache = join(folder, 'cache');
    let tokens = await tokenise(
      await openDataset(file, { shape: 'preference', maxSamples: 1, sample: 'first' }),
      tokenizer,
      { cache },
    );
    await tokens.close();
    took = await timed(async () => {
      tokens = await tokenise(dataset, tokenizer, { cache, maxLength: 2048 });
    });
    yield reading('tokenise', took, {
      pairsPerSecond: pairs / took.seconds,
      tokensPerSecond: tokens.totalTokens / took.seconds,
    });

    await tokens.close();
    took = await timed(async () => {
      tokens = await tokenise(dataset, tokenizer, { cache, maxLength: 2048 });
    });
    yield reading('open the cache again', took, {
      pairsPerSecond: pairs / took.seconds,
      tokensPerSecond: tokens.totalTokens / took.seconds,
    });

    for (const options of [{ batchSize: 32 }, { tokenBudget: 16_384, lengthAware: true }]) {
      let batches = 0;
      took = await timed(async () => {
        for await (const _ of new Batches(tokens, options)) batches++;
      });
      const label = options.batchSize === undefined ? 'batches of 16,384 tokens' : 'batches of 32 pairs';
      yield reading(label, took, { pairsPerSecond: pairs / took.seconds, batchesPerSecond: batches / took.seconds });
    }
    yield await waiting(new Batches(tokens, { batchSize: 32 }));
    await tokens.close();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** How long a loop whose steps take `stepMs` waits for its batches. */
async function waiting(batches: Batches): Promise<Reading> {
  const waits: number[] = [];
  const took = await timed(async () => {
    let asked = performance.now();
    for await (const _ of batches) {
      waits.push(performance.now() - asked);
      if (waits.length > timedSteps) break;
      await new Promise((resolve) => setTimeout(resolve, stepMs));
      asked = performance.now();
    }
  });
  const steady = waits.slice(1).sort((a, b) => a - b);
  return reading(`${timedSteps} steps of ${stepMs} ms`, took, {
    meanWaitMs: steady.reduce((sum, wait) => sum + wait, 0) / steady.length,
    worstWaitMs: steady.at(-1) ?? 0,
  });
}

/** CPU seconds stand beside the wall clock: on a shared machine only they compare from run to run. */
function reading(name: string, { seconds, cpuSeconds }: Timing, figures: Record<string, number>): Reading {
  const rounded = Object.entries(figures).map(([figure, value]) => [figure, round(value)]);
  return {
    name,
    seconds: round(seconds),
    cpuSeconds: round(cpuSeconds),
    ...Object.fromEntries(rounded),
    peakMiB: round(process.resourceUsage().maxRSS / 1024),
  };
}

const round = (value: number) => Number(value.toPrecision(3));

interface Timing {
  seconds: number;
  cpuSeconds: number;
}

async function timed(work: () => Promise<void>): Promise<Timing> {
  const start = performance.now();
  const cpu = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(cpu);
  return { seconds: (performance.now() - start) / 1000, cpuSeconds: (user + system) / 1e6 };
}

async function writePairs(file: string, pairs: number): Promise<void> {
  const out = createWriteStream(file);
  const random = new Random(1);
  for (let i = 0; i < pairs; i++) {
    const turns = 1 + random.int(0, 3);
    const prompt = Array.from(
      { length: turns },
      () => `\n\nHuman: ${text(random, 90)}\n\nAssistant: ${text(random, 120)}`,
    ).join('');
    const opening = `${prompt}\n\nHuman: ${text(random, 90)}\n\nAssistant: `;
    const row = { chosen: opening + text(random, 263), rejected: opening + text(random, 241) };
    if (!out.write(`${JSON.stringify(row)}\n`)) await once(out, 'drain');
  }
  out.end();
  await finished(out);
}

/** Words after Zipf's law, for a length that is exponentially spread around `characters`. */
function text(random: Random, characters: number): string {
  const wanted = 10 + -Math.log(1 - random.float()) * (characters - 10);
  let result = '';
  while (result.length < wanted) {
    const rank = Math.floor(vocabulary.length ** random.float()) - 1;
    result += `${result === '' ? '' : ' '}${vocabulary[rank]}${random.int(0, 11) === 0 ? '.' : ''}`;
  }
  return result;
}

function words(count: number): string[] {
  const random = new Random(7);
  const onsets = ['b', 'c', 'd', 'f', 'g', 'h', 'l', 'm', 'n', 'p', 'r', 's', 't', 'st', 'tr', 'th', 'w', ''];
  const rimes = ['a', 'e', 'i', 'o', 'u', 'an', 'er', 'ing', 'on', 'ation', 'y', 'al', 'ent', 'es'];
  const part = (list: string[]) => list[random.int(0, list.length - 1)] as string;
  return Array.from({ length: count }, (_, rank) => {
    const syllables = 1 + Math.min(3, Math.floor(Math.log10(rank + 1))) - random.int(0, 1);
    return Array.from({ length: Math.max(1, syllables) }, () => part(onsets) + part(rimes)).join('');
  });
}

async function trained(folder: string): Promise<Tokenizer> {
  const random = new Random(3);
  const texts = Array.from({ length: 4000 }, () => text(random, 500));
  return trainBpe(texts, { out: join(folder, 'tokenizer'), vocabSize: 16_000 });
}
