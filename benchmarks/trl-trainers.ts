/**
 * GRPO and DPO on models/tiny beside TRL's own trainers: accuracy and seconds a step.
 *
 *     npm run bench -- trl-trainers [--programs attune,trl] [--jobs grpo,dpo] [--seeds 1,2,3]
 *
 * Both programs get the same rows, settings and threads, and attune measures both models on the same held-out problems. Each
 * reading is a line of recipes/replications/trl/results.jsonl, and one that is there is not taken again. Needs a Python with trl
 * (ATTUNE_PYTHON names it).
 */
import { spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { askFolder, pairsOf, quiet, rightShare } from '../recipes/replications/policies.ts';
import type { PeerReading } from '../recipes/replications/trl/section.ts';
import { trainPolicy, trainPreference } from '../src/index.ts';
import { loadTokenizer } from '../src/models/index.ts';
import { mixture, taggedAnswer } from '../src/tasks/index.ts';
import { ChatFormat } from '../src/text/index.ts';
import type { Reading } from './run.ts';
import { python } from './support/peer.ts';
import { flagsOf } from './support/preference-measures.ts';

const defaults = { programs: 'attune,trl', jobs: 'grpo,dpo', seeds: '1,2,3', threads: '2' };
const tasks = 'number_sorting:1-2,spell_backward:1-2';
const root = join(import.meta.dirname, '..');
const results = join(root, 'recipes/replications/trl/results.jsonl');
const model = join(root, 'models/tiny');

const settings = {
  grpo: { steps: 16, lr: 2e-4, warmup: 4, prompts: 8, group: 8, maxNewTokens: 64 },
  // Early enough: with more steps the accuracy falls again (docs/replications.md, 2), and the order of the pairs decides how soon.
  dpo: { steps: 20, lr: 1e-4, warmup: 4, pairs: 16, beta: 0.1 },
} as const;
type Job = keyof typeof settings;

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  for (const seed of flags.seeds.split(',').map(Number))
    for (const job of flags.jobs.split(',') as Job[])
      for (const program of flags.programs.split(',') as PeerReading['program'][]) {
        const known = taken().find((one) => one.program === program && one.job === job && one.seed === seed);
        const reading = known ?? (await read(program, job, seed, Number(flags.threads)));
        if (known === undefined) appendFileSync(results, `${JSON.stringify(reading)}\n`);
        yield { name: `${job}, ${program}, seed ${seed}`, ...reading };
      }
}

const taken = () =>
  existsSync(results)
    ? readFileSync(results, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as PeerReading)
    : [];

async function read(program: PeerReading['program'], job: Job, seed: number, threads: number): Promise<PeerReading> {
  const folder = mkdtempSync(join(tmpdir(), 'attune-trl-'));
  try {
    const rows = job === 'grpo' ? problems(seed) : await pairs(seed);
    const asked = { tasks, problems: 64, samples: 4, seed: 100 + seed };
    const before = rightShare(await askFolder(model, asked));
    const train = program === 'trl' ? byTrl : byAttune;
    const { trained, secondsAStep } = await train(job, { seed, threads, folder, rows });
    const after = rightShare(await askFolder(trained, asked));
    return { program, job, seed, before, after, secondsAStep };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Work {
  seed: number;
  threads: number;
  folder: string;
  rows: readonly { prompt: string; answer?: string; chosen?: string; rejected?: string }[];
}

const problems = (seed: number) =>
  Array.from({ length: 256 }, (_, i) => {
    const { prompt, answer } = mixture(tasks).example(seed, i, { part: 'train' });
    return { prompt, answer };
  });

/** Enough pairs for all steps, of the model's own responses. */
async function pairs(seed: number) {
  const groups = await askFolder(model, { tasks, problems: 400, samples: 6, seed, part: 'train' });
  return pairsOf(groups).slice(0, settings.dpo.steps * settings.dpo.pairs);
}

async function byAttune(job: Job, { seed, folder, rows }: Work) {
  const { steps, lr, warmup } = settings[job];
  const common = {
    model,
    seed,
    lr,
    maxSteps: steps,
    warmupSteps: warmup,
    lrSchedule: 'constant' as const,
    gradAccum: 1,
    maxGradNorm: 1,
    outputDir: folder,
    runName: 'run',
    reportTo: [],
    saveSteps: -1,
    evalSteps: -1,
    weightDecay: 0,
  };
  const { grpo, dpo } = settings;
  const known = new Map(rows.map(({ prompt, answer }) => [prompt, answer]));
  const training =
    job === 'grpo'
      ? trainPolicy(
          {
            ...common,
            algorithm: 'grpo',
            klCoef: 0,
            batchSize: grpo.prompts,
            groupSize: grpo.group,
            eosPenalty: 0,
            maxNewTokens: grpo.maxNewTokens,
            evalNumPrompts: 0,
            saveRollouts: false,
            verifierReward: false,
            dataset: rows.map(({ prompt }) => ({ prompt })),
          },
          {
            ...quiet,
            rewards: [
              function exact(batch) {
                return batch.map(({ prompt, response }) => {
                  const text = typeof prompt === 'string' ? prompt : (prompt.at(-1)?.content as string);
                  return Number(taggedAnswer(response) === known.get(text));
                });
              },
            ],
          },
        )
      : trainPreference(
          {
            ...common,
            loss: 'dpo',
            beta: dpo.beta,
            batchSize: dpo.pairs,
            maxLength: 384,
            validationSplit: 0,
            dataset: [...rows],
          },
          { ...quiet, cache: false },
        );
  using opened = await training.open();
  const begun = performance.now();
  let ended = begun;
  for await (const { step } of opened) if (step === steps) ended = performance.now();
  return { trained: join(opened.folder, 'final'), secondsAStep: (ended - begun) / 1000 / steps };
}

/**
 * TRL's GRPO takes chats. Its DPO is given texts as the template writes them, so that both train on the same tokens: of a chat it
 * would also train the line feed after the turn's end, which models/tiny never writes.
 */
async function byTrl(job: Job, { seed, threads, folder, rows }: Work) {
  const chat = new ChatFormat(await loadTokenizer({ model }));
  const turn = (content: string) => [{ role: 'user' as const, content }];
  const asTrlReads = rows.map(({ prompt, answer, chosen, rejected }) =>
    job === 'grpo' ? { prompt: turn(prompt), answer } : { prompt: chat.prompt(turn(prompt)), chosen, rejected },
  );
  const file = join(folder, 'rows.jsonl');
  writeFileSync(file, asTrlReads.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const asked = join(folder, 'job.json');
  writeFileSync(asked, JSON.stringify({ job, seed, threads, folder, model, rows: file, ...settings[job] }));
  const script = join(root, 'benchmarks/trl_trainers.py');
  const { stdout, stderr } = spawnSync(python, [script, asked], { encoding: 'utf8', maxBuffer: 2 ** 26 });
  const line = stdout.split('\n').find((each) => each.startsWith('{"case"'));
  if (line === undefined) throw new Error(`TRL gave no reading:\n${stderr.slice(-2000)}`);
  return {
    trained: join(folder, 'trained'),
    secondsAStep: (JSON.parse(line) as { seconds_a_step: number }).seconds_a_step,
  };
}
