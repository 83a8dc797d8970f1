/**
 * An agent: a program that calls the policy as it would call any model, by OpenAI's API, and says what came of it.
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

/** What an agent's run gets. */
export interface AgentRunOptions<Problem = unknown> {
  /** The address for clients of OpenAI's API. It is this episode's own: every call to it is a part of the episode. */
  baseURL: string;
  apiKey: string;
  /** The name of the policy; any name is answered by it. */
  model: string;
  /** What `start` gave, made anew for every episode. */
  problem: Problem;
  /** The seed of the problem, the same for all episodes of a group. */
  seed: number;
  difficulty: number;
  /** Aborted when the agent took too long, and when training is stopped. */
  signal: AbortSignal;
}

/** The result of an agent's episode. */
export interface AgentResult {
  /** Where it is left out, it is the sum of `parts`. */
  reward?: number;
  /** Whether the problem is solved: what accuracy counts. */
  success?: boolean;
  /** What the reward is made of, by the names that the agent lists as its `parts`. */
  parts?: Readonly<Record<string, number>>;
}

/** A program that calls the policy. Its problem can be anything that JSON can write. */
export interface Agent<
  // biome-ignore lint/suspicious/noExplicitAny: each agent has problems of its own type.
  Problem = any,
> {
  /** Letters, digits, _ and -. */
  readonly name: string;
  readonly summary?: string;
  /** Difficulties run from 1 to this; 1 unless given. */
  readonly levels?: number;
  /** Names of what its reward is made of. */
  readonly parts?: readonly string[];
  /** Whether its episodes succeed or fail, as of an environment. */
  readonly judged?: boolean;
  /** A list of problems, in place of `start`. */
  readonly problems?: readonly Problem[];
  /** Makes a problem. The same seed must make the same one. */
  start?(options: StartOptions): Problem | Promise<Problem>;
  /** Plays an episode: makes its calls, and says what they were worth. */
  run(options: AgentRunOptions<Problem>): AgentResult | Promise<AgentResult>;
}

const rules: Record<keyof Agent, Rule> = {
  ...{ name: filledText, summary: text, levels: whole(1, 1000), parts: list(filledText), judged: flag },
  ...{ problems: { fits: Array.isArray, wanted: 'a list' }, start: call, run: call },
};

/** Checks an agent of your own, and returns it. */
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

/** The problem of an episode, as `run` gets it. */
export async function agentProblem(agent: Agent, options: StartOptions): Promise<unknown> {
  return agent.start === undefined ? options.random.pick(agent.problems as unknown[]) : agent.start(options);
}

/** What tells a problem from others, and stands for it where problems are shown. */
export function problemText(problem: unknown): string {
  if (typeof problem === 'string' && problem !== '') return problem;
  const written = JSON.stringify(problem);
  if (written !== undefined) return written;
  throw new EnvironmentError(
    `A problem of an agent is ${shown(problem)}: expected something that JSON can write, such as an object of texts and numbers.`,
    'contract',
  );
}

/** An agent's problems as those of an environment, which are drawn, held out and made harder in the same way. It takes no steps. */
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

/** What an agent returned, checked. */
export function checkedResult(result: AgentResult, owner: { name: string; parts: readonly string[] }): Step {
  const { reward, parts } = result ?? {};
  if (typeof result !== 'object' || result === null || (reward === undefined && parts === undefined))
    throw new EnvironmentError(
      `The agent ${owner.name} gave ${shown(result)}: its run must give { reward, success?, parts? }.`,
      'contract',
    );
  return checkedStep({ ...result, done: true }, { ...owner, what: `A run of the agent ${owner.name}` });
}
