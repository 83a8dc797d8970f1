/** Lightman et al. 2023: the best of n by a process reward model, by an outcome reward model and by majority. */
import { meanOf } from '../../../src/algorithms/index.ts';
import { loadRewardModel, trainReward } from '../../../src/index.ts';
import { type StepLabel, taggedAnswer, task } from '../../../src/tasks/index.ts';
import { askFolder, finished, quiet, type Response, settings } from '../policies.ts';
import { chartOf, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study, Values } from '../study.ts';

/** Several steps a problem, and a slip in any of them spoils the answer. */
const tasks = 'number_sorting:2-3';
const sizes = [1, 2, 4, 8, 16, 32, 64, 128];
const most = sizes.at(-1) as number;
const data = [128, 1024];
const ways = ['process', 'outcome', 'majority', 'any'] as const;

export const processReward: Study = {
  name: 'process-reward',
  title: 'Process against outcome reward',
  paper: { name: 'Lightman et al. 2023, “Let’s verify step by step”', url: 'https://arxiv.org/abs/2305.20050' },
  published:
    'On MATH with a generator of GPT-4’s family, the best of 1,860 by the process reward model is right in 78.2 % of problems, by the outcome reward model in 72.4 %, by majority in 69.6 %; the gap grows with n.',
  ours: `models/tiny sorts 4 to 6 numbers (\`${tasks}\`) step by step. Both reward models start from it and see the same responses of its own to 128 or 1,024 training problems (8 each), the outcome model with the verifier’s verdict on the whole, the process model with a label for every line (wrong from the first line that is not what the known solution says). People labelled the paper’s steps. A response’s process score is the least P(right) of its steps. 64 held-out problems, ${most} samples each; for n below that, the mean over disjoint groups of n.`,
  reading: '',
  conditions: data.map((problems) => `${problems} problems`),
  seeds: [1, 2, 3],
  run: compare,
  report,
};

async function compare(condition: string, lab: Lab): Promise<Values> {
  const problems = Number.parseInt(condition, 10);
  const own = (
    await askFolder(lab.model, { tasks, problems, samples: 8, seed: lab.seed, part: 'train', maxNewTokens: 96 })
  ).flat();
  const common = {
    ...{ batchSize: 32, gradAccum: 1, lr: 1e-3, maxSteps: 160, epochs: 100, maxLength: 384, stripThinking: false },
    ...{ evalSteps: -1, validationSplit: 0, analysisSamples: 0 },
  };
  const without = { ...quiet, cache: false } as const;
  const graded = own.map(({ problem, text, correct }) => ({ prompt: problem.prompt, completion: text, correct }));
  const outcome = await finished(
    trainReward({ ...settings(lab, 'outcome'), ...common, type: 'outcome', dataset: graded }, without),
  );
  const stepwise = own.map((response) => ({ prompt: response.problem.prompt, steps: labelledSteps(response) }));
  const process = await finished(
    trainReward({ ...settings(lab, 'process'), ...common, type: 'process', dataset: stepwise }, without),
  );
  const groups = await askFolder(lab.model, {
    tasks,
    problems: 64,
    samples: most,
    seed: 100 + lab.seed,
    maxNewTokens: 96,
  });
  const [byOutcome, byProcess] = [await scored(outcome, groups), await scored(process, groups)];
  const pick: Record<(typeof ways)[number], (group: readonly Response[], of: number, from: number) => boolean> = {
    process: (group, i, from) => bestBy(group, byProcess[i]?.slice(from) ?? []).correct,
    outcome: (group, i, from) => bestBy(group, byOutcome[i]?.slice(from) ?? []).correct,
    majority: (group) => majority(group).correct,
    any: (group) => group.some(({ correct }) => correct),
  };
  const curve = (way: (typeof ways)[number]) =>
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
      if (content !== '') wrong ||= content !== known[at++];
      return { text: line, label: wrong ? -1 : 1 };
    });
}

async function scored(checkpoint: string, groups: readonly Response[][]): Promise<number[][]> {
  using scorer = await loadRewardModel(checkpoint);
  const scores = await scorer.score(
    groups.flat().map(({ problem, text }) => ({ prompt: problem.prompt, response: text })),
  );
  return groups.map((group) => scores.splice(0, group.length));
}

function bestBy(group: readonly Response[], scores: readonly number[]): Response {
  const seen = scores.slice(0, group.length);
  return group[seen.indexOf(Math.max(...seen))] as Response;
}

/** The first response whose answer is the commonest one. */
function majority(group: readonly Response[]): Response {
  const answers = group.map(({ text }) => taggedAnswer(text) ?? text);
  const votes = new Map<string, number>();
  for (const answer of answers) votes.set(answer, (votes.get(answer) ?? 0) + 1);
  const most = Math.max(...votes.values());
  return group[answers.findIndex((answer) => votes.get(answer) === most)] as Response;
}

function report(outcomes: Outcomes) {
  const names: Record<(typeof ways)[number], string> = {
    ...{
      process: 'process reward model',
      outcome: 'outcome reward model',
      majority: 'majority',
      any: 'any of them (pass@n)',
    },
  };
  const conditions = data.map((problems) => `${problems} problems`);
  const at = (condition: string, way: (typeof ways)[number], n: number) =>
    outcomes.curves(condition, way).map((curve) => curve[sizes.indexOf(n)] as number);
  const [, many] = conditions as [string, string];
  const mean = (way: (typeof ways)[number], n: number) => meanOf(at(many, way, n));
  const gap = (n: number) => mean('process', n) - mean('outcome', n);
  return {
    charts: conditions.map((condition) =>
      chartOf(
        { title: `Reward models from ${condition}`, xLabel: 'log₂ n', yLabel: 'right', share: true },
        ways.map((way) => ({ name: names[way], x: sizes.map(Math.log2), runs: outcomes.curves(condition, way) })),
      ),
    ),
    tables: [
      {
        caption: 'Right responses of the best of n.',
        table: {
          head: ['picked by', 'learnt from', ...[1, 4, 16, 64, 128].map((n) => `n = ${n}`)],
          rows: conditions.flatMap((condition) =>
            ways.map((way) => [
              names[way],
              way === 'process' || way === 'outcome' ? condition : '–',
              ...[1, 4, 16, 64, 128].map((n) => share(at(condition, way, n))),
            ]),
          ),
        },
      },
    ],
    findings: [
      {
        claim: 'the process reward model is best at n = 128',
        holds:
          mean('process', most) > mean('outcome', most) + 0.02 && mean('process', most) > mean('majority', most) + 0.02,
        numbers: `process ${percent(mean('process', most))}, outcome ${percent(mean('outcome', most))}, majority ${percent(mean('majority', most))} (1,024 problems)`,
      },
      {
        claim: 'the outcome reward model is better than the majority',
        holds: mean('outcome', most) > mean('majority', most) + 0.02,
        numbers: `${percent(mean('outcome', most))} and ${percent(mean('majority', most))}`,
      },
      {
        claim: 'the lead of the process reward model grows with n',
        holds: gap(most) > gap(4) + 0.02,
        numbers: `${(100 * gap(4)).toFixed(0)} points at n = 4, ${(100 * gap(most)).toFixed(0)} at n = ${most}`,
      },
    ],
  };
}
