/**
 * An environment: the policy answers, the environment returns an observation, and so on until the environment ends the
 * episode. The environment gives the reward.
 *
 *     export default defineEnvironment({
 *       name: 'higher',
 *       start({ random }) {
 *         const number = random.int(1, 9);
 *         return {
 *           messages: 'Guess my number, 1 to 9.',
 *           key: String(number),
 *           step(response) {
 *             if (Number(response) === number) return { done: true, success: true, reward: 1 };
 *             return { observation: Number(response) < number ? 'Higher.' : 'Lower.' };
 *           },
 *         };
 *       },
 *     });
 */
import { call, checkArguments, filledText, flag, list, type Rule, text, whole } from '../../arguments.ts';
import { AttuneError, checkNames, UserError } from '../../errors.ts';
import type { Random } from '../../random.ts';
import type { Message } from '../../text/index.ts';

/** The inputs of an episode's start. */
export interface StartOptions {
  /** The same seed and difficulty must always give the same problem. */
  seed: number;
  /** From 1 to the environment's `levels`. */
  difficulty: number;
  /** Random numbers seeded by `seed` and `difficulty`. */
  random: Random;
  /** Aborted at the time limit, and when the run stops. */
  signal: AbortSignal;
}

/** Options of a step. */
export interface StepOptions {
  /** The number of the answer, from 1. */
  turn: number;
  /** Aborted at the time limit, and when the run stops. */
  signal: AbortSignal;
}

/** An environment's reply to an answer. */
export interface StepResult {
  /** What the policy reads next. Text is a user message. Required unless the episode is over. */
  observation?: string | Message | readonly Message[];
  /** The reward of this turn; turns add up. Default: the sum of `parts`, or 0. */
  reward?: number;
  /** Ends the episode. */
  done?: boolean;
  /** Whether the problem is solved. Accuracy counts the last value reported. */
  success?: boolean;
  /** The reward's parts, under names that the environment lists in `parts`. */
  parts?: Readonly<Record<string, number>>;
}

/** One episode of an environment. */
export interface Episode {
  /** What the policy reads first. Text is a user message. The same for the same seed. */
  messages: string | readonly Message[];
  /**
   * Identifies the problem if the messages do not, for example by a hidden number. It decides whether the problem is
   * held out.
   */
  key?: string;
  /** Takes the policy's next answer. */
  step(response: string, options: StepOptions): StepResult | Promise<StepResult>;
  /** Frees what the episode holds. Called once, even if the episode is ended early. */
  end?(): void | Promise<void>;
}

/** The game that a scripted player plays, and its skill. */
export interface DemonstrateOptions {
  seed: number;
  difficulty: number;
  /** The random numbers that `start` gets for this problem. */
  random: Random;
  /** The share of good moves, from 0 to 1. The others are random. */
  skill: number;
}

/** An environment that a policy acts in turn by turn. */
export interface Environment {
  /** May contain letters, digits, _ and -. */
  readonly name: string;
  readonly summary?: string;
  /** Difficulties run from 1 to this; default 1. */
  readonly levels?: number;
  /** Names of the parts of its reward. */
  readonly parts?: readonly string[];
  /**
   * Whether its episodes can succeed or fail. Default: true as soon as one episode of a batch reports `success`; those
   * that never report it then count as failed.
   */
  readonly judged?: boolean;
  start(options: StartOptions): Episode | Promise<Episode>;
  /** A scripted player's answers, for learning the format before RL. */
  demonstrate?(options: DemonstrateOptions): readonly string[] | Promise<readonly string[]>;
}

const rules: Record<keyof Environment, Rule> = {
  ...{ name: filledText, summary: text, levels: whole(1, 1000), parts: list(filledText), judged: flag },
  ...{ start: call, demonstrate: call },
};

/** Checks your own environment, and returns it. */
export function defineEnvironment(definition: Environment): Environment {
  checkArguments('An environment', definition, rules, ['name', 'start']);
  checkNames('An environment', definition, Object.keys(rules));
  checkPartNames('environment', definition.name, definition.parts);
  return definition;
}

/** Checks the names of an environment or agent, and of its reward's parts. */
export function checkPartNames(what: 'environment' | 'agent', name: string, parts: readonly string[] = []): void {
  if (!/^[\w-]+$/.test(name))
    throw new UserError(`"${name}" cannot be an ${what}'s name: letters, digits, _ and - make one.`);
  const odd = parts.find((part, i) => !/^[\w-]+$/.test(part) || part === 'other' || parts.indexOf(part) !== i);
  if (odd !== undefined)
    throw new UserError(
      `The ${what} ${name} lists the part "${odd}": each part is named once, with letters, digits, _ and -, and "other" is what no part names.`,
    );
}

/**
 * What failed. `step`: an episode, which --on-reward-error score ends with the reward earned so far. `contract`: the
 * environment itself, for example by returning text as a reward. This always stops the run.
 */
export type EnvironmentFault = 'step' | 'contract';

/** An environment failed, or returned an invalid value. */
export class EnvironmentError extends AttuneError {
  override name = 'EnvironmentError';
  readonly fault: EnvironmentFault;

  constructor(message: string, fault: EnvironmentFault, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}
