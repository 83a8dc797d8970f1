/** Chapter 3. The best of n responses, picked by an outcome reward model, by a process reward model and by majority. */
import { meanOf } from '../../algorithms/index.ts';
import { loadRewardModel } from '../../rewards/index.ts';
import { type StepLabel, taggedAnswer, task } from '../../tasks/index.ts';
import { trainReward } from '../../trainers/reward/reward.ts';
import type { Experiment, Lab } from './experiment.ts';
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
    const byOutcome = await scored(lab, outcome.checkpoint, groups);
    const byProcess = await scored(lab, process.checkpoint, groups);
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

/** Every line of a response with its label: right as long as it is what the known solution says at that place. */
function labelledSteps({ problem, text, correct }: Response): { text: string; label: StepLabel }[] {
  const known = task(problem.task)
    .solution(problem)
    .steps.map((step) => step.text);
  let wrong = false;
  let at = 0;
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const content = line.replaceAll(/<\/?(think|answer)>/g, '').trim();
      if (line.includes('<answer>')) return { text: line, label: correct ? 1 : -1 };
      if (content === '') return { text: line, label: wrong ? -1 : 1 };
      wrong ||= content !== known[at++];
      return { text: line, label: wrong ? -1 : 1 };
    });
}

async function scored(lab: Lab, checkpoint: string, groups: readonly Response[][]): Promise<number[][]> {
  using scorer = await loadRewardModel(checkpoint);
  const items = groups.flat().map(({ problem, text }) => ({ prompt: problem.prompt, response: text }));
  const scores = await scorer.score(items, lab.signal === undefined ? {} : { signal: lab.signal });
  return groups.map((group) => scores.splice(0, group.length));
}

function bestBy(group: readonly Response[], scores: readonly number[]): Response {
  const seen = scores.slice(0, group.length);
  return group[seen.indexOf(Math.max(...seen))] as Response;
}

/** The first response whose answer is the commonest one. */
function majority(group: readonly Response[]): Response {
  const answers = group.map(({ text }) => taggedAnswer(text) ?? text);
  const votes = (answer: string) => answers.filter((other) => other === answer).length;
  const most = Math.max(...answers.map(votes));
  return group[answers.findIndex((answer) => votes(answer) === most)] as Response;
}
