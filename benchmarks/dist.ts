/**
 * `npm run bench -- dist [reward] [grpo] [--ranks 2] [--steps 4] [--rounds 1]`: the same training by one process of one thread and by
 * several, a reward model's step and a GRPO step on the 15M shape, in turn. `ceiling` is what the machine gives: as many processes
 * at once that have nothing to do with each other, each with the whole training. Also how much of a step its collectives take, and
 * how much of the exchange of gradients is hidden behind backward, by the trace of rank 0 (`--trace folder` keeps it).
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { freePort } from '../src/dist/launch.ts';
import { joinWorld } from '../src/dist/world.ts';
import { initModel, saveModel } from '../src/models/index.ts';
import { Random } from '../src/random.ts';
import { trainPolicy } from '../src/trainers/policy/policy.ts';
import { trainReward } from '../src/trainers/reward/reward.ts';
import type { Reading } from './run.ts';
import { LLAMA_15M } from './shapes.ts';

interface Timed {
  /** Seconds of each step but the first. */
  steps: number[];
  /** Share of those in which a collective ran on this rank. */
  collectives: number;
}

const tokenizer = fileURLToPath(new URL('../models/tiny', import.meta.url));
const words = ['red', 'blue', 'seven', 'answer', 'because', 'sum', 'the', 'of'];
const text = (key: string | number, length: number) => {
  const random = new Random('text', key);
  return Array.from({ length }, () => random.pick(words)).join(' ');
};

async function train(kind: string, folder: string, steps: number): Promise<Timed> {
  const world = await joinWorld();
  const shared = {
    model: join(folder, 'model'),
    tokenizer,
    outputDir: join(folder, 'runs', process.env.MASTER_PORT as string),
    maxSteps: steps + 1,
    dtype: 'float32' as const,
    evalSteps: -1,
    saveSteps: -1,
    saveModel: false,
    reportTo: ['none' as const],
    gradAccum: 4,
    lr: 1e-5,
  };
  const options = { cache: false, run: { curves: false } } as const;
  const pairs = Array.from({ length: 64 }, (_, i) => ({
    prompt: text(`p${i}`, 10),
    chosen: text(`c${i}`, 40 + (i % 20)),
    rejected: text(`r${i}`, 30 + (i % 30)),
  }));
  using run =
    kind === 'reward'
      ? await trainReward(
          { ...shared, dataset: pairs, batchSize: 2, validationSplit: 0, analysisSamples: 0, epochs: 9 },
          options,
        ).open()
      : await trainPolicy(
          {
            ...shared,
            dataset: pairs.map(({ prompt }) => ({ prompt })),
            algorithm: 'grpo',
            promptFormat: 'raw',
            batchSize: 2,
            groupSize: 8,
            maxNewTokens: 32,
            evalNumPrompts: 0,
          },
          { ...options, rewards: [(items) => items.map(({ response }) => response.length % 7)] },
        ).open();
  const group = world.groupFor('cpu');
  const times: number[] = [];
  let before = 0;
  for await (const { metrics } of run) {
    times.push(metrics['train/step_time'] as number);
    if (times.length === 1) before = group?.busySeconds ?? 0;
  }
  const measured = times.slice(1);
  const busy = (group?.busySeconds ?? 0) - before;
  return { steps: measured, collectives: busy / measured.reduce((sum, time) => sum + time, 0) };
}

interface Started {
  kind: string;
  folder: string;
  steps: number;
  ranks: number;
  /** Where every rank writes when it computed and exchanged. */
  trace?: string;
}

/** All ranks of one world, at once. */
async function together({ kind, folder, steps, ranks, trace }: Started): Promise<Timed[]> {
  const port = String(await freePort());
  const texts = await Promise.all(
    Array.from({ length: ranks }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${ranks}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${ranks}` };
      const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, ATTUNE_THREADS: '1' };
      const more = trace === undefined ? {} : { ATTUNE_DIST_TRACE: trace };
      const child = spawn(process.execPath, [import.meta.filename, 'rank', kind, folder, String(steps)], {
        env: { ...process.env, ...place, ...meeting, ...more },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let said = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        said += chunk;
      });
      return new Promise<string>((resolve) => child.on('close', () => resolve(said)));
    }),
  );
  return texts.map((text) => JSON.parse(text) as Timed);
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const meanStep = (ranks: readonly Timed[]) => mean(ranks.flatMap(({ steps }) => steps));

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      ranks: { type: 'string', default: '2' },
      steps: { type: 'string', default: '4' },
      rounds: { type: 'string', default: '1' },
      trace: { type: 'string' },
    },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-bench-dist-'));
  mkdirSync(join(folder, 'model'));
  using model = initModel(LLAMA_15M, { seed: 0 });
  saveModel(model, join(folder, 'model'));
  const ranks = Number(values.ranks);
  for (const kind of positionals.length > 0 ? positionals : ['reward', 'grpo']) {
    const work = { kind, folder, steps: Number(values.steps) };
    const [one, apart, many] = [[], [], []] as [Timed[], Timed[], Timed[]];
    for (let round = 0; round < Number(values.rounds); round++) {
      one.push(...(await together({ ...work, ranks: 1 })));
      const alone = Array.from({ length: ranks }, () => together({ ...work, ranks: 1 }));
      apart.push(...(await Promise.all(alone)).flat());
      many.push(...(await together({ ...work, ranks })));
    }
    const trace = join(values.trace ?? folder, `trace-${kind}`);
    await together({ ...work, ranks, trace });
    const [timesAsFast, ceiling] = [meanStep(one) / meanStep(many), (ranks * meanStep(one)) / meanStep(apart)];
    yield {
      name: `${kind}, ${ranks} processes of one thread`,
      one_s: meanStep(one),
      many_s: meanStep(many),
      times_as_fast: timesAsFast,
      ceiling,
      share_of_ceiling: timesAsFast / ceiling,
      collectives_share: mean(many.map(({ collectives }) => collectives)),
      hidden_share: hiddenShare(join(trace, 'rank-0.json')),
    };
  }
  rmSync(folder, { recursive: true });
}

interface TraceEvent {
  name: string;
  cat: string;
  ts: number;
  dur: number;
  args?: { bytes: number };
}

/** The share of the time in which gradients travelled that lies within the computing of micro-batches. */
function hiddenShare(path: string): number {
  const { traceEvents } = JSON.parse(readFileSync(path, 'utf8')) as { traceEvents: TraceEvent[] };
  const computing = traceEvents.filter(({ cat }) => cat === 'compute');
  // The small ones are counts and metrics.
  const exchanged = traceEvents.filter(({ cat, args }) => cat === 'collectives' && (args?.bytes ?? 0) > 100_000);
  const common = (a: TraceEvent, b: TraceEvent) =>
    Math.max(0, Math.min(a.ts + a.dur, b.ts + b.dur) - Math.max(a.ts, b.ts));
  const hidden = exchanged.reduce((sum, one) => sum + computing.reduce((all, other) => all + common(one, other), 0), 0);
  return hidden / exchanged.reduce((sum, { dur }) => sum + dur, 0);
}

if (process.argv[2] === 'rank') {
  const [, , , kind, folder, steps] = process.argv as string[];
  console.log(JSON.stringify(await train(kind as string, folder as string, Number(steps))));
  process.exit(0);
}
