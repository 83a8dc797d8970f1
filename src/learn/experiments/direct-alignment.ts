/**
 * Chapter 7. DPO's optimum is that of RLHF, on a problem small enough to know it; and what DPO does to the log-probabilities of a
 * language model.
 */
import { smoothedLogistic } from '../../algorithms/logistic.ts';
import { AdamW } from '../../nn/index.ts';
import { preferenceRows } from '../../tasks/index.ts';
import { scope, type Tensor, tensor } from '../../tensor/index.ts';
import { trainPreference } from '../../trainers/preference/preference.ts';
import type { Experiment, Lab } from './experiment.ts';
import { heldCurve, percent, type Recorded, recorded, settings, surroundings, trainCurve } from './workbench.ts';

const tasks = 'number_sorting:1,spell_backward:1,propositional_logic:1';

export const directAlignment: Experiment = {
  seconds: 140,
  async run(lab) {
    const betas = [0.3, 1, 3];
    const fits = betas.map((beta) => ({ beta, ...bandit(beta) }));
    const runs: [string, Recorded][] = [];
    for (const loss of ['dpo', 'ipo', 'simpo']) runs.push([loss, await train(lab, loss)]);
    const dpo = runs[0]?.[1] as Recorded;
    const start = dpo.steps[0]?.train as Record<string, number>;
    const end = dpo.steps.at(-1)?.train as Record<string, number>;
    const gap = Math.max(
      ...fits.flatMap(({ learnt, optimum }) => learnt.map((p, i) => Math.abs(p - (optimum[i] as number)))),
    );
    const held = runs.map(([name, run]) => heldCurve(name, run, 'accuracy'));
    const middle = fits[1] as (typeof fits)[number];
    const at = rewards.map((_, i) => i + 1);
    return {
      figures: [
        {
          title: 'Four responses, β = 1',
          xLabel: 'response',
          yLabel: 'probability',
          share: true,
          curves: [
            { name: 'reference', x: at, y: [...reference] },
            { name: 'π_ref · e^(R/β) / Z', x: at, y: middle.optimum },
            { name: 'learnt by DPO', x: at, y: middle.learnt },
          ],
        },
        {
          title: 'DPO on pairs: log-probabilities',
          xLabel: 'step',
          yLabel: 'log π of the whole response',
          curves: [trainCurve('chosen', dpo, 'chosen_lp', 4), trainCurve('rejected', dpo, 'rejected_lp', 4)],
        },
      ],
      findings: [
        {
          claim: 'DPO on infinitely many comparisons finds the optimum of RLHF, for every β',
          holds: gap < 0.01,
          numbers: `largest difference of a probability ${gap.toFixed(4)} over β = ${betas.join(', ')}`,
        },
        {
          claim: 'DPO pushes the rejected response down far more than it lifts the chosen one',
          holds:
            (start.rejected_lp as number) - (end.rejected_lp as number) >
            2 * Math.abs((end.chosen_lp as number) - (start.chosen_lp as number)),
          numbers: `chosen ${start.chosen_lp?.toFixed(1)} → ${end.chosen_lp?.toFixed(1)}, rejected ${start.rejected_lp?.toFixed(1)} → ${end.rejected_lp?.toFixed(1)}`,
        },
        {
          claim: 'all three losses learn to rank held-out pairs',
          holds: held.every(({ y }) => (y.at(-1) as number) > 0.7),
          numbers: held.map(({ name, y }) => `${name} ${percent(y.at(-1) as number)}`).join(', '),
        },
      ],
    };
  },
};

function train(lab: Lab, loss: string): Promise<Recorded> {
  const rows = (part: 'train' | 'test', count: number) => [
    ...preferenceRows({ tasks, seed: lab.seed, count, part, style: 'think' }),
  ];
  return recorded(
    lab,
    trainPreference(
      {
        ...settings(lab, loss),
        loss,
        dataset: rows('train', 1280),
        evalDataset: rows('test', 128),
        batchSize: 16,
        gradAccum: 1,
        lr: 5e-5,
        maxSteps: 60,
        epochs: 1,
        maxLength: 256,
        evalSteps: 10,
      },
      { ...surroundings(lab), cache: false },
    ),
  );
}

// —— Four responses ———————————————————————————————————————————————————————————————————————————————————————

const rewards = [1, 0, 0.5, -1] as const;
const reference = [0.1, 0.4, 0.3, 0.2] as const;

/** DPO with Bradley–Terry labels for every pair, in their exact shares, beside the closed form of the optimum. */
function bandit(beta: number): { learnt: number[]; optimum: number[] } {
  const weights = reference.map((p, i) => p * Math.exp((rewards[i] as number) / beta));
  const total = weights.reduce((sum, value) => sum + value, 0);
  const logits = tensor(reference.map(Math.log)).requiresGrad_();
  const lpRef = tensor(reference.map(Math.log));
  const optimizer = new AdamW(Object.entries({ logits }), { lr: 0.02, weightDecay: 0 });
  const pairs = rewards.flatMap((_, w) => rewards.flatMap((_, l) => (w === l ? [] : [{ w, l }])));
  for (let step = 0; step < 1500; step++) {
    scope(() => expectedLoss(logits, lpRef, pairs, beta).backward());
    optimizer.step();
    optimizer.zeroGrad();
  }
  const learnt = scope(() => logits.detach().softmax(-1).numbers());
  return { learnt, optimum: weights.map((value) => value / total) };
}

/** Σ over ordered pairs of P(w beats l) · (−log σ(β(d_w − d_l))). */
function expectedLoss(logits: Tensor, lpRef: Tensor, pairs: readonly { w: number; l: number }[], beta: number): Tensor {
  const d = logits.logSoftmax(-1).sub(lpRef);
  const share = tensor(pairs.map(({ w, l }) => 1 / (1 + Math.exp((rewards[l] as number) - (rewards[w] as number)))));
  const pick = (which: 'w' | 'l') => d.indexSelect(0, tensor(BigInt64Array.from(pairs, (pair) => BigInt(pair[which]))));
  return smoothedLogistic(pick('w').sub(pick('l')).mul(beta), 0)
    .mul(share)
    .sum();
}
