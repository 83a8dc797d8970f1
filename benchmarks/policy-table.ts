/**
 * Every policy algorithm from one start on several tasks: held-out verifier accuracy before and after, lengths and entropy,
 * over several seeds. Writes a table and a picture for the docs.
 *
 *     npm run bench -- policy-table --model models/tiny --seeds 3 --steps 100
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { meanOf, policyAlgorithms, stdOf } from '../src/algorithms/index.ts';
import { bars, grid, lineChart, openRun, toPng } from '../src/runs/index.ts';
import { trainPolicy } from '../src/trainers/policy.ts';
import { flagsOf } from './preference-measures.ts';
import type { Reading } from './run.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'number_sorting:1;spell_backward:1;leg_counting:1',
  algorithms: policyAlgorithms.map(({ name }) => name).join(','),
  seeds: '3',
  steps: '100',
  prompts: '8',
  group: '8',
  'held-out': '128',
  'max-new-tokens': '128',
  lr: '2e-5',
  // algorithms whose gradients are of another size: name=lr,…
  'lr-of': '',
  device: 'auto',
  out: 'outputs/policy-table',
};

interface Outcome {
  before: number;
  after: number;
  lengthBefore: number;
  lengthAfter: number;
  entropyBefore: number;
  entropyAfter: number;
  /** Held-out accuracy at each evaluation. */
  curve: { step: number; accuracy: number }[];
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  const folder = mkdtempSync(join(tmpdir(), 'attune-policy-table-'));
  const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);
  const outcomes = new Map<string, Map<string, Outcome[]>>();
  try {
    for (const task of flags.tasks.split(';')) {
      const ofTask = new Map<string, Outcome[]>();
      outcomes.set(task, ofTask);
      for (const algorithm of flags.algorithms.split(',')) {
        const own: Outcome[] = [];
        for (const seed of seeds) own.push(await train(flags, { task, algorithm, seed, folder }));
        ofTask.set(algorithm, own);
        const over = (pick: (outcome: Outcome) => number) => {
          const values = own.map(pick);
          return seeds.length > 1
            ? `${meanOf(values).toFixed(3)} ± ${stdOf(values).toFixed(3)}`
            : meanOf(values).toFixed(3);
        };
        yield {
          name: `${task} ${algorithm}`,
          before: over(({ before }) => before),
          after: over(({ after }) => after),
          length: `${over(({ lengthBefore }) => lengthBefore)} → ${over(({ lengthAfter }) => lengthAfter)}`,
          entropy: `${over(({ entropyBefore }) => entropyBefore)} → ${over(({ entropyAfter }) => entropyAfter)}`,
        };
        await write(flags.out, outcomes);
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function train(
  flags: typeof defaults,
  { task, algorithm, seed, folder }: { task: string; algorithm: string; seed: number; folder: string },
): Promise<Outcome> {
  const rates = new Map(flags['lr-of'].split(',').map((entry) => entry.split('=') as [string, string]));
  const steps = Number(flags.steps);
  const every = Math.max(1, Math.floor(steps / 5));
  using run = await trainPolicy(
    {
      ...{ model: flags.model, device: flags.device, task, algorithm, seed, outputDir: folder },
      ...{ batchSize: Number(flags.prompts), gradAccum: 1, groupSize: Number(flags.group), topP: 1 },
      ...{ maxSteps: steps, maxNewTokens: Number(flags['max-new-tokens']), lrSchedule: 'constant' },
      ...{ lr: Number(rates.get(algorithm) ?? flags.lr), evalSteps: every, evalNumPrompts: Number(flags['held-out']) },
      ...{ saveSteps: -1, saveModel: false, saveRollouts: false, reportTo: [] },
      runName: `${task}-${algorithm}-${seed}`.replace(/[^\w-]/g, '_'),
    },
    { run: { curves: false } },
  );
  await run.finish();
  const rows = openRun(run.folder).metrics();
  const first = (name: string) => rows.find((row) => row[name] !== undefined)?.[name] ?? Number.NaN;
  const last = (name: string) => rows.findLast((row) => row[name] !== undefined)?.[name] ?? Number.NaN;
  return {
    before: first('eval/accuracy'),
    after: last('eval/accuracy'),
    lengthBefore: first('eval/length_mean'),
    lengthAfter: last('eval/length_mean'),
    entropyBefore: first('train/entropy'),
    entropyAfter: last('train/entropy'),
    curve: rows.flatMap(({ step, 'eval/accuracy': accuracy }) => (accuracy === undefined ? [] : [{ step, accuracy }])),
  };
}

/** The table and the picture as far as they go, after every algorithm: a long study may be cut short. */
async function write(out: string, outcomes: ReadonlyMap<string, ReadonlyMap<string, Outcome[]>>): Promise<void> {
  mkdirSync(out, { recursive: true });
  const lines = [
    '| task | algorithm | accuracy before | after | tokens before | after | entropy before | after |',
    `|${'---|'.repeat(8)}`,
  ];
  const charts = [...outcomes].flatMap(([task, algorithms]) => [
    bars({
      title: `${task}: held-out accuracy`,
      bars: [...algorithms].flatMap(([label, own]) => [
        { label, group: 'before', ...figure(own.map(({ before }) => before)) },
        { label, group: 'after', ...figure(own.map(({ after }) => after)) },
      ]),
    }),
    lineChart({
      title: `${task}: course`,
      xLabel: 'step',
      series: [...algorithms].map(([name, own]) => ({
        name,
        x: own[0]?.curve.map(({ step }) => step) ?? [],
        y: (own[0]?.curve ?? []).map((_, i) => meanOf(own.map(({ curve }) => curve[i]?.accuracy ?? Number.NaN))),
      })),
    }),
  ]);
  for (const [task, algorithms] of outcomes) {
    for (const [name, own] of algorithms) {
      const cells = (['before', 'after', 'lengthBefore', 'lengthAfter', 'entropyBefore', 'entropyAfter'] as const).map(
        (key) => {
          const { value, error } = figure(own.map((outcome) => outcome[key]));
          return own.length > 1 ? `${value.toFixed(2)} ± ${error.toFixed(2)}` : value.toFixed(2);
        },
      );
      lines.push(`| ${[task, name, ...cells].join(' | ')} |`);
    }
  }
  writeFileSync(join(out, 'policy-table.md'), `${lines.join('\n')}\n`);
  writeFileSync(join(out, 'policy-table.png'), await toPng(grid(charts, { columns: 2 })));
}

const figure = (values: readonly number[]) => ({ value: meanOf(values), error: stdOf(values) });
