/** Chapter 2. A reward model on fair pairs and one on pairs in which the better response is always the longer. */
import { meanOf } from '../../algorithms/index.ts';
import { loadRewardModel } from '../../rewards/index.ts';
import { preferenceRows } from '../../tasks/index.ts';
import { trainReward } from '../../trainers/reward/reward.ts';
import type { Experiment } from './experiment.ts';
import { heldCurve, percent, recorded, settings, surroundings } from './workbench.ts';

const tasks = 'number_sorting:1,spell_backward:1,propositional_logic:1';

interface Pair {
  prompt: string;
  chosen: string;
  rejected: string;
}

export const bradleyTerry: Experiment = {
  seconds: 110,
  async run(lab) {
    const pairs = (style: 'think' | 'answer', count: number, part: 'train' | 'test'): Pair[] => [
      ...preferenceRows({ tasks, seed: lab.seed, count, part, style }),
    ];
    const worked = pairs('think', 1024, 'train');
    const bare = pairs('answer', 1024, 'train');
    // Right and worked out against wrong and bare: the right one is always the longer.
    const confounded = worked.map(({ prompt, chosen }, i) => ({
      prompt,
      chosen,
      rejected: (bare[i] as Pair).rejected,
    }));
    const held = pairs('think', 128, 'test');
    // The trap: wrong but worked out against right but bare.
    const trap = pairs('answer', 128, 'test').map(({ prompt, chosen }, i) => ({
      prompt,
      chosen,
      rejected: (held[i] as Pair).rejected,
    }));
    const train = (name: string, rows: Pair[], evalRows: Pair[]) =>
      recorded(
        lab,
        trainReward(
          {
            ...settings(lab, name),
            type: 'preference' as const,
            dataset: rows,
            evalDataset: evalRows,
            batchSize: 32,
            gradAccum: 1,
            lr: 1e-3,
            maxSteps: 80,
            epochs: 10,
            maxLength: 256,
            stripThinking: false,
            evalSteps: 10,
            evalNumBatches: 8,
            evalBatchSize: 16,
            analysisSamples: 0,
          },
          { ...surroundings(lab), cache: false },
        ),
      );
    const fair = await train('fair', [...worked.slice(0, 512), ...bare.slice(0, 512)], held);
    const biased = await train('biased', confounded, held);
    const margins = async (checkpoint: string, rows: Pair[]) => {
      using scorer = await loadRewardModel(checkpoint);
      const scores = await scorer.score(
        rows.flatMap(({ prompt, chosen, rejected }) => [chosen, rejected].map((response) => ({ prompt, response }))),
      );
      return rows.map((_, i) => (scores[2 * i] as number) - (scores[2 * i + 1] as number));
    };
    const share = (values: number[]) => values.filter((margin) => margin > 0).length / values.length;
    const fairMargins = await margins(fair.checkpoint, held);
    const [fairTrap, biasedTrap] = [await margins(fair.checkpoint, trap), await margins(biased.checkpoint, trap)];
    const fairHeld = heldCurve('trained on fair pairs', fair, 'accuracy');
    const biasedHeld = heldCurve('trained on pairs whose chosen is longer', biased, 'accuracy');
    const bins = calibrationOf(fairMargins);
    const last = (values: number[]) => values.at(-1) as number;
    return {
      figures: [
        {
          title: 'Fair held-out pairs ranked rightly',
          xLabel: 'step',
          yLabel: 'accuracy',
          share: true,
          curves: [fairHeld, biasedHeld],
        },
        {
          title: 'Calibration',
          xLabel: 'σ(difference of scores)',
          yLabel: 'how often it was right',
          share: true,
          curves: [
            { name: 'perfect', x: bins.map(({ said }) => said), y: bins.map(({ said }) => said) },
            { name: 'trained on fair pairs', x: bins.map(({ said }) => said), y: bins.map(({ was }) => was) },
          ],
        },
      ],
      findings: [
        {
          claim: 'fair pairs teach what is right',
          holds: last(fairHeld.y) > 0.75,
          numbers: `${percent(last(fairHeld.y))} of fair held-out pairs`,
        },
        {
          claim: 'pairs whose chosen response is longer teach that longer is better',
          holds: share(biasedTrap) < 0.35 && last(biasedHeld.y) < last(fairHeld.y) - 0.1,
          numbers: `${percent(last(biasedHeld.y))} of fair pairs; where the wrong response is the longer, ${percent(share(biasedTrap))} (trained on fair pairs: ${percent(share(fairTrap))})`,
        },
      ],
    };
  },
};

/** What the model said, σ(margin), and how often the chosen response won, in bins of equal size. */
function calibrationOf(margins: readonly number[]): { said: number; was: number }[] {
  // Each pair is seen from both sides, so that confidence runs from 0 to 1.
  const all = margins.flatMap((margin) => [
    { said: 1 / (1 + Math.exp(-margin)), was: 1 },
    { said: 1 / (1 + Math.exp(margin)), was: 0 },
  ]);
  all.sort((a, b) => a.said - b.said);
  const size = Math.ceil(all.length / 8);
  return Array.from({ length: 8 }, (_, i) => all.slice(i * size, (i + 1) * size)).map((bin) => ({
    said: meanOf(bin.map(({ said }) => said)),
    was: meanOf(bin.map(({ was }) => was)),
  }));
}
