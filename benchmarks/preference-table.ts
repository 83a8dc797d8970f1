/**
 * Every direct-alignment loss from one start, on pairs that the start itself wrote and the verifier ranked: held-out
 * preference accuracy and verifier accuracy before and after, over several seeds.
 *
 *     npm run bench -- preference-table --model models/tiny --seeds 3 --steps 60
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { preferenceLosses } from '../src/algorithms/index.ts';
import { loadModel } from '../src/models/index.ts';
import { Tokenizer } from '../src/text/index.ts';
import { trainPreference } from '../src/trainers/preference.ts';
import { flagsOf, meanOf, openMeasures, ownPairs, spreadOf } from './preference-measures.ts';
import type { Reading } from './run.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'chain_sum:1,gcd:1',
  losses: preferenceLosses.map(({ name }) => name).join(','),
  seeds: '3',
  steps: '60',
  batch: '16',
  prompts: '400',
  samples: '8',
  'held-out': '200',
  'max-new-tokens': '96',
  'reward-module': '',
  style: 'think',
  part: 'test',
  lr: '2e-5',
  // losses whose gradients are of another size: name=lr,…
  'lr-of': '',
  out: 'outputs/preference-table',
};

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  const folder = mkdtempSync(join(tmpdir(), 'attune-preference-table-'));
  const rates = new Map(flags['lr-of'].split(',').map((entry) => entry.split('=') as [string, string]));
  const lines = [
    '| loss | preference accuracy before | after | verifier accuracy before | after |',
    '|---|---|---|---|---|',
  ];
  try {
    const measures = await openMeasures(await Tokenizer.load(flags.model), flags);
    using start = await loadModel(flags.model, { dtype: 'float32' });
    const before = {
      preference: measures.preferenceAccuracy(start),
      verifier: await measures.verifierAccuracy(start),
    };
    const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);
    const pairs = (seed: number) => join(folder, `pairs-${seed}.jsonl`);
    for (const seed of seeds) await ownPairs(flags, seed, pairs(seed));
    for (const loss of flags.losses.split(',')) {
      const after: { preference: number; verifier: number }[] = [];
      for (const seed of seeds) {
        using trained = await trainPreference(
          {
            model: flags.model,
            dataset: pairs(seed),
            loss,
            seed,
            lr: Number(rates.get(loss) ?? flags.lr),
            batchSize: Number(flags.batch),
            gradAccum: 1,
            epochs: 1000,
            maxSteps: Number(flags.steps),
            validationSplit: 0,
            evalSteps: -1,
            saveModel: false,
            reportTo: ['none'],
            outputDir: folder,
            runName: `${loss}-${seed}`,
          },
          { cache: false, run: { curves: false } },
        );
        await trained.finish();
        after.push({
          preference: measures.preferenceAccuracy(trained.model),
          verifier: await measures.verifierAccuracy(trained.model),
        });
      }
      const shown = (name: 'preference' | 'verifier') => {
        const values = after.map((each) => each[name]);
        return `${percent(meanOf(values))} ± ${percent(spreadOf(values))}`;
      };
      lines.push(
        `| \`${loss}\` | ${percent(before.preference)} | ${shown('preference')} | ${percent(before.verifier)} | ${shown('verifier')} |`,
      );
      yield {
        name: loss,
        preferenceBefore: round(before.preference),
        preferenceAfter: round(meanOf(after.map(({ preference }) => preference))),
        verifierBefore: round(before.verifier),
        verifierAfter: round(meanOf(after.map(({ verifier }) => verifier))),
      };
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  mkdirSync(flags.out, { recursive: true });
  writeFileSync(join(flags.out, 'table.md'), `${lines.join('\n')}\n`);
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const round = (value: number) => Math.round(value * 1000) / 1000;
