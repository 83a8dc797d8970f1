/**
 * Chapter 5. What each relative of GRPO changes, shown by the effect: the weight of a token against the length of its response
 * (Dr. GRPO), the weight of a prompt against its difficulty (group-z), and several updates on one batch (GSPO, CISPO).
 */
import { responseAdvantages } from '../../algorithms/index.ts';
import { trainPolicy } from '../../trainers/policy/policy.ts';
import type { Curve, Experiment, Lab } from './experiment.ts';
import { lately, percent, type Recorded, recorded, settings, surroundings, trainCurve } from './workbench.ts';

const steps = 24;
const lengths = [4, 8, 16, 24, 32, 48, 64];
const groupSize = 8;

export const groupRelative: Experiment = {
  seconds: 150,
  async run(lab) {
    const runs: [string, Recorded][] = [];
    for (const algorithm of ['grpo', 'gspo', 'cispo', 'drgrpo']) runs.push([algorithm, await train(lab, algorithm)]);
    const of = (name: string) => runs.find(([each]) => each === name)?.[1] as Recorded;
    const ratio = (curve: Curve) => (curve.y[0] as number) / (curve.y.at(-1) as number);
    const [sequence, constant] = lengthWeights() as [Curve, Curve];
    const difficulty = difficultyWeights();
    const weightAt = (name: string, right: number) =>
      difficulty.find((curve) => curve.name.startsWith(name))?.y[right - 1] as number;
    return {
      figures: [
        {
          title: 'Weight of one token of a wrong response',
          xLabel: 'length of the response',
          yLabel: 'share of the gradient',
          curves: [sequence, constant],
        },
        {
          title: 'Weight of a prompt',
          xLabel: `right responses of ${groupSize}`,
          yLabel: 'sum of |advantage|',
          curves: difficulty,
        },
        {
          title: 'Right responses, four passes over each batch',
          xLabel: 'step',
          yLabel: 'accuracy',
          share: true,
          curves: runs.map(([name, run]) => trainCurve(name, run, 'accuracy', 4)),
        },
        {
          title: 'Share of tokens that are clipped',
          xLabel: 'step',
          yLabel: 'share',
          curves: runs.map(([name, run]) => trainCurve(name, run, 'clip_fraction', 4)),
        },
      ],
      findings: [
        {
          claim:
            'GRPO punishes a token of a short wrong response harder than one of a long wrong response; Dr. GRPO does not',
          holds: ratio(sequence) > 10 && Math.abs(ratio(constant) - 1) < 1e-6,
          numbers: `weights at 4 and at 64 tokens differ by a factor of ${ratio(sequence).toFixed(0)} and ${ratio(constant).toFixed(0)}`,
        },
        {
          claim: 'dividing by the spread lifts prompts that are nearly solved or nearly hopeless',
          holds:
            weightAt('group-z', 1) / weightAt('group-z', 4) >
            1.2 * (weightAt('group-centred', 1) / weightAt('group-centred', 4)),
          numbers: `one right of eight against four of eight: ${(weightAt('group-z', 1) / weightAt('group-z', 4)).toFixed(2)} with the division, ${(weightAt('group-centred', 1) / weightAt('group-centred', 4)).toFixed(2)} without`,
        },
        {
          claim: 'GSPO clips whole responses: far more tokens than GRPO',
          holds: lately(of('gspo'), 'clip_fraction', 20) > 2 * lately(of('grpo'), 'clip_fraction', 20),
          numbers: `${percent(lately(of('gspo'), 'clip_fraction', 20))} and ${percent(lately(of('grpo'), 'clip_fraction', 20))} of tokens`,
        },
        {
          claim: 'all of them learn',
          holds: runs.every(([, run]) => lately(run, 'accuracy', 5) > 0.7),
          numbers: runs.map(([name, run]) => `${name} ${percent(lately(run, 'accuracy', 5))}`).join(', '),
        },
      ],
    };
  },
};

function train(lab: Lab, algorithm: string): Promise<Recorded> {
  return recorded(
    lab,
    trainPolicy(
      {
        ...settings(lab, algorithm),
        task: 'number_sorting:1,spell_backward:1',
        algorithm,
        evalSteps: -1,
        evalNumPrompts: 0,
        batchSize: 8,
        gradAccum: 1,
        groupSize,
        lr: 1e-4,
        maxSteps: steps,
        maxNewTokens: 64,
        klCoef: 0,
        ppoEpochs: 4,
        saveRollouts: false,
      },
      surroundings(lab),
    ),
  );
}

/**
 * The weight of one token in the step's loss, for a wrong response of each length beside seven right ones: 1/|y| by the
 * `sequence` aggregation, 1/maxNewTokens by `constant`.
 */
function lengthWeights(): Curve[] {
  const rewards = [0, 1, 1, 1, 1, 1, 1, 1];
  const groups = rewards.map(() => 0);
  const wrong = (kind: 'group-z' | 'group-centred') => Math.abs(responseAdvantages(kind, rewards, groups)[0] as number);
  return [
    { name: 'grpo: 1/|y|', x: lengths, y: lengths.map((length) => wrong('group-z') / (length * groupSize)) },
    { name: 'drgrpo: constant', x: lengths, y: lengths.map(() => wrong('group-centred') / (64 * groupSize)) },
  ];
}

/** How much a group with some right responses adds to the gradient. */
function difficultyWeights(): Curve[] {
  const rights = Array.from({ length: groupSize - 1 }, (_, i) => i + 1);
  const weight = (kind: 'group-z' | 'group-centred' | 'leave-one-out', right: number) => {
    const rewards = Array.from({ length: groupSize }, (_, i) => (i < right ? 1 : 0));
    const advantages = responseAdvantages(
      kind,
      rewards,
      rewards.map(() => 0),
    );
    return advantages.reduce((sum, value) => sum + Math.abs(value), 0);
  };
  const curve = (name: string, kind: 'group-z' | 'group-centred' | 'leave-one-out') => ({
    name,
    x: rights,
    y: rights.map((right) => weight(kind, right)),
  });
  return [
    curve('group-z (grpo)', 'group-z'),
    curve('group-centred (drgrpo)', 'group-centred'),
    curve('leave-one-out (rloo)', 'leave-one-out'),
  ];
}
