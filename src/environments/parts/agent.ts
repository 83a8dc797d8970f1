/**
 * An agent: a program that calls the policy like any other model, through OpenAI's API, and reports a reward.
 *
 *     export default defineAgent({
 *       name: 'adder',
 *       start: ({ random }) => ({ a: random.int(1, 9), b: random.int(1, 9) }),
 *       async run({ problem: { a, b }, baseURL, apiKey, model }) {
 *         const client = new OpenAI({ baseURL, apiKey });
 *         const messages = [{ role: 'user', content: `${a} + ${b} = ?` }];
 *         const { choices } = await client.chat.completions.create({ model, messages });
 *         return { reward: Number(choices[0].message.content === String(a + b)) };
 *       },
 *     });
 */
import { call, checkArguments, filledText, flag, list, type Rule, text, whole } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { checkPartNames, type Environment, EnvironmentError, type StartOptions } from './environment.ts';
import { checkedStep, type Step, shown } from './step.ts';

/** The options of an agent's run. */
export interface AgentRunOptions<Problem = unknown> {
  /**
   * The base URL for clients of OpenAI's API. It belongs to this episode alone: every call to it is part of the
   * episode.
   */
  baseURL: string;
  apiKey: string;
  /** The policy's model name. Any other name reaches it too. */
  model: string;
  /** The value that `start` returned, made anew for every episode. */
  problem: Problem;
  /** The problem's seed, the same for all episodes of a group. */
  seed: number;
  difficulty: number;
  /** Aborted at the time limit, and when training stops. */
  signal: AbortSignal;
}

/** The result of an agent's episode. */
export interface AgentResult {
  /** Default: the sum of `parts`. */
  reward?: number;
  /** Whether the problem is solved. Accuracy counts this. */
  success?: boolean;
  /** The reward's parts, under names that the agent lists in `parts`. */
  parts?: Readonly<Record<string, number>>;
}

/** A program that calls the policy. Its problem can be any JSON value. */
export interface Agent<
  // biome-ignore lint/suspicious/noExplicitAny: each agent has problems of its own type.
  Problem = any,
> {
  /** May contain letters, digits, _ and -. */
  readonly name: string;
  readonly summary?: string;
  /** Difficulties run from 1 to this; default 1. */
  readonly levels?: number;
  /** Names of the parts of its reward. */
  readonly parts?: readonly string[];
  /** Whether its episodes can succeed or fail; see `Environment.judged`. */
  readonly judged?: boolean;
  /** A list of problems, instead of `start`. */
  readonly problems?: readonly Problem[];
  /** Makes a problem. The same seed must always give the same problem. */
  start?(options: StartOptions): Problem | Promise<Problem>;
  /** Plays an episode: makes its calls, and returns the reward. */
  run(options: AgentRunOptions<Problem>): AgentResult | Promise<AgentResult>;
}

const rules: Record<keyof Agent, Rule> = {
  ...{ name: filledText, summary: text, levels: whole(1, 1000), parts: list(filledText), judged: flag },
  ...{ problems: { fits: Array.isArray, wanted: 'a list' }, start: call, run: call },
};

/** Checks your own agent, and returns it. */
export function defineAgent<Problem>(definition: Agent<Problem>): Agent<Problem> {
  checkArguments('An agent', definition, rules, ['name', 'run']);
  checkNames('An agent', definition, Object.keys(rules));
  const { name, parts = [], problems, start } = definition;
  checkPartNames('agent', name, parts);
  if ((problems === undefined) === (start === undefined))
    throw new UserError(
      `The agent ${name} has ${start ? 'both problems and start' : 'neither problems nor start'}: give it one.`,
    );
  if (problems?.length === 0) throw new UserError(`The agent ${name} has an empty list of problems.`);
  return definition;
}

/** The problem of an episode, as passed to `run`. */
export async function agentProblem(agent: Agent, options: StartOptions): Promise<unknown> {
  return agent.start === undefined ? options.random.pick(agent.problems as unknown[]) : agent.start(options);
}

/** Identifies a problem, and represents it in displays. */
export function problemText(problem: unknown): string {
  if (typeof problem === 'string' && problem !== '') return problem;
  const written = JSON.stringify(problem);
  if (written !== undefined) return written;
  throw new EnvironmentError(
    `A problem of an agent is ${shown(problem)}: expected something that JSON can write, such as an object of texts and numbers.`,
    'contract',
  );
}

/**
 * Wraps an agent's problems as an environment, so that they are drawn, held out and made harder in the same way. It
 * takes no steps.
 */
export function problemsOf(agent: Agent): Environment {
  const { run: _, start: __, problems: ___, ...described } = agent;
  const step = () => {
    throw new UserError(`${agent.name} is an agent, which makes its calls itself: it is played by --agent.`);
  };
  return {
    ...described,
    start: async (options) => ({ messages: problemText(await agentProblem(agent, options)), step }),
  };
}

/** Checks an agent's result. */
export function checkedResult(result: AgentResult, owner: { name: string; parts: readonly string[] }): Step {
  const { reward, parts } = result ?? {};
  if (typeof result !== 'object' || result === null || (reward === undefined && parts === undefined))
    throw new EnvironmentError(
      `The agent ${owner.name} gave ${shown(result)}: its run must give { reward, success?, parts? }.`,
      'contract',
    );
  return checkedStep({ ...result, done: true }, { ...owner, what: `A run of the agent ${owner.name}` });
}
