/**
 * Over-optimisation, measured: DPO at several β and lengths of training. The implicit-reward margin keeps rising; the gold
 * accuracy (the verifier's) does not, and the KL to the start tells why. One picture.
 *
 *     npm run bench -- over-optimisation --model models/tiny --betas 0.01,0.03,0.1,0.3,1 --steps 20,50,100,200,400
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadModel } from '../src/models/index.ts';
import { grid, lineChart, toPng } from '../src/runs/index.ts';
import { Tokenizer } from '../src/text/index.ts';
import { trainPreference } from '../src/trainers/preference.ts';
import { flagsOf, openMeasures, ownPairs } from './preference-measures.ts';
import type { Reading } from './run.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'chain_sum:1,gcd:1',
  loss: 'dpo',
  betas: '0.01,0.03,0.1,0.3,1',
  steps: '20,50,100,200,400',
  batch: '16',
  prompts: '400',
  samples: '8',
  'held-out': '200',
  'max-new-tokens': '96',
  'reward-module': '',
  style: 'think',
  part: 'test',
  lr: '2e-5',
  out: 'outputs/over-optimisation',
};

interface Point {
  beta: number;
  step: number;
  margin: number;
  gold: number;
  kl: number;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  const folder = mkdtempSync(join(tmpdir(), 'attune-over-optimisation-'));
  const points: Point[] = [];
  const at = flags.steps.split(',').map(Number);
  try {
    const measures = await openMeasures(await Tokenizer.load(flags.model), flags);
    const dataset = join(folder, 'pairs.jsonl');
    await ownPairs(flags, 1, dataset);
    using start = await loadModel(flags.model, { dtype: 'float32' });
    for (const beta of flags.betas.split(',').map(Number)) {
      using training = await trainPreference(
        {
          model: flags.model,
          dataset,
          loss: flags.loss,
          beta,
          lr: Number(flags.lr),
          lrSchedule: 'constant',
          batchSize: Number(flags.batch),
          gradAccum: 1,
          epochs: 10_000,
          maxSteps: Math.max(...at),
          validationSplit: 0.15,
          evalSteps: 1_000_000,
          saveModel: false,
          reportTo: ['none'],
          outputDir: folder,
          runName: `beta-${beta}`,
        },
        { cache: false, run: { curves: false } },
      );
      for await (const step of training) {
        if (!at.includes(step.step)) continue;
        const margin = step.metrics['train/margin'] ?? 0;
        const gold = await measures.verifierAccuracy(training.model);
        const kl = await measures.divergence(training.model, start);
        points.push({ beta, step: step.step, margin, gold, kl });
        yield { name: `beta ${beta}, step ${step.step}`, margin, gold, kl };
      }
    }
    const gold = await measures.verifierAccuracy(start);
    mkdirSync(flags.out, { recursive: true });
    writeFileSync(join(flags.out, 'points.json'), `${JSON.stringify({ start: { gold }, points }, null, 2)}\n`);
    writeFileSync(join(flags.out, 'over-optimisation.png'), await picture(points));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function picture(points: readonly Point[]): Promise<Uint8Array> {
  const betas = [...new Set(points.map(({ beta }) => beta))];
  const chart = (title: string, xLabel: string, yLabel: string, x: keyof Point, y: keyof Point) =>
    lineChart({
      title,
      xLabel,
      yLabel,
      smooth: false,
      series: betas.map((beta) => {
        const own = points.filter((point) => point.beta === beta).sort((a, b) => a[x] - b[x]);
        return { name: `β ${beta}`, x: own.map((point) => point[x]), y: own.map((point) => point[y]) };
      }),
    });
  return toPng(
    grid(
      [
        chart('The margin rises with training…', 'step', 'implicit-reward margin', 'step', 'margin'),
        chart('…the gold accuracy need not', 'step', 'verifier accuracy', 'step', 'gold'),
        chart('Margin against gold', 'implicit-reward margin', 'verifier accuracy', 'margin', 'gold'),
        chart('Drift against gold', 'KL to the start, nats per response', 'verifier accuracy', 'kl', 'gold'),
      ],
      { title: 'Over-optimisation of a preference loss', columns: 2 },
    ),
  );
}
