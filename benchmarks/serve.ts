/**
 * `attune serve` under load: `npm run bench -- serve [--clients 64] [--seconds 120] [--device cuda] [--model folder] [--rounds 4]
 * [--shape 4b] [--tokens 64] [--parts throughput,first,leave,turns,stages]`.
 *
 * Tokens per second of that many streaming clients beside the sampler that is given the same requests in the same run; time
 * to the first text at 1, 16 and 64 clients; clients that leave at random, with the parts of the memory every ten seconds; the
 * second turn of a long conversation beside its first, with `stages` also where their time goes. Without --model: random
 * weights, a Llama of 15M parameters on a CPU, Qwen3-0.6B's shape on a GPU. Clients are a process of their own.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../src/errors.ts';
import { initModel, loadModelFolder, type Model, Sampler } from '../src/models/index.ts';
import { Registry, type ServedModel, serve } from '../src/serve/index.ts';
import { packageRoot } from '../src/tensor/engine/native.ts';
import { liveTensors } from '../src/tensor/index.ts';
import { Tokenizer } from '../src/text/index.ts';
import type { Reading } from './run.ts';
import { Crowd } from './serve/crowd.ts';
import { leaving } from './serve/leaving.ts';
import { type Load, messageOf, seedOf } from './serve/requests.ts';
import { turns } from './serve/turns.ts';
import { LLAMA_15M, QWEN3_4B, QWEN3_06B } from './support/shapes.ts';

const tiny = join(packageRoot, 'models/tiny');

/** models/tiny's tokenizer with as many tokens as a shape has: the further ones write a word each. */
async function tokenizerOf(vocabSize: number): Promise<Tokenizer> {
  const folder = mkdtempSync(join(tmpdir(), 'attune-bench-'));
  cpSync(tiny, folder, { recursive: true, filter: (path) => !path.endsWith('.safetensors') });
  const path = join(folder, 'tokenizer.json');
  const json = JSON.parse(readFileSync(path, 'utf8'));
  const known = new Set<number>([...Object.values<number>(json.model.vocab), ...json.added_tokens.map(idOf)]);
  for (let id = 0; id < vocabSize; id++) if (!known.has(id)) json.model.vocab[`w${id}`] = id;
  writeFileSync(path, JSON.stringify(json));
  const tokenizer = await Tokenizer.load(folder);
  rmSync(folder, { recursive: true });
  return tokenizer;
}
const idOf = ({ id }: { id: number }): number => id;

const shapes: Record<string, typeof LLAMA_15M | typeof QWEN3_06B> = {
  '15m': { ...LLAMA_15M, max_position_embeddings: 8192 },
  '0.6b': QWEN3_06B,
  '4b': QWEN3_4B,
};

async function subject(device: string, folder: string | undefined, name: string): Promise<[Model, Tokenizer]> {
  if (folder !== undefined)
    return [
      loadModelFolder(folder, { device, ...(device === 'cpu' ? { dtype: 'float32' } : {}) }),
      await Tokenizer.load(folder),
    ];
  const shape = shapes[name];
  if (shape === undefined) throw new UserError(`--shape ${name}: there are ${Object.keys(shapes).join(', ')}.`);
  return [initModel(shape, { seed: 0, device }), await tokenizerOf(shape.vocab_size)];
}

/** The same requests, given to a sampler at once. */
async function offline(served: ServedModel, load: Load): Promise<{ tokens: number; seconds: number; cpu: number }> {
  const { tokenizer, model, maxTokens } = served;
  using sampler = new Sampler(model, { slots: load.clients, maxLength: maxTokens, tokenizer });
  const requests = Array.from({ length: load.rounds }, (_, round) =>
    Array.from({ length: load.clients }, (_, client) => ({
      prompt: tokenizer.encode(
        tokenizer.renderChat([{ role: 'user', content: messageOf(client, round, load.promptWords) }], {
          addGenerationPrompt: true,
        }),
      ),
      maxNewTokens: load.maxTokens,
      seed: seedOf(client, round),
      stopIds: tokenizer.eosIds,
    })),
  ).flat();
  const [started, cpu] = [performance.now(), process.cpuUsage()];
  const responses = (await sampler.generate(requests)).flat();
  const tokens = responses.reduce((sum, { ids }) => sum + ids.length, 0);
  return { tokens, seconds: (performance.now() - started) / 1000, cpu: cpuSeconds(cpu) };
}

const cpuSeconds = (since: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
};

const quantile = (values: readonly number[], q: number): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return Math.round(10 * (sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN)) / 10;
};
const round = (value: number, digits = 2): number => Number(value.toFixed(digits));

/** Two tokens of the sampler. */
async function warmUp(model: Model): Promise<void> {
  using sampler = new Sampler(model);
  await sampler.generate([{ prompt: [5, 6], maxNewTokens: 2 }]);
}

export async function* run(args: string[]): AsyncIterable<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      clients: { type: 'string', default: '64' },
      seconds: { type: 'string', default: '120' },
      rounds: { type: 'string', default: '4' },
      repeats: { type: 'string', default: '3' },
      device: { type: 'string', default: 'cpu' },
      model: { type: 'string' },
      shape: { type: 'string' },
      tokens: { type: 'string' },
      parts: { type: 'string', default: 'throughput,first,leave,turns' },
    },
  });
  const [clients, seconds] = [Number(values.clients), Number(values.seconds)];
  const cuda = values.device !== 'cpu';
  const [model, tokenizer] = await subject(values.device, values.model, values.shape ?? (cuda ? '0.6b' : '15m'));
  const parts = new Set(values.parts.split(','));
  using _ = model;
  const room = Math.min(cuda ? 8192 : 4608, model.decoder.spec.maxPositions ?? 4608);
  const tokensEach = Number(values.tokens ?? (cuda ? 256 : 64));
  const base = { promptWords: cuda ? 60 : 12, maxTokens: tokensEach, leaving: 0, rounds: Number(values.rounds) };
  const crowd = await Crowd.start();
  try {
    await warmUp(model); // tables of positions are made once and stay
    const before = liveTensors();
    // Throughput and first text: sequences of the load's own length, so that every client has a slot.
    {
      using registry = new Registry({ maxTokens: cuda ? 1024 : 256, slots: clients });
      const served = registry.addLoaded('subject', model, tokenizer);
      await using server = await serve(registry, { port: 0 });
      const load = (count: number, rounds = base.rounds): Load => ({
        ...base,
        url: server.url,
        clients: count,
        rounds,
      });
      await crowd.run(load(clients, 1)); // warm-up
      await offline(served, load(clients, 1));
      if (parts.has('throughput')) yield* throughput(crowd, served, load(clients), Number(values.repeats));
      for (const count of parts.has('first') ? [1, 16, 64] : []) {
        const { firstTextMs } = await crowd.run(load(count, Math.max(2, Math.ceil(64 / count))));
        yield {
          name: `first text, ${count} clients`,
          p50ms: quantile(firstTextMs, 0.5),
          p99ms: quantile(firstTextMs, 0.99),
        };
      }
      if (parts.has('leave')) yield* leaving(crowd, { ...load(clients), seconds, leaving: 0.5 });
    }
    yield { name: 'tensors', before, after: liveTensors() };
    if (parts.has('turns') || parts.has('stages'))
      yield* turns(crowd, model, tokenizer, { room, stages: parts.has('stages') });
  } finally {
    crowd.end();
  }
}

async function* throughput(crowd: Crowd, served: ServedModel, load: Load, repeats: number): AsyncIterable<Reading> {
  const best = { serve: 0, sampler: 0, serveCpu: Number.POSITIVE_INFINITY, samplerCpu: Number.POSITIVE_INFINITY };
  // In turn, so that both have their share of a machine with other work; the best of each counts.
  for (let i = 0; i < repeats; i++) {
    const cpu = process.cpuUsage();
    const reading = await crowd.run(load);
    best.serveCpu = Math.min(best.serveCpu, cpuSeconds(cpu) / reading.tokens);
    best.serve = Math.max(best.serve, reading.tokens / reading.seconds);
    const beside = await offline(served, load);
    best.samplerCpu = Math.min(best.samplerCpu, beside.cpu / beside.tokens);
    best.sampler = Math.max(best.sampler, beside.tokens / beside.seconds);
  }
  yield {
    name: `${load.clients} clients beside the sampler`,
    serveTokensPerSecond: Math.round(best.serve),
    samplerTokensPerSecond: Math.round(best.sampler),
    ratio: round(best.serve / best.sampler),
    serveCpuMicrosecondsPerToken: round(1e6 * best.serveCpu, 1),
    samplerCpuMicrosecondsPerToken: round(1e6 * best.samplerCpu, 1),
  };
}
