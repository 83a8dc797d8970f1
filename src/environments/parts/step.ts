/** Checks what an environment returns, so that a mistake is reported at once instead of trained on. */
import { checkNames, UserError } from '../../errors.ts';
import type { Message } from '../../text/index.ts';
import { EnvironmentError, type StepResult } from './environment.ts';

/** A checked step. */
export interface Step {
  /** Empty if the episode is over, or ends without a message. */
  observation: readonly Message[];
  reward: number;
  done: boolean;
  success: boolean | undefined;
  parts: Readonly<Record<string, number>>;
}

const stepNames: (keyof StepResult)[] = ['observation', 'reward', 'done', 'success', 'parts'];
/** An environment may not speak as the assistant. */
const roles = ['user', 'tool', 'system'];

/** The environment or agent, for messages, and the parts that it may report. */
export interface StepOwner {
  name: string;
  parts: readonly string[];
  /** The source of the value; default: a step of the environment. */
  what?: string;
}

const giver = ({ name, what = `A step of the environment ${name}` }: StepOwner) => what;

export function checkedStep(result: StepResult, owner: StepOwner): Step {
  const wrong = (what: string) => new EnvironmentError(`${giver(owner)} ${what}`, 'contract');
  if (typeof result !== 'object' || result === null)
    throw wrong(`gave ${shown(result)}: it must give { observation, reward, done, success }.`);
  try {
    checkNames(giver(owner), result, stepNames);
  } catch (error) {
    throw error instanceof UserError ? new EnvironmentError(error.message, 'contract') : error;
  }
  const { done = false, success } = result;
  for (const [name, value] of [
    ['done', done],
    ['success', success ?? false],
  ] as const)
    if (typeof value !== 'boolean') throw wrong(`gave ${name}: ${shown(value)}: expected true or false.`);
  const parts = checkedParts(result, owner, wrong);
  const whole = Object.values(parts).reduce((sum, part) => sum + part, 0);
  const { reward = whole } = result;
  if (typeof reward !== 'number') throw wrong(`gave the reward ${shown(reward)}: a reward is a number.`);
  checkFinite(reward, 'the reward', owner);
  if (result.observation === undefined && !done)
    throw wrong('gave no observation and did not end the episode: give one of { observation } and { done: true }.');
  const observation = result.observation === undefined ? [] : messagesOf(result.observation);
  const bad = observation.find((message) => !isMessage(message) || !roles.includes(message.role));
  if (bad !== undefined)
    throw wrong(
      `gave the observation ${shown(bad)}: expected text, or messages with a role of ${roles.join(', ')} and a text content.`,
    );
  if (observation.length === 0 && !done) throw wrong('gave an empty list of messages and did not end the episode.');
  // Copies, because an environment may reuse the object for its next observation.
  return { observation: observation.map(({ role, content }) => ({ role, content })), reward, done, success, parts };
}

function checkedParts(
  { parts = {} }: StepResult,
  owner: StepOwner,
  wrong: (what: string) => EnvironmentError,
): Readonly<Record<string, number>> {
  if (typeof parts !== 'object' || parts === null)
    throw wrong(`gave the parts ${shown(parts)}: expected numbers by name.`);
  for (const [name, value] of Object.entries(parts)) {
    if (!owner.parts.includes(name))
      throw wrong(
        `gave a part "${name}" that it does not list: define it with parts: ['${[...owner.parts, name].join("', '")}'].`,
      );
    if (typeof value !== 'number') throw wrong(`gave ${shown(value)} for its part "${name}": expected a number.`);
    checkFinite(value, `its part "${name}"`, owner);
  }
  return parts;
}

/** A reward's square must fit in float32, because the spread within a group is computed from it. */
function checkFinite(value: number, what: string, owner: StepOwner): void {
  if (Number.isFinite(Math.fround(value * value))) return;
  const why = Number.isFinite(value) ? 'too large to compute with' : 'not a finite number';
  throw new EnvironmentError(`${giver(owner)} gave ${value} for ${what}: ${why}.`, 'step');
}

/** Text becomes a user message. */
export function messagesOf(given: string | Message | readonly Message[]): readonly Message[] {
  if (typeof given === 'string') return [{ role: 'user', content: given }];
  return Array.isArray(given) ? given : [given as Message];
}

export const isMessage = (value: unknown): value is Message =>
  typeof value === 'object' &&
  value !== null &&
  typeof (value as Message).role === 'string' &&
  typeof (value as Message).content === 'string';

/** A value shortened for a message. */
export function shown(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  let written: string | undefined;
  try {
    written = JSON.stringify(value);
  } catch {
    // not serialisable as JSON
  }
  const text = written ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
