/** A base made by imitation, and what RL on the verifier makes of it. */
import { cpSync } from 'node:fs';
import { meanOf, passAtK } from '../../../src/algorithms/index.ts';
import { trainPolicy, trainSft } from '../../../src/index.ts';
import { loadTokenizer } from '../../../src/models/index.ts';
import {
  ask,
  askFolder,
  finished,
  meanTokens,
  quiet,
  type Response,
  rightShare,
  settings,
  watch,
} from '../policies.ts';
import type { Lab, Values } from '../study.ts';
import { type Habits, teacherRows } from './teacher.ts';

export const tasks = 'number_sorting:2,spell_backward:2';
export const ks = [1, 2, 4, 8, 16, 32];
export const lookAt = [10, 20, 30, 40, 50, 60, 70, 80];

/** A base that has imitated the teacher. */
export async function imitate(lab: Lab, habits: Habits, into: string, lr: number): Promise<void> {
  const trained = await finished(
    trainSft(
      {
        ...settings(lab, 'base'),
        dataset: teacherRows({ tasks, seed: lab.seed, count: 7680, habits }),
        maxLength: 320,
        batchSize: 32,
        gradAccum: 1,
        lr,
        maxSteps: 240,
        epochs: 1,
        validationSplit: 0,
        evalSteps: -1,
      },
      { ...quiet, cache: false },
    ),
  );
  cpSync(trained, into, { recursive: true });
}

const thinks = (groups: readonly Response[][]) =>
  meanOf(groups.flat().map(({ text }) => Number(text.includes('<think>'))));
const checks = (groups: readonly Response[][]) => meanOf(groups.flat().map(({ text }) => Number(/^check/m.test(text))));

/** GRPO on the verifier from a base, looked at on the way. */
export async function grow(lab: Lab, { maxNewTokens, lr }: { maxNewTokens: number; lr: number }): Promise<Values> {
  const tokenizer = await loadTokenizer(lab.model);
  const few = { tasks, problems: 64, samples: 4, seed: 100 + lab.seed, maxNewTokens };
  const many = { ...few, samples: ks.at(-1) as number };
  const before = await askFolder(lab.model, many);
  const course = {
    accuracy: [rightShare(before)],
    tokens: [meanTokens(before)],
    thinks: [thinks(before)],
    checks: [checks(before)],
  };
  let after = before;
  await watch(
    trainPolicy(
      {
        ...settings(lab, 'grpo'),
        task: tasks,
        algorithm: 'grpo',
        klCoef: 0,
        lr,
        batchSize: 8,
        gradAccum: 1,
        groupSize: 8,
        maxSteps: lookAt.at(-1),
        maxNewTokens,
        eosPenalty: 0,
        evalSteps: -1,
        evalNumPrompts: 0,
        saveRollouts: false,
        saveModel: false,
      },
      quiet,
    ),
    lookAt,
    async (policy, step) => {
      after = await ask(policy, tokenizer, step === lookAt.at(-1) ? many : few);
      course.accuracy.push(rightShare(after));
      course.tokens.push(meanTokens(after));
      course.thinks.push(thinks(after));
      course.checks.push(checks(after));
    },
  );
  const pass = (groups: readonly Response[][]) =>
    ks.map((k) =>
      meanOf(groups.map((group) => passAtK(group.length, group.filter(({ correct }) => correct).length, k))),
    );
  return { ...course, passBefore: pass(before), passAfter: pass(after) };
}
