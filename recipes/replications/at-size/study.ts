/** Over-optimisation and R1-Zero again, with a policy and reward models of 113M parameters on a GPU. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { meanOf } from '../../../src/algorithms/index.ts';
import { trainSft } from '../../../src/index.ts';
import { bestOfNForm, rlForm } from '../fits.ts';
import { bestOfN, judgeOf, most, reinforced } from '../over-optimisation/measure.ts';
import { finished, quiet, settings } from '../policies.ts';
import { chartOf, figure, fitsOf, fitTable, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study } from '../study.ts';
import { grow, imitate, ks, lookAt, tasks } from '../zero/measure.ts';
import { type Habits, teacherRows } from '../zero/teacher.ts';

/** 113M parameters in Qwen3's shape; the tokenizer is the tiny model's. */
const shape = {
  hidden_size: 768,
  intermediate_size: 2048,
  num_hidden_layers: 18,
  num_attention_heads: 12,
  num_key_value_heads: 4,
  head_dim: 64,
};
const careful: Habits = { think: 1, check: 0, carefulSlips: 0 };
const often: Habits = { think: 0.4, check: 0, hastySlips: 0.7 };
const rarely: Habits = { think: 0.08, check: 0.04 };

const [few, many] = [24, 1536];
const zeroName = 'R1-Zero';
const bon = (pairs: number) => `best of n: ${pairs} pairs`;
const rl = (pairs: number) => `RL: ${pairs} pairs`;

export const atSize: Study = {
  name: 'at-size',
  title: 'Two of them at 113M parameters',
  paper: { name: 'the papers of 1 and 4', url: 'https://arxiv.org/abs/2210.10760' },
  published: 'As in 1 and 4. The smallest policy of Gao et al. has 1.2B parameters, their reward models 3M to 3B.',
  ours: `A policy of 113M parameters (18 layers of width 768) from random weights: 400 steps of imitation of worked solutions, then 240 of the teacher’s habits, in bfloat16 on one H200. For over-optimisation it works out 40 % of problems, and reward models of the same size learn from ${few} or ${many} pairs of its own responses. For R1-Zero it works out 8 % and checks 4 %, as in 4. Tasks: \`${tasks}\` and those of 1. Each seed has its own weights from the start.`,
  reading:
    'Both trends appear at 113M parameters. R1-Zero, which failed at 0.85M, works at this size: the base works out 13 % of problems, after 80 steps 99 %, and responses are almost three times as long. Self-checks do not survive here either. Over-optimisation has the same shape, with more spread between seeds and wide intervals for RL, whose policies moved less far than in 1.',
  conditions: [bon(few), bon(many), rl(few), rl(many), zeroName],
  seeds: [1, 2, 3],
  async run(condition, lab) {
    const schooled = await lab.shared(`schooled-${lab.seed}`, (folder) => school(lab, folder));
    const base = (name: string, habits: Habits) =>
      lab.shared(`${name}-${lab.seed}`, (folder) => imitate({ ...lab, model: schooled }, habits, folder, 5e-5));
    if (condition === zeroName)
      return grow({ ...lab, model: await base('rarely', rarely) }, { maxNewTokens: 128, lr: 1e-5 });
    const own = { ...lab, model: await base('often', often) };
    const checkpoint = await judgeOf(own, { pairs: Number(condition.match(/(\d+) pairs/)?.[1]), lr: 3e-5 });
    return condition.startsWith('RL') ? reinforced(own, checkpoint, 1e-5) : bestOfN(own, checkpoint);
  },
  report,
};

/** From random weights: problems of all kinds that are asked for later, worked out without a slip. */
async function school(lab: Lab, into: string): Promise<void> {
  const scratch = join(lab.folder, 'scratch.json');
  mkdirSync(lab.folder, { recursive: true });
  writeFileSync(
    scratch,
    JSON.stringify({ ...JSON.parse(readFileSync(join(lab.model, 'config.json'), 'utf8')), ...shape }),
  );
  const { model, ...rest } = settings(lab, 'school');
  const rows = teacherRows({
    tasks: 'number_sorting:1-2,spell_backward:1-2',
    seed: lab.seed,
    count: 25_600,
    habits: careful,
  });
  const trained = await finished(
    trainSft(
      {
        ...rest,
        fromConfig: scratch,
        tokenizer: model,
        dataset: rows,
        maxLength: 320,
        lr: 5e-4,
        warmupSteps: 40,
        batchSize: 64,
        gradAccum: 1,
        maxSteps: 400,
        epochs: 1,
        validationSplit: 0,
        evalSteps: -1,
        weightDecay: 0.1,
      },
      { ...quiet, cache: false },
    ),
  );
  cpSync(trained, into, { recursive: true });
}

function report(outcomes: Outcomes) {
  const conditions = [bon(few), bon(many), rl(few), rl(many)];
  const curves = (condition: string, name: string) => outcomes.curves(condition, name);
  const line = (condition: string, name: string) => outcomes.line(condition, name);
  const firsts = (condition: string, name: string) => curves(condition, name).map(([first]) => first as number);
  const lasts = (condition: string, name: string) => curves(condition, name).map((curve) => curve.at(-1) as number);
  const best = (condition: string) => curves(condition, 'gold').map((curve) => Math.max(...curve));
  const end = (condition: string) => meanOf(lasts(condition, 'gold'));
  const fits = [
    ...fitsOf(
      outcomes,
      [bon(few), bon(many)].map((condition) => [condition, [condition]] as const),
      bestOfNForm,
    ),
    ...fitsOf(
      outcomes,
      [rl(few), rl(many)].map((condition) => [condition, [condition]] as const),
      rlForm,
    ),
  ];
  const steps = [0, ...lookAt];
  const grown = (name: string) =>
    `${percent(meanOf(firsts(zeroName, name)))} → ${percent(meanOf(lasts(zeroName, name)))}`;
  const tokens = [meanOf(firsts(zeroName, 'tokens')), meanOf(lasts(zeroName, 'tokens'))] as const;
  const rise = meanOf(lasts(zeroName, 'accuracy')) - meanOf(firsts(zeroName, 'accuracy'));
  return {
    charts: [
      chartOf(
        { title: 'Best of n: gold', xLabel: '√KL to the start', yLabel: 'right', share: true },
        [bon(few), bon(many)].map((condition) => line(condition, 'gold')),
      ),
      chartOf(
        { title: 'RL: gold', xLabel: '√KL to the start', yLabel: 'right', share: true },
        [rl(few), rl(many)].map((condition) => line(condition, 'gold')),
      ),
      chartOf(
        { title: 'R1-Zero: shares of responses', xLabel: 'step', yLabel: 'share', share: true },
        [
          ['accuracy', 'right'],
          ['thinks', 'work it out'],
          ['checks', 'check themselves'],
        ].map(([name, label]) => ({ name: label as string, x: steps, runs: curves(zeroName, name as string) })),
      ),
      chartOf({ title: 'R1-Zero: length', xLabel: 'step', yLabel: 'tokens per response' }, [
        { name: 'tokens', x: steps, runs: curves(zeroName, 'tokens') },
      ]),
    ],
    tables: [
      {
        caption: 'Over-optimisation: right responses.',
        table: {
          head: ['', 'start', 'best', 'end', '√KL at the end', 'proxy at the end'],
          rows: conditions.map((condition) => [
            condition,
            share(firsts(condition, 'gold')),
            share(best(condition)),
            share(lasts(condition, 'gold')),
            figure(lasts(condition, 'd')),
            figure(lasts(condition, 'proxy')),
          ]),
        },
      },
      { caption: 'Fitted over all seeds.', table: fitTable(fits, '') },
      {
        caption: 'R1-Zero, before and after.',
        table: {
          head: ['right', 'tokens', 'works it out', 'checks itself', `pass@${ks.at(-1)}`],
          rows: [
            [
              `${share(firsts(zeroName, 'accuracy'))} → ${share(lasts(zeroName, 'accuracy'))}`,
              `${figure(firsts(zeroName, 'tokens'))} → ${figure(lasts(zeroName, 'tokens'))}`,
              `${share(firsts(zeroName, 'thinks'))} → ${share(lasts(zeroName, 'thinks'))}`,
              `${share(firsts(zeroName, 'checks'))} → ${share(lasts(zeroName, 'checks'))}`,
              `${share(lasts(zeroName, 'passBefore'))} → ${share(lasts(zeroName, 'passAfter'))}`,
            ],
          ],
        },
      },
    ],
    findings: [
      {
        claim: `more comparisons raise gold at n = ${most}`,
        holds: end(bon(many)) > end(bon(few)) + 0.05,
        numbers: `${few} pairs ${percent(end(bon(few)))}, ${many} pairs ${percent(end(bon(many)))}`,
      },
      {
        claim: 'and at the end of RL',
        holds: end(rl(many)) > end(rl(few)) + 0.05,
        numbers: `${percent(end(rl(few)))} and ${percent(end(rl(many)))}`,
      },
      {
        claim: 'gold turns under the weaker reward model while the proxy rises',
        holds: meanOf(best(rl(few))) - end(rl(few)) > 0.05 && meanOf(lasts(rl(few), 'proxy')) > 0.5,
        numbers: `RL: ${percent(meanOf(best(rl(few))))} at best, ${percent(end(rl(few)))} at the end, proxy ${figure(lasts(rl(few), 'proxy'))} spreads up`,
      },
      {
        claim: 'R1-Zero: accuracy and length grow together',
        holds: rise > 0.2 && tokens[1] > 1.5 * tokens[0],
        numbers: `${grown('accuracy')} right, ${tokens[0].toFixed(0)} → ${tokens[1].toFixed(0)} tokens`,
      },
      {
        claim: 'R1-Zero: self-checks become common',
        holds: meanOf(lasts(zeroName, 'checks')) > 0.5,
        numbers: grown('checks'),
      },
    ],
  };
}
