/** Lightman et al. 2023: the best of n by a process reward model, by an outcome reward model and by majority. */
import { meanOf } from '../../../src/algorithms/index.ts';
import { trainReward } from '../../../src/index.ts';
import {
  bestBy,
  type JudgedResponse,
  labelledSteps,
  majority,
  scoresOf,
} from '../../../src/learn/experiments/best-of-n.ts';
import { Random } from '../../../src/random.ts';
import { mixture, respond, task } from '../../../src/tasks/index.ts';
import { askFolder, finished, quiet, type Response, settings } from '../policies.ts';
import { chartOf, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study, Values } from '../study.ts';

/** Several steps a problem, and a slip in any of them spoils the answer. */
const tasks = 'number_sorting:1-2,spell_backward:1-2';
const sizes = [1, 2, 4, 8, 16, 32, 64, 128];
const most = sizes.at(-1) as number;
const ways = ['process', 'outcome', 'majority', 'any'] as const;
type Way = (typeof ways)[number];
/** Solutions that both reward models learn from: worked out by the task with and without a slip, and the policy's own. */
const [worked, ownProblems, ownSamples] = [6000, 400, 6];
const condition = 'the same solutions';

export const processReward: Study = {
  name: 'process-reward',
  title: 'Process against outcome reward',
  paper: { name: 'Lightman et al. 2023, “Let’s verify step by step”', url: 'https://arxiv.org/abs/2305.20050' },
  published:
    'On MATH with a generator of GPT-4’s family, the best of 1,860 samples is right in 78.2 % of problems if picked by the process reward model, 72.4 % by the outcome reward model, and 69.6 % by majority. The gap grows with n.',
  ours: `models/tiny on \`${tasks}\`, which it works out line by line or blurts out. Both reward models start from it and see the same ${(worked + ownProblems * ownSamples).toLocaleString('en')} solutions to training problems: ${worked.toLocaleString('en')} worked out by the task itself, half of them with a slip, and ${(ownProblems * ownSamples).toLocaleString('en')} of the model’s own responses. The outcome model learns the verifier’s verdict on the whole, the process model a label for every line (wrong from the first line that differs from the known solution). In the paper, people labelled the steps. A response’s process score is the smallest P(right) of its steps. 48 held-out problems, ${most} samples each; for n below that, the mean over disjoint groups of n.`,
  reading:
    'Not replicated. Both reward models find right responses up to n = 8 or 16; beyond that the highest scores go to convincing near-misses, as in 1, and at 128 picking by score is no better than taking the first response. The majority vote has no such weakness: wrong answers scatter and right ones agree. The difference between process and outcome model is within the spread of seeds. The paper’s reward models have GPT-4’s size and learnt from 800,000 labelled steps, collected by searching for convincing wrong solutions; ours have 0.85M parameters and 8,400 solutions.',
  conditions: [condition],
  seeds: [1, 2, 3],
  run: (_, lab) => compare(lab),
  report,
};

type Judged = JudgedResponse & { prompt: string };

/** Solutions that the task works out, every second one with a slip. */
function workedSolutions(seed: number): Judged[] {
  const drawn = mixture(tasks);
  return Array.from({ length: worked }, (_, i) => {
    const problem = drawn.example(seed, i, { part: 'train' });
    const own = task(problem.task);
    const wrong = i % 2 === 0 ? own.wrongSolution(problem, seed * 100_000 + i) : undefined;
    const text = respond(wrong ?? own.solution(problem));
    return { prompt: problem.prompt, text, correct: wrong === undefined, problem };
  });
}

async function compare(lab: Lab): Promise<Values> {
  const asked = { tasks, problems: ownProblems, samples: ownSamples, seed: lab.seed, part: 'train' as const };
  const own = (await askFolder(lab.model, asked)).flat().map((each) => ({ ...each, prompt: each.problem.prompt }));
  const solutions = new Random('solutions', lab.seed).shuffle([...workedSolutions(lab.seed), ...own]);
  const common = {
    batchSize: 32,
    gradAccum: 1,
    lr: 1e-3,
    maxSteps: 280,
    epochs: 2,
    maxLength: 384,
    stripThinking: false,
    evalSteps: -1,
    validationSplit: 0,
    analysisSamples: 0,
  };
  const without = { ...quiet, cache: false } as const;
  const graded = solutions.map(({ prompt, text, correct }) => ({ prompt, completion: text, correct }));
  const outcome = await finished(
    trainReward({ ...settings(lab, 'outcome'), ...common, type: 'outcome', dataset: graded }, without),
  );
  const stepwise = solutions.map((each) => ({ prompt: each.prompt, steps: labelledSteps(each) }));
  const process = await finished(
    trainReward({ ...settings(lab, 'process'), ...common, type: 'process', dataset: stepwise }, without),
  );
  const groups = await askFolder(lab.model, { tasks, problems: 48, samples: most, seed: 100 + lab.seed });
  const [byOutcome, byProcess] = [await scoresOf(outcome, groups), await scoresOf(process, groups)];
  const pick: Record<Way, (group: readonly Response[], of: number, from: number) => boolean> = {
    process: (group, i, from) => bestBy(group, byProcess[i]?.slice(from) ?? []).correct,
    outcome: (group, i, from) => bestBy(group, byOutcome[i]?.slice(from) ?? []).correct,
    majority: (group) => majority(group).correct,
    any: (group) => group.some(({ correct }) => correct),
  };
  const curve = (way: Way) =>
    sizes.map((n) =>
      meanOf(
        groups.flatMap((group, i) =>
          Array.from({ length: most / n }, (_, part) =>
            Number(pick[way](group.slice(part * n, (part + 1) * n), i, part * n)),
          ),
        ),
      ),
    );
  return Object.fromEntries(ways.map((way) => [way, curve(way)]));
}

function report(outcomes: Outcomes) {
  const names: Record<Way, string> = {
    process: 'process reward model',
    outcome: 'outcome reward model',
    majority: 'majority',
    any: 'any of them (pass@n)',
  };
  const at = (way: Way, n: number) => outcomes.curves(condition, way).map((curve) => curve[sizes.indexOf(n)] as number);
  const mean = (way: Way, n: number) => meanOf(at(way, n));
  const gap = (n: number) => mean('process', n) - mean('outcome', n);
  const shown = [1, 4, 16, 64, 128];
  return {
    charts: [
      chartOf(
        { title: 'The best of n', xLabel: 'n, in doublings', yLabel: 'right', share: true },
        ways.map((way) => ({ name: names[way], x: sizes.map(Math.log2), runs: outcomes.curves(condition, way) })),
      ),
    ],
    tables: [
      {
        caption: 'Right responses of the best of n.',
        table: {
          head: ['picked by', ...shown.map((n) => `n = ${n}`)],
          rows: ways.map((way) => [names[way], ...shown.map((n) => share(at(way, n)))]),
        },
      },
    ],
    findings: [
      {
        claim: 'the process reward model is best at n = 128',
        holds: mean('process', most) > Math.max(mean('outcome', most), mean('majority', most)) + 0.02,
        numbers: ways.map((way) => `${names[way]} ${percent(mean(way, most))}`).join(', '),
      },
      {
        claim: 'the outcome reward model is better than the majority at n = 128',
        holds: mean('outcome', most) > mean('majority', most) + 0.02,
        numbers: `${percent(mean('outcome', most))} and ${percent(mean('majority', most))}`,
      },
      {
        claim: 'the lead of the process reward model over the outcome reward model grows with n',
        holds: gap(most) > gap(4) + 0.05,
        numbers: `${(100 * gap(4)).toFixed(0)} points at n = 4, ${(100 * gap(most)).toFixed(0)} at n = ${most}`,
      },
      {
        claim: 'both reward models keep improving with n',
        holds: (['process', 'outcome'] as const).every((way) => mean(way, most) >= mean(way, 16) - 0.02),
        numbers: `from n = 16 to ${most}: process ${percent(mean('process', 16))} → ${percent(mean('process', most))}, outcome ${percent(mean('outcome', 16))} → ${percent(mean('outcome', most))}`,
      },
    ],
  };
}
