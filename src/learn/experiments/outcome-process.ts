/** Chapter 3. The best of n responses, picked by an outcome reward model, by a process reward model and by majority. */
import { meanOf } from '../../algorithms/index.ts';
import { trainReward } from '../../trainers/reward/reward.ts';
import { bestBy, labelledSteps, majority, scoresOf } from './best-of-n.ts';
import type { Experiment } from './experiment.ts';
import { percent, type Response, recorded, sampleResponses, settings, surroundings } from './workbench.ts';

const tasks = 'number_sorting:1-2,spell_backward:1-2';
const sizes = [1, 2, 4, 8, 16];

export const outcomeProcess: Experiment = {
  seconds: 150,
  async run(lab) {
    const own = (await sampleResponses(lab, lab.model, { tasks, problems: 256, samples: 6, part: 'train' })).flat();
    const common = {
      batchSize: 32,
      gradAccum: 1,
      lr: 1e-3,
      maxSteps: 100,
      epochs: 10,
      maxLength: 384,
      stripThinking: false,
      evalSteps: -1,
      validationSplit: 0,
      analysisSamples: 0,
    };
    const graded = own.map(({ problem, text, correct }) => ({ prompt: problem.prompt, completion: text, correct }));
    const outcome = await recorded(
      lab,
      trainReward(
        { ...settings(lab, 'outcome'), ...common, type: 'outcome', dataset: graded },
        { ...surroundings(lab), cache: false },
      ),
    );
    const stepwise = own.map((response) => ({ prompt: response.problem.prompt, steps: labelledSteps(response) }));
    const process = await recorded(
      lab,
      trainReward(
        { ...settings(lab, 'process'), ...common, type: 'process', dataset: stepwise },
        { ...surroundings(lab), cache: false },
      ),
    );
    const groups = await sampleResponses(lab, lab.model, { tasks, problems: 64, samples: Math.max(...sizes) });
    const byOutcome = await scoresOf(outcome.checkpoint, groups, lab);
    const byProcess = await scoresOf(process.checkpoint, groups, lab);
    const ways: [string, (group: readonly Response[], i: number) => Response][] = [
      ['outcome reward model', (group, i) => bestBy(group, byOutcome[i] as number[])],
      ['process reward model', (group, i) => bestBy(group, byProcess[i] as number[])],
      ['majority', (group) => majority(group)],
      ['first', (group) => group[0] as Response],
    ];
    const curves = ways.map(([name, pick]) => ({
      name,
      x: sizes,
      y: sizes.map((n) => meanOf(groups.map((group, i) => Number(pick(group.slice(0, n), i).correct)))),
    }));
    const any = sizes.map((n) =>
      meanOf(groups.map((group) => Number(group.slice(0, n).some(({ correct }) => correct)))),
    );
    const at = (i: number) => curves[i]?.y.at(-1) as number;
    return {
      figures: [
        {
          title: 'The best of n responses',
          xLabel: 'n',
          yLabel: 'right',
          share: true,
          curves: [{ name: 'any of them (pass@n)', x: sizes, y: any }, ...curves],
        },
      ],
      findings: [
        {
          claim: 'a reward model finds right responses among sixteen',
          holds: Math.max(at(0), at(1)) > at(3) + 0.1,
          numbers: `outcome ${percent(at(0))}, process ${percent(at(1))}, majority ${percent(at(2))}, first ${percent(at(3))}, any ${percent(any.at(-1) as number)}`,
        },
      ],
    };
  },
};
