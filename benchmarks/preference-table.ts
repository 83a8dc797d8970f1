/**
 * Every direct-alignment loss from one start, on pairs that the start itself wrote and the verifier ranked: held-out
 * preference accuracy and verifier accuracy before and after, over several seeds.
 *
 *     npm run bench -- preference-table --model models/tiny --seeds 3 --steps 30
 *
 * What each run came to lies under `--out`; a run that is there is not done again. So a study that was cut short goes on, and
 * several processes (with OMP_NUM_THREADS=1 and other `--losses` each) can share it. Other settings want another `--out`.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { meanOf, preferenceLoss, preferenceLosses, stdOf } from '../src/algorithms/index.ts';
import { trainPreference } from '../src/trainers/preference/preference.ts';
import type { Reading } from './run.ts';
import { type Figures, flagsOf, Measures, ownPairs } from './support/preference-measures.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'number_sorting:1,letter_counting:1,spell_backward:1',
  losses: preferenceLosses.map(({ name }) => name).join(','),
  seeds: '3',
  steps: '30',
  batch: '16',
  prompts: '640',
  samples: '8',
  'held-out': '150',
  'max-new-tokens': '64',
  lr: '1e-4',
  warmup: '5',
  // losses whose gradients are of another size: name=lr,…
  'lr-of': '',
  out: 'outputs/preference-table',
};

interface Outcome {
  loss: string;
  seed: number;
  figures: Figures;
  seconds: number;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  const results = join(flags.out, 'runs');
  mkdirSync(results, { recursive: true });
  const folder = mkdtempSync(join(tmpdir(), 'attune-preference-table-'));
  try {
    using measures = await Measures.open(flags);
    const before = await measures.of(measures.start);
    yield reading('the start', before);
    for (let seed = 1; seed <= Number(flags.seeds); seed++) {
      const dataset = join(flags.out, `pairs-${seed}.jsonl`);
      await ownPairs(flags, seed, dataset);
      for (const loss of flags.losses.split(',')) {
        const file = join(results, `${loss}-${seed}.json`);
        if (!existsSync(file)) {
          const outcome = await train(flags, { loss, seed, dataset, folder, measures });
          writeFileSync(file, `${JSON.stringify(outcome)}\n`);
        }
        const outcome = JSON.parse(readFileSync(file, 'utf8')) as Outcome;
        yield { ...reading(`${loss} ${seed}`, outcome.figures), seconds: Math.round(outcome.seconds) };
        writeFileSync(join(flags.out, 'preference-table.md'), table(before, readOutcomes(results)));
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface RunParts {
  loss: string;
  seed: number;
  dataset: string;
  folder: string;
  measures: Measures;
}

async function train(flags: typeof defaults, { loss, seed, dataset, folder, measures }: RunParts): Promise<Outcome> {
  const started = performance.now();
  const rates = new Map(flags['lr-of'].split(',').map((entry) => entry.split('=') as [string, string]));
  const { needsReference, paired } = preferenceLoss(loss);
  using training = await trainPreference(
    {
      model: flags.model,
      dataset,
      loss,
      seed,
      warmupSteps: Number(flags.warmup),
      lr: Number(rates.get(loss) ?? flags.lr),
      epochs: 1000,
      maxSteps: Number(flags.steps),
      // the losses share one table of the start's log-probs; an unpaired one takes as many answers a step as the others
      precomputeRef: needsReference && paired,
      batchSize: Number(flags.batch) * (paired ? 1 : 2),
      gradAccum: 1,
      validationSplit: 0,
      evalSteps: -1,
      saveSteps: -1,
      saveModel: false,
      reportTo: ['none'],
      outputDir: folder,
      runName: `${loss}-${seed}`,
    },
    { cache: false, run: { curves: false } },
  ).open();
  await training.finish();
  const figures = await measures.of(training.model);
  return { loss, seed, figures, seconds: (performance.now() - started) / 1000 };
}

function readOutcomes(results: string): Outcome[] {
  const files = readdirSync(results).filter((file) => file.endsWith('.json'));
  return files.map((file) => JSON.parse(readFileSync(join(results, file), 'utf8')) as Outcome);
}

const columns = {
  likelier: 'right one likelier',
  gained: 'right one gained',
  greedy: 'greedy answers',
  sampled: 'sampled answers',
  kl: 'KL',
} as const;
type Column = keyof typeof columns;
// the start's own KL is 0 but for rounding, of either sign
const shown = (column: Column, value: number) =>
  column === 'kl' ? Math.max(0, value).toFixed(1) : `${(100 * value).toFixed(0)} %`;

/** As far as it goes, after every run: a long study may be cut short. */
function table(before: Figures, outcomes: readonly Outcome[]): string {
  const names = Object.keys(columns) as Column[];
  const row = (label: string, all: readonly Figures[]) => {
    const cells = names.map((name) => {
      const values = all.map((figures) => figures[name]);
      const mean = shown(name, meanOf(values));
      return values.length > 1 ? `${mean} ± ${shown(name, stdOf(values))}` : mean;
    });
    return `| ${label} | ${cells.join(' | ')} |`;
  };
  const rows = preferenceLosses.flatMap(({ name }) => {
    const own = outcomes.filter(({ loss }) => loss === name).map(({ figures }) => figures);
    return own.length === 0 ? [] : [row(`\`${name}\``, own)];
  });
  return [
    `| after | ${Object.values(columns).join(' | ')} |`,
    `|---|${'--:|'.repeat(names.length)}`,
    row('the start', [before]),
    ...rows,
    '',
  ].join('\n');
}

const reading = (name: string, figures: Figures): Reading => ({
  name,
  ...Object.fromEntries(Object.entries(figures).map(([key, value]) => [key, Math.round(value * 1000) / 1000])),
});
