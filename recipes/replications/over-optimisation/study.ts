/** Gao, Schulman and Hilton 2022: gold and proxy reward against √KL, for the best of n and for RL. */
import { meanOf } from '../../../src/algorithms/index.ts';
import { bestOfNForm, rlForm } from '../fits.ts';
import { chartOf, figure, fitsOf, fitTable, fittedChart, percent, share } from '../report.ts';
import type { Outcomes, Study } from '../study.ts';
import { bestOfN, judgeOf, most, reinforced, tasks } from './measure.ts';

/** Reward models: layers kept of the tiny model, and pairs that they learn from. */
const judges = [
  '4 layers, 24 pairs',
  '4 layers, 96 pairs',
  '4 layers, 384 pairs',
  '4 layers, 1536 pairs',
  '1 layer, 384 pairs',
  '2 layers, 384 pairs',
];
const byData = judges.slice(0, 4);
const bySize = ['1 layer, 384 pairs', '2 layers, 384 pairs', '4 layers, 384 pairs'];
const numbersOf = (judge: string) => judge.match(/\d+/g)?.map(Number) as [number, number];

export const overOptimisation: Study = {
  name: 'over-optimisation',
  title: 'Reward over-optimisation',
  paper: {
    name: 'Gao, Schulman and Hilton 2022, “Scaling laws for reward model overoptimization”',
    url: 'https://arxiv.org/abs/2210.10760',
  },
  published:
    'With d = √KL(policy‖start), the gold reward follows d(α − βd) for the best of n and d(α − β log d) for RL. The proxy keeps rising while gold turns. Larger reward models and more comparisons delay the turn (3M to 3B parameters; below about 2,000 comparisons little was learnt). RL spends far more KL than the best of n for the same gain.',
  ours: `The policy is models/tiny (0.85M parameters) on \`${tasks}\`. Gold is the verifier (the share of right responses, at most 1); the paper uses a 6B reward model. The proxies are Bradley–Terry reward models on pairs of the policy’s own responses, labelled by gold without error: the whole tiny model on 24 to 1,536 pairs, and its first 1 or 2 layers on 384 pairs. Best of n goes up to ${most}, estimated over all subsets of ${most} samples to 48 problems. RL is RLOO for 64 steps without a KL penalty; the paper uses PPO.`,
  reading:
    'The best of n follows the paper’s parabola closely: gold peaks near eight responses (d ≈ 1) and at 128 is below where it began, while the proxy rises all the way. More comparisons raise gold at the largest n, under RL too. The size of the reward model makes no difference that three seeds can show. Our sizes differ by a factor of three (0.26M to 0.85M parameters, all from the same pretrained model), the paper’s by a thousand. The highest scores pick responses that are worked out in full but have one wrong letter or digit. The right responses to a problem are nearly all the same text with the same score. The wrong ones are many and different, so they draw from the tail of the scores again and again.',
  conditions: [...judges.map((judge) => `best of n: ${judge}`), ...judges.map((judge) => `RL: ${judge}`)],
  seeds: [1, 2, 3],
  async run(condition, lab) {
    const [layers, pairs] = numbersOf(condition);
    const checkpoint = await judgeOf(lab, { pairs, lr: 1e-3, ...(layers === 4 ? {} : { layers }) });
    return condition.startsWith('RL') ? reinforced(lab, checkpoint, 1e-4) : bestOfN(lab, checkpoint);
  },
  report,
};

function report(outcomes: Outcomes) {
  const ways = ['best of n', 'RL'] as const;
  const named = (way: string, which: readonly string[]) => which.map((judge) => [judge, [`${way}: ${judge}`]] as const);
  const fits = {
    'best of n': fitsOf(outcomes, named('best of n', judges), bestOfNForm),
    RL: fitsOf(outcomes, named('RL', judges), rlForm),
  };
  const last = (condition: string, name: string) =>
    outcomes.curves(condition, name).map((curve) => curve.at(-1) as number);
  const best = (condition: string) => outcomes.curves(condition, 'gold').map((curve) => Math.max(...curve));
  const first = (condition: string) => outcomes.curves(condition, 'gold').map((curve) => curve[0] as number);
  const falls = (condition: string) => meanOf(best(condition)) - meanOf(last(condition, 'gold'));
  const charts = ways.flatMap((way) =>
    [byData, bySize].map((which) =>
      chartOf(
        { title: `${way}: gold`, xLabel: '√KL to the start', yLabel: 'right', share: true },
        which.map((judge) => {
          const condition = `${way}: ${judge}`;
          const ds = outcomes.curves(condition, 'd');
          return {
            name: judge,
            x: (ds[0] ?? []).map((_, i) => meanOf(ds.map((each) => each[i] as number))),
            runs: outcomes.curves(condition, 'gold'),
          };
        }),
      ),
    ),
  );
  const proxies = ways.map((way) =>
    chartOf(
      { title: `${way}: what the reward model says`, xLabel: '√KL to the start', yLabel: 'spreads above the start' },
      byData.map((judge) => {
        const condition = `${way}: ${judge}`;
        const ds = outcomes.curves(condition, 'd');
        return {
          name: judge,
          x: (ds[0] ?? []).map((_, i) => meanOf(ds.map((each) => each[i] as number))),
          runs: outcomes.curves(condition, 'proxy'),
        };
      }),
    ),
  );
  const dOf = (way: string) => Math.max(...judges.flatMap((judge) => outcomes.curves(`${way}: ${judge}`, 'd')).flat());
  const forms = ways.map((way) =>
    fittedChart(
      { title: `${way}: gain, fitted`, xLabel: '√KL to the start', yLabel: 'gained over the start' },
      fits[way].filter(({ name }) => byData.includes(name)),
    ),
  );
  const bon = (judge: string) => `best of n: ${judge}`;
  const rl = (judge: string) => `RL: ${judge}`;
  const endOf = (condition: string) => meanOf(last(condition, 'gold'));
  const rises = (condition: string) =>
    outcomes
      .curves(condition, 'proxy')
      .every((curve) => curve.every((y, i) => i === 0 || y >= (curve[i - 1] as number) - 0.02));
  const r2 = (way: (typeof ways)[number]) => meanOf(fits[way].map(({ fit }) => fit.r2));
  return {
    charts: [...charts, ...proxies, ...forms],
    tables: [
      {
        caption:
          'Right responses: at the start, at the best n or step of each seed, and at the end (largest n, last step).',
        table: {
          head: [
            'reward model',
            'best of n: start',
            'best',
            `n = ${most}`,
            'RL: best',
            'end',
            '√KL at the end',
            'proxy at the end',
          ],
          rows: judges.map((judge) => [
            ...[judge, share(first(bon(judge))), share(best(bon(judge))), share(last(bon(judge), 'gold'))],
            ...[
              share(best(rl(judge))),
              share(last(rl(judge), 'gold')),
              figure(last(rl(judge), 'd')),
              figure(last(rl(judge), 'proxy')),
            ],
          ]),
        },
      },
      { caption: 'Best of n, fitted over all seeds.', table: fitTable(fits['best of n'], 'reward model') },
      { caption: 'RL, fitted over all seeds.', table: fitTable(fits.RL, 'reward model') },
    ],
    findings: [
      {
        claim: 'the proxy never falls with n',
        holds: judges.every((judge) => rises(bon(judge))),
        numbers: `${figure(judges.flatMap((judge) => last(bon(judge), 'proxy')))} spreads at n = ${most}`,
      },
      {
        claim: 'gold turns and falls under the weakest proxies',
        holds: falls(bon(byData[0] as string)) > 0.05,
        numbers: `best of n, 24 pairs: ${percent(meanOf(best(bon(byData[0] as string))))} at best, ${percent(endOf(bon(byData[0] as string)))} at n = ${most}`,
      },
      {
        claim: 'more comparisons raise gold at the largest n',
        holds: endOf(bon(byData[3] as string)) > endOf(bon(byData[0] as string)) + 0.05,
        numbers: byData.map((judge) => `${numbersOf(judge)[1]} pairs ${percent(endOf(bon(judge)))}`).join(', '),
      },
      {
        claim: 'larger reward models raise gold at the largest n',
        holds: endOf(bon(bySize[2] as string)) > endOf(bon(bySize[0] as string)) + 0.05,
        numbers: bySize.map((judge) => `${judge.split(',')[0]} ${percent(endOf(bon(judge)))}`).join(', '),
      },
      {
        claim: 'the same under RL',
        holds: endOf(rl(byData[3] as string)) > endOf(rl(byData[0] as string)) + 0.05,
        numbers: byData.map((judge) => `${numbersOf(judge)[1]} pairs ${percent(endOf(rl(judge)))}`).join(', '),
      },
      {
        claim: 'RL goes much further from the start than the best of n',
        holds: dOf('RL') > 1.5 * dOf('best of n'),
        numbers: `√KL up to ${dOf('RL').toFixed(1)} and ${dOf('best of n').toFixed(1)}`,
      },
      {
        claim: 'the published forms describe the curves (R² above 0.7 on average)',
        holds: r2('best of n') > 0.7 && r2('RL') > 0.7,
        numbers: `mean R² ${r2('best of n').toFixed(2)} and ${r2('RL').toFixed(2)}`,
      },
    ],
  };
}
