/** Rafailov et al. 2024: direct alignment over-optimises too, for every loss, and by the same form as RL. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { definePreferenceLoss, meanOf } from '../../../src/algorithms/index.ts';
import { trainPreference } from '../../../src/index.ts';
import { loadTokenizer } from '../../../src/models/index.ts';
import { rlForm } from '../fits.ts';
import {
  ask,
  askFolder,
  courseOf,
  klTo,
  lately,
  meanTokens,
  openPolicy,
  pairsOf,
  quiet,
  rightShare,
  settings,
  watch,
} from '../policies.ts';
import { chartOf, figure, fitsOf, fitTable, fittedChart, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study, Values } from '../study.ts';

const tasks = 'number_sorting:1-2,spell_backward:1-2';
const lookAt = [8, 16, 32, 64, 128, 192];
/** IPO's β sets a margin of 1/2β as target; at β 1 that is so small that two trainings of four ended above ten times their first loss. */
const betas = { dpo: [0.03, 0.1, 0.3, 1], ipo: [0.01, 0.03, 0.1, 0.3], hinge: [0.03, 0.1, 0.3, 1] } as const;
const losses = ['dpo', 'ipo', 'hinge'] as const;
/** Weight of the difference in length in the length-regularised loss. */
const lengthWeights = [0.2];

/** DPO whose margin pays for length (Park et al. 2024): −log σ(β(d_w − d_l) + a(|y_w| − |y_l|)). */
const lengthRegularised = (weight: number) =>
  definePreferenceLoss({
    name: `dpo-length-${weight}`,
    summary: 'DPO with a price on the difference in length',
    paper: 'Park et al. 2024, “Disentangling length from quality in direct preference optimization”',
    needsReference: true,
    defaults: { beta: 0.1 },
    terms: ({ w, l, batch, options }) => {
      const longer = batch.chosen.lengths.sub(batch.rejected.lengths);
      return w.sub(l).mul(options.beta).add(longer.mul(weight)).logSigmoid().neg();
    },
  });

const named = (loss: string, beta: number) => `${loss}, β ${beta}`;
const sweep = losses.flatMap((loss) => betas[loss].map((beta) => named(loss, beta)));
const byLength = lengthWeights.map((weight) => `length price ${weight}, β 0.1`);

export const directAlignment: Study = {
  name: 'direct-alignment',
  title: 'Over-optimisation of direct alignment',
  paper: {
    name: 'Rafailov et al. 2024, “Scaling laws for reward model overoptimization in direct alignment algorithms”',
    url: 'https://arxiv.org/abs/2406.02900',
  },
  published:
    'DPO, IPO and SLiC all over-optimise. During training the KL grows, and quality (judged win rate) rises and then falls, often within the first quarter of an epoch. A smaller β goes further and falls more. d(α − β log d) fits as it does for RL. The implicit reward’s accuracy on pairs says little about quality.',
  ours: `models/tiny on \`${tasks}\`; pairs of its own responses, one right and one wrong by the verifier; DPO and the hinge loss (SLiC’s) at β ${betas.dpo.join(', ')} and IPO at β ${betas.ipo.join(', ')}, up to ${lookAt.at(-1)} steps of 16 pairs (several epochs over some 1,200 pairs), measured at several points to vary the length of training. To vary the length of responses, DPO with a penalty on the difference in length (Park et al. 2024). Gold is the share of right responses; the paper uses a judge’s win rates. IPO’s β is the paper’s own (its target is 1/2β), so the same number does not mean the same strength.`,
  reading:
    'The trend holds for all three losses: quality rises within the first 32 steps and falls while the ranking of pairs still improves, and a small β goes furthest and falls most. The form fits worse than in the paper: fitted over all β, it does not capture that longer training is worse than shorter training at the same d. IPO was also tried at β 1. Its target margin is then so small that it learnt little, and the divergence guard stopped two of four runs at ten times their first loss; β 0.01 replaced it. The length penalty works: responses shrink from 18 to 14 tokens instead of growing to 32. On these tasks that means blurting the answer out, and quality falls with it.',
  conditions: [...sweep, ...byLength],
  seeds: [1, 2, 3],
  run: direct,
  report,
};

async function direct(condition: string, lab: Lab): Promise<Values> {
  const file = join(await lab.shared(`pairs-${lab.seed}`, (folder) => writePairs(lab, folder)), 'pairs.json');
  const pairs = JSON.parse(readFileSync(file, 'utf8')) as ReturnType<typeof pairsOf>;
  const beta = Number(condition.slice(condition.indexOf('β') + 2));
  const priced = condition.match(/price ([\d.]+)/)?.[1];
  const loss = priced === undefined ? (condition.split(',')[0] as string) : lengthRegularised(Number(priced));
  using start = await openPolicy(lab.model);
  const tokenizer = await loadTokenizer(lab.model);
  const asked = { tasks, problems: 64, samples: 4, seed: 100 + lab.seed };
  const before = await ask(start, tokenizer, asked);
  const [d, gold, tokens] = [[0], [rightShare(before)], [meanTokens(before)]];
  const steps = await watch(
    trainPreference(
      {
        ...settings(lab, 'direct'),
        loss,
        beta,
        dataset: pairs,
        maxSteps: lookAt.at(-1),
        epochs: 100,
        batchSize: 16,
        gradAccum: 1,
        lr: 1e-4,
        maxLength: 384,
        validationSplit: 0,
        evalSteps: -1,
        saveModel: false,
      },
      { ...quiet, cache: false },
    ),
    lookAt,
    async (policy) => {
      const groups = await ask(policy, tokenizer, asked);
      d.push(Math.sqrt(Math.max(0, klTo(start, groups))));
      gold.push(rightShare(groups));
      tokens.push(meanTokens(groups));
    },
  );
  const at = (name: string) => lookAt.map((step) => lately(courseOf(steps, name).slice(0, step), 8));
  return { d, gold, tokens, accuracy: at('accuracy'), margin: at('margin') };
}

async function writePairs(lab: Lab, folder: string): Promise<void> {
  const groups = await askFolder(lab.model, { tasks, problems: 700, samples: 6, seed: lab.seed, part: 'train' });
  writeFileSync(join(folder, 'pairs.json'), JSON.stringify(pairsOf(groups)));
}

function report(outcomes: Outcomes) {
  const fits = fitsOf(
    outcomes,
    losses.map((loss) => [loss, betas[loss].map((beta) => named(loss, beta))] as const),
    rlForm,
  );
  const curves = (condition: string, name: string) => outcomes.curves(condition, name);
  const line = (condition: string, name: string) => outcomes.line(condition, name);
  const best = (condition: string) => curves(condition, 'gold').map((curve) => Math.max(...curve));
  const last = (condition: string, name: string) => curves(condition, name).map((curve) => curve.at(-1) as number);
  const fall = (condition: string) => meanOf(best(condition)) - meanOf(last(condition, 'gold'));
  const smallest = losses.map((loss) => named(loss, betas[loss][0]));
  const largest = losses.map((loss) => named(loss, betas[loss][3]));
  const reach = (conditions: readonly string[]) => meanOf(conditions.flatMap((condition) => last(condition, 'd')));
  return {
    charts: [
      ...losses.map((loss) =>
        chartOf(
          { title: `${loss}: gold`, xLabel: '√KL to the start', yLabel: 'right', share: true },
          betas[loss].map((beta) => line(named(loss, beta), 'gold')),
        ),
      ),
      fittedChart(
        { title: 'Gain, fitted over all β', xLabel: '√KL to the start', yLabel: 'gained over the start' },
        fits,
      ),
      chartOf(
        { title: 'Pairs ranked rightly by the implicit reward', xLabel: 'step', yLabel: 'accuracy', share: true },
        smallest.map((condition) => ({ name: condition, x: lookAt, runs: curves(condition, 'accuracy') })),
      ),
      chartOf(
        { title: 'Length of responses, DPO', xLabel: 'step', yLabel: 'tokens' },
        [named('dpo', 0.1), ...byLength].map((condition) => ({
          name: condition,
          x: [0, ...lookAt],
          runs: curves(condition, 'tokens'),
        })),
      ),
    ],
    tables: [
      {
        caption:
          'Right responses at the best point of each seed and at the end; distance of the policy, pairs ranked correctly and tokens per response at the end.',
        table: {
          head: ['loss', 'start', 'best', 'end', '√KL at the end', 'pairs ranked', 'tokens'],
          rows: [...sweep, ...byLength].map((condition) => [
            ...[
              condition,
              share(curves(condition, 'gold').map(([first]) => first as number)),
              share(best(condition)),
              share(last(condition, 'gold')),
            ],
            ...[figure(last(condition, 'd')), share(last(condition, 'accuracy')), figure(last(condition, 'tokens'))],
          ]),
        },
      },
      { caption: 'Fitted over all β, seeds and lengths of training.', table: fitTable(fits, 'loss') },
    ],
    findings: [
      {
        claim: 'a smaller β goes further from the start',
        holds: reach(smallest) > 1.2 * reach(largest),
        numbers: `√KL ${reach(smallest).toFixed(1)} at the smallest β of each loss, ${reach(largest).toFixed(1)} at the largest`,
      },
      {
        claim: 'quality rises, then falls, under each loss at its smallest β',
        holds: smallest.every((condition) => fall(condition) > 0.03),
        numbers: smallest
          .map(
            (condition) =>
              `${condition.split(',')[0]} ${percent(meanOf(best(condition)))} → ${percent(meanOf(last(condition, 'gold')))}`,
          )
          .join(', '),
      },
      {
        claim: 'a smaller β falls more',
        holds: meanOf(smallest.map(fall)) > meanOf(largest.map(fall)) + 0.02,
        numbers: `by ${percent(meanOf(smallest.map(fall)))} and ${percent(meanOf(largest.map(fall)))}`,
      },
      {
        claim: 'the ranking of pairs keeps improving meanwhile',
        holds: smallest.every((condition) => meanOf(last(condition, 'accuracy')) > 0.9),
        numbers: smallest
          .map((condition) => `${condition.split(',')[0]} ${percent(meanOf(last(condition, 'accuracy')))}`)
          .join(', '),
      },
      {
        claim: 'd(α − β log d) describes gold (R² above 0.5 for each loss)',
        holds: fits.every(({ fit }) => fit.r2 > 0.5),
        numbers: fits.map(({ name, fit }) => `${name} ${fit.r2.toFixed(2)}`).join(', '),
      },
    ],
  };
}
