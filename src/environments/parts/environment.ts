/**
 * An environment: the policy answers, the environment says what it sees, the policy answers again, until the environment ends
 * the episode. The reward is the environment's.
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

/** What an episode begins from. */
export interface StartOptions {
  /** The same seed and difficulty always give the same problem. */
  seed: number;
  /** From 1 to the environment's `levels`. */
  difficulty: number;
  /** Random numbers that the seed and the difficulty decide. */
  random: Random;
  /** Aborted at the time limit, and when the run is stopped. */
  signal: AbortSignal;
}

/** How an answer is taken. */
export interface StepOptions {
  /** The number of the answer, from 1. */
  turn: number;
  /** Aborted at the time limit, and when the run is stopped. */
  signal: AbortSignal;
}

/** What an environment makes of an answer. */
export interface StepResult {
  /** What the policy is told; text is a message of the user. Needed unless the episode is over. */
  observation?: string | Message | readonly Message[];
  /** Rewards of the turns add up. Where it is left out, it is the sum of `parts`, or 0. */
  reward?: number;
  /** The episode is over. */
  done?: boolean;
  /** Whether the problem is solved: what accuracy counts. The last that was said holds. */
  success?: boolean;
  /** What the reward is made of, by the names that the environment lists as its `parts`. */
  parts?: Readonly<Record<string, number>>;
}

/** One episode of an environment. */
export interface Episode {
  /** What the policy reads first; text is a message of the user. The same for one seed. */
  messages: string | readonly Message[];
  /** What tells this problem from another, where the messages do not: a hidden number, say. It decides what is held out. */
  key?: string;
  /** Takes the policy's next answer. */
  step(response: string, options: StepOptions): StepResult | Promise<StepResult>;
  /** Frees what the episode holds. Called once, also where it is ended early. */
  end?(): void | Promise<void>;
}

/** Which game a scripted player plays, and how well. */
export interface DemonstrateOptions {
  seed: number;
  difficulty: number;
  /** The random numbers that `start` gets for this problem. */
  random: Random;
  /** The share of good moves, from 0 to 1; the others are made at random. */
  skill: number;
}

/** A world that a policy acts in, turn by turn. */
export interface Environment {
  /** Letters, digits, _ and -. */
  readonly name: string;
  readonly summary?: string;
  /** Difficulties run from 1 to this; 1 unless given. */
  readonly levels?: number;
  /** Names of what its reward is made of. */
  readonly parts?: readonly string[];
  /**
   * Whether its episodes succeed or fail. Where it is left out, they do as soon as one of a batch says `success`. An episode that
   * never says it has then failed.
   */
  readonly judged?: boolean;
  start(options: StartOptions): Episode | Promise<Episode>;
  /** The turns of a scripted player, to learn the format from before RL. */
  demonstrate?(options: DemonstrateOptions): readonly string[] | Promise<readonly string[]>;
}

const rules: Record<keyof Environment, Rule> = {
  ...{ name: filledText, summary: text, levels: whole(1, 1000), parts: list(filledText), judged: flag },
  ...{ start: call, demonstrate: call },
};

/** Checks an environment of your own, and returns it. */
export function defineEnvironment(definition: Environment): Environment {
  checkArguments('An environment', definition, rules, ['name', 'start']);
  checkNames('An environment', definition, Object.keys(rules));
  checkPartNames('environment', definition.name, definition.parts);
  return definition;
}

/** The names of an environment or an agent, and of what its reward is made of. */
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
 * What failed. `step`: an episode, which --on-reward-error score ends with what it has earned so far. `contract`: the environment
 * itself, for example by returning text for a reward; it always stops the run.
 */
export type EnvironmentFault = 'step' | 'contract';

/** An environment failed, or returned something that it may not. */
export class EnvironmentError extends AttuneError {
  override name = 'EnvironmentError';
  readonly fault: EnvironmentFault;

  constructor(message: string, fault: EnvironmentFault, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}
