/** Chapter 9. GRPO against a verifier from a model that can think but rarely does: accuracy, length and pass@k. */
import { meanOf, passAtK } from '../../algorithms/index.ts';
import { trainPolicy } from '../../trainers/policy/policy.ts';
import type { Experiment } from './experiment.ts';
import { percent, type Response, recorded, sampleResponses, settings, surroundings, trainCurve } from './workbench.ts';

const tasks = 'number_sorting:1-2,spell_backward:1-2';
const ks = [1, 2, 4, 8, 16];

export const verifiableRewards: Experiment = {
  seconds: 120,
  async run(lab) {
    const ask = (model: string) => sampleResponses(lab, model, { tasks, problems: 64, samples: 16 });
    const before = await ask(lab.model);
    const run = await recorded(
      lab,
      trainPolicy(
        {
          ...settings(lab, 'grpo'),
          task: tasks,
          algorithm: 'grpo',
          evalSteps: -1,
          evalNumPrompts: 0,
          batchSize: 8,
          gradAccum: 1,
          groupSize: 8,
          lr: 2e-4,
          maxSteps: 50,
          maxNewTokens: 96,
          klCoef: 0,
        },
        surroundings(lab),
      ),
    );
    const after = await ask(run.checkpoint);
    const pass = (groups: readonly Response[][]) =>
      ks.map((k) =>
        meanOf(groups.map((group) => passAtK(group.length, group.filter(({ correct }) => correct).length, k))),
      );
    const thinks = (groups: readonly Response[][]) =>
      meanOf(groups.flat().map(({ text }) => Number(text.includes('<think>'))));
    const length = trainCurve('tokens per response', run, 'length_mean', 3);
    const [passBefore, passAfter] = [pass(before), pass(after)];
    return {
      figures: [
        {
          title: 'Right responses in training',
          xLabel: 'step',
          yLabel: 'accuracy',
          share: true,
          curves: [trainCurve('accuracy', run, 'accuracy', 3)],
        },
        { title: 'Length', xLabel: 'step', yLabel: 'tokens', curves: [length] },
        {
          title: 'pass@k on held-out problems',
          xLabel: 'k',
          yLabel: 'pass@k',
          share: true,
          curves: [
            { name: 'before', x: ks, y: passBefore },
            { name: 'after', x: ks, y: passAfter },
          ],
        },
      ],
      findings: [
        {
          claim: 'nobody told it to think, and it learns to',
          holds: thinks(after) > thinks(before) + 0.3 && (length.y.at(-1) as number) > 1.2 * (length.y[0] as number),
          numbers: `${percent(thinks(before))} → ${percent(thinks(after))} of responses; ${length.y[0]?.toFixed(0)} → ${length.y.at(-1)?.toFixed(0)} tokens`,
        },
        {
          claim: 'pass@1 rises far more than pass@16: RL made likely what was possible',
          holds:
            (passAfter[0] as number) - (passBefore[0] as number) >
            2 * ((passAfter.at(-1) as number) - (passBefore.at(-1) as number)),
          numbers: `pass@1 ${percent(passBefore[0] as number)} → ${percent(passAfter[0] as number)}, pass@16 ${percent(passBefore.at(-1) as number)} → ${percent(passAfter.at(-1) as number)}`,
        },
      ],
    };
  },
};
