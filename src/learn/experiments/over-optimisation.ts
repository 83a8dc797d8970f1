/** Chapter 8. The best of n by a reward model: what the reward model says and what is true, for two sizes of its data. */
import { meanOf } from '../../algorithms/index.ts';
import { loadRewardModel } from '../../rewards/index.ts';
import { trainReward } from '../../trainers/reward/reward.ts';
import type { Curve, Experiment, Lab } from './experiment.ts';
import { percent, type Response, recorded, sampleResponses, settings, surroundings } from './workbench.ts';

const tasks = 'number_sorting:1-2,spell_backward:1-2';
const sizes = [1, 2, 4, 8, 16, 32, 64];
/** KL of the best of n to the policy it was picked from (Hilton 2023). */
const klOfBest = (n: number) => Math.log(n) - (n - 1) / n;
const distances = sizes.map((n) => Math.sqrt(klOfBest(n)));

interface Judged {
  proxy: Curve;
  gold: Curve;
}

export const overOptimisation: Experiment = {
  seconds: 150,
  async run(lab) {
    const groups = await sampleResponses(lab, lab.model, { tasks, problems: 48, samples: Math.max(...sizes) });
    const own = await ownPairs(lab);
    const few = await judged(lab, groups, own.slice(0, 24));
    const many = await judged(lab, groups, own);
    const any = sizes.map((n) =>
      meanOf(groups.map((group) => Number(group.slice(0, n).some(({ correct }) => correct)))),
    );
    const first = few.gold.y[0] as number;
    const last = ({ gold }: Judged) => gold.y.at(-1) as number;
    const best = ({ gold }: Judged) => Math.max(...gold.y);
    const course = (each: Judged) => `${percent(first)} → ${percent(best(each))} → ${percent(last(each))}`;
    return {
      figures: [
        {
          title: 'What is true (gold)',
          xLabel: '√KL of the best of n',
          yLabel: 'right',
          share: true,
          curves: [few.gold, many.gold, { name: 'a perfect judge', x: distances, y: any }],
        },
        {
          title: 'What the reward model says (proxy)',
          xLabel: '√KL of the best of n',
          yLabel: 'score, in its own spreads',
          curves: [few.proxy, many.proxy],
        },
      ],
      findings: [
        {
          claim: 'the proxy always rises',
          holds: [few, many].every(({ proxy }) => proxy.y.every((y, i) => i === 0 || y >= (proxy.y[i - 1] as number))),
          numbers: `by ${(few.proxy.y.at(-1) as number).toFixed(1)} and ${(many.proxy.y.at(-1) as number).toFixed(1)} spreads at n = 64`,
        },
        {
          claim: 'the truth rises, turns and falls',
          holds: [few, many].every((each) => best(each) > first + 0.1 && last(each) < best(each) - 0.1),
          numbers: `right at n = 1, at the best n and at n = 64: ${course(few)} with 24 pairs, ${course(many)} with ${own.length}`,
        },
        {
          claim: 'with more data the fall is less deep, and neither comes near a perfect judge',
          holds: last(many) > last(few) && last(many) < (any.at(-1) as number) - 0.2,
          numbers: `a perfect judge ${percent(any.at(-1) as number)}`,
        },
      ],
    };
  },
};

interface Pair {
  prompt: string;
  chosen: string;
  rejected: string;
}

/** Pairs of the model's own responses to training problems, a right one and a wrong one. */
async function ownPairs(lab: Lab): Promise<Pair[]> {
  const groups = await sampleResponses(lab, lab.model, { tasks, problems: 320, samples: 8, part: 'train' });
  return groups.flatMap((group) => {
    const [right, wrong] = [group.filter(({ correct }) => correct), group.filter(({ correct }) => !correct)];
    const count = Math.min(right.length, wrong.length);
    return Array.from({ length: count }, (_, i) => ({
      prompt: (group[0] as Response).problem.prompt,
      chosen: (right[i] as Response).text,
      rejected: (wrong[i] as Response).text,
    }));
  });
}

async function judged(lab: Lab, groups: readonly Response[][], pairs: readonly Pair[]): Promise<Judged> {
  const name = pairs.length < 100 ? `${pairs.length} pairs` : 'all pairs';
  const { checkpoint } = await recorded(
    lab,
    trainReward(
      {
        ...settings(lab, `pairs-${pairs.length}`),
        type: 'preference' as const,
        stripThinking: false,
        dataset: [...pairs],
        batchSize: 32,
        gradAccum: 1,
        lr: 1e-3,
        maxSteps: 60,
        epochs: 60,
        maxLength: 384,
        evalSteps: -1,
        validationSplit: 0,
        analysisSamples: 0,
      },
      { ...surroundings(lab), cache: false },
    ),
  );
  using scorer = await loadRewardModel(checkpoint);
  const items = groups.flat().map(({ problem, text }) => ({ prompt: problem.prompt, response: text }));
  const scores = await scorer.score(items, lab.signal === undefined ? {} : { signal: lab.signal });
  const all = groups.map((group) => scores.splice(0, group.length));
  const mean = meanOf(all.flat());
  const spread = Math.sqrt(meanOf(all.flat().map((score) => (score - mean) ** 2)));
  const best = (n: number) =>
    groups.map((group, i) => {
      const seen = (all[i] as number[]).slice(0, n);
      const score = Math.max(...seen);
      return { score: (score - mean) / spread, correct: (group[seen.indexOf(score)] as Response).correct };
    });
  const curve = (of: (picked: ReturnType<typeof best>) => number) => ({
    name,
    x: distances,
    y: sizes.map((n) => of(best(n))),
  });
  return {
    proxy: curve((picked) => meanOf(picked.map(({ score }) => score))),
    gold: curve((picked) => meanOf(picked.map(({ correct }) => Number(correct)))),
  };
}
