/**
 * Every policy algorithm from one start on a mixture of tasks: held-out verifier accuracy before and after, lengths and
 * entropy, over several seeds. Writes a table and a picture for the docs.
 *
 *     npm run bench -- policy-table --model models/tiny --seeds 3 --steps 32
 *
 * What each run came to lies under `--out`; a run that is there is not done again. So a study that was cut short goes on, and
 * several processes (with OMP_NUM_THREADS=1 and other `--algorithms` each) can share it.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { meanOf, policyAlgorithm, policyAlgorithms, stdOf } from '../src/algorithms/index.ts';
import { bars, grid, lineChart, type MetricRow, openRun, toPng } from '../src/runs/index.ts';
import { trainPolicy } from '../src/trainers/policy/policy.ts';
import type { Reading } from './run.ts';
import { flagsOf } from './support/preference-measures.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'number_sorting:1,spell_backward:1,letter_counting:1,propositional_logic:1',
  // a teacher is no part of the comparison
  algorithms: [
    ...policyAlgorithms.filter(({ needsTeacher }) => !needsTeacher).map(({ name }) => name),
    'ppo-lambda-1',
  ].join(','),
  seeds: '3',
  steps: '32',
  prompts: '16',
  group: '8',
  'held-out': '160',
  'eval-samples': '4',
  'max-new-tokens': '64',
  lr: '2e-4',
  warmup: '4',
  // weight of the KL to the start: none, so that nothing but the reward is compared
  'kl-coef': '0',
  // algorithms whose gradients are of another size: name=lr,…
  'lr-of': '',
  device: 'auto',
  out: 'outputs/policy-table',
};

/** Settings of an algorithm that are compared with its own defaults. */
const variants: Record<string, { algorithm: string; lam?: number; ppoEpochs?: number; valueCoef?: number }> = {
  // a reward at the end only: what an untrained critic says on the way is noise
  'ppo-lambda-1': { algorithm: 'ppo', lam: 1, ppoEpochs: 2, valueCoef: 0.1 },
};

/** One run's evaluations, first to last, and the entropy of what it wrote beside them. */
interface Outcome {
  algorithm: string;
  seed: number;
  evaluations: MetricRow[];
  entropy: { before: number; after: number };
  seconds: number;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  const folder = mkdtempSync(join(tmpdir(), 'attune-policy-table-'));
  const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);
  const results = join(flags.out, 'runs');
  mkdirSync(results, { recursive: true });
  try {
    for (const seed of seeds) {
      for (const algorithm of flags.algorithms.split(',')) {
        const file = join(results, `${algorithm}-${seed}.json`);
        if (!existsSync(file)) {
          const outcome = await train(flags, { algorithm, seed, folder });
          writeFileSync(file, `${JSON.stringify(outcome)}\n`);
        }
        const outcome = JSON.parse(readFileSync(file, 'utf8')) as Outcome;
        yield { name: `${algorithm} ${seed}`, ...figures(outcome), seconds: Math.round(outcome.seconds) };
        await write(flags.out, readOutcomes(results));
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function train(
  flags: typeof defaults,
  { algorithm, seed, folder }: { algorithm: string; seed: number; folder: string },
): Promise<Outcome> {
  const rates = new Map(flags['lr-of'].split(',').map((entry) => entry.split('=') as [string, string]));
  const steps = Number(flags.steps);
  const settings = variants[algorithm] ?? { algorithm };
  // some have no such term at all, and say so when asked for one
  const kl = 'klCoef' in policyAlgorithm(settings.algorithm).defaults ? { klCoef: Number(flags['kl-coef']) } : {};
  const started = performance.now();
  using run = await trainPolicy(
    {
      model: flags.model,
      device: flags.device,
      task: flags.tasks,
      ...settings,
      seed,
      outputDir: folder,
      batchSize: Number(flags.prompts),
      gradAccum: 1,
      groupSize: Number(flags.group),
      topP: 1,
      maxSteps: steps,
      maxNewTokens: Number(flags['max-new-tokens']),
      lrSchedule: 'linear',
      lr: Number(rates.get(algorithm) ?? flags.lr),
      warmupSteps: Number(flags.warmup),
      ...kl,
      evalSteps: Math.max(1, Math.floor(steps / 4)),
      evalNumPrompts: Number(flags['held-out']),
      evalSamples: Number(flags['eval-samples']),
      saveSteps: -1,
      saveModel: false,
      saveRollouts: false,
      reportTo: [],
      runName: `${algorithm}-${seed}`,
    },
    { run: { curves: false } },
  ).open();
  await run.finish();
  const rows = openRun(run.folder).metrics();
  const entropies = rows.flatMap(({ 'train/entropy': entropy }) => (entropy === undefined ? [] : [entropy]));
  return {
    algorithm,
    seed,
    evaluations: rows.filter((row) => row['eval/accuracy'] !== undefined),
    entropy: { before: meanOf(entropies.slice(0, 5)), after: meanOf(entropies.slice(-5)) },
    seconds: (performance.now() - started) / 1000,
  };
}

function readOutcomes(results: string): Map<string, Outcome[]> {
  const files = readdirSync(results).filter((file) => file.endsWith('.json'));
  const all = files.map((file) => JSON.parse(readFileSync(join(results, file), 'utf8')) as Outcome);
  const names = [...policyAlgorithms.map(({ name }) => name), ...Object.keys(variants)];
  const known = names.filter((name) => all.some((each) => each.algorithm === name));
  return new Map(known.map((name) => [name, all.filter(({ algorithm }) => algorithm === name)]));
}

/** What the table shows of a run: `pass_at_1` is the share of sampled answers that are right, `accuracy` that of greedy ones. */
function measured({ evaluations }: Outcome): string[] {
  return Object.keys(evaluations[0] ?? {}).filter((name) => /^eval\/(pass_at_1|accuracy)(_|$)/.test(name));
}

const before = ({ evaluations }: Outcome, name: string) => evaluations[0]?.[name] ?? Number.NaN;
const after = ({ evaluations }: Outcome, name: string) => evaluations.at(-1)?.[name] ?? Number.NaN;

function figures(outcome: Outcome): Record<string, string> {
  const change = (name: string) => `${percent(before(outcome, name))} → ${percent(after(outcome, name))}`;
  return Object.fromEntries(measured(outcome).map((name) => [name.slice('eval/'.length), change(name)]));
}

/** The table and the picture as far as they go, after every run: a long study may be cut short. */
async function write(out: string, outcomes: ReadonlyMap<string, Outcome[]>): Promise<void> {
  const [first] = [...outcomes.values()].flat();
  if (first === undefined) return;
  const names = measured(first).filter((name) => name.startsWith('eval/pass_at_1'));
  const tasks = names.filter((name) => name !== 'eval/pass_at_1');
  const spread = (own: readonly Outcome[], of: (outcome: Outcome) => number, shown: (value: number) => string) =>
    own.length > 1 ? `${shown(meanOf(own.map(of)))} ± ${shown(stdOf(own.map(of)))}` : shown(meanOf(own.map(of)));
  const all = [...outcomes.values()].flat();
  const row = (label: string, own: readonly Outcome[], at: typeof after, entropy: (outcome: Outcome) => number) =>
    `| ${[
      label,
      ...[...tasks, 'eval/pass_at_1', 'eval/accuracy'].map((name) => spread(own, (each) => at(each, name), percent)),
      spread(
        own,
        (each) => at(each, 'eval/length_mean'),
        (value) => value.toFixed(1),
      ),
      spread(own, entropy, (value) => value.toFixed(2)),
    ].join(' | ')} |`;
  const lines = [
    `| after | ${tasks.map(taskOf).join(' | ')} | all, sampled | all, greedy | tokens | entropy |`,
    `|---|${'--:|'.repeat(tasks.length + 4)}`,
    row('the start', all, before, ({ entropy }) => entropy.before),
    ...[...outcomes].map(([name, own]) => row(`\`${name}\``, own, after, ({ entropy }) => entropy.after)),
  ];
  const course = (name: string) =>
    lineChart({
      title: `${taskOf(name)}: right, of sampled answers`,
      xLabel: 'step',
      smooth: false,
      series: [...outcomes].map(([label, own]) => ({
        name: label,
        x: first.evaluations.map(({ step }) => step),
        y: first.evaluations.map((_, i) => meanOf(own.map(({ evaluations }) => evaluations[i]?.[name] ?? Number.NaN))),
      })),
    });
  const charts = [
    ...tasks.map(course),
    bars({
      title: 'All tasks, before and after',
      bars: [...outcomes].flatMap(([label, own]) => [
        { label, group: 'before', ...figure(own.map((each) => before(each, 'eval/pass_at_1'))) },
        { label, group: 'after', ...figure(own.map((each) => after(each, 'eval/pass_at_1'))) },
      ]),
    }),
  ];
  writeFileSync(join(out, 'policy-table.md'), `${lines.join('\n')}\n`);
  writeFileSync(join(out, 'policy-table.png'), await toPng(grid(charts, { columns: 2 })));
}

const taskOf = (name: string) => name.slice('eval/pass_at_1_'.length) || 'all';
const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
const figure = (values: readonly number[]) => ({ value: meanOf(values), error: stdOf(values) });
