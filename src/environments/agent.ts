/** An agent that is ready to run: one of a program, or of a module. */
import { messageOf } from '../threads/messages.ts';
import { ThreadEnded } from '../threads/module-thread.ts';
import { untilAborted } from '../threads/time-limit.ts';
import { OpenEnvironment, type OpenOptions, problemRandom } from './opened.ts';
import {
  type Agent,
  type AgentResult,
  type AgentRunOptions,
  agentProblem,
  checkedResult,
  problemsOf,
  problemText,
} from './parts/agent.ts';
import { type Environment, EnvironmentError } from './parts/environment.ts';
import type { Step } from './parts/step.ts';

/** Which episode to run, and the address at which the policy answers. */
export interface AgentEpisode extends Omit<AgentRunOptions, 'problem'> {
  /** What the problem was when it was drawn. */
  key: string;
}

/** The agents' thread ended by itself; an episode that was not waiting for an answer may be the cause. */
export class AgentThreadLost extends EnvironmentError {
  override name = 'AgentThreadLost';

  constructor(message: string) {
    super(message, 'step');
  }
}

/** Runs an episode of an agent. */
export type AgentRunner = (episode: AgentEpisode) => Promise<AgentResult>;

/** An agent that is ready to run. Its problems are drawn like those of environments; a run plays a whole episode. */
export class OpenAgent extends OpenEnvironment {
  readonly #run: AgentRunner;

  constructor(problems: Environment, run: AgentRunner, options: OpenOptions) {
    super(problems, { ...options, what: 'agent' });
    this.#run = run;
  }

  /**
   * The checked result of an episode. Whoever runs it sees to the time that it takes, by its signal. Throws ThreadEnded where its
   * thread was ended by others: it may be run again.
   */
  async run(episode: AgentEpisode): Promise<Step> {
    const { seed, difficulty, signal } = episode;
    let result: AgentResult;
    try {
      result = await untilAborted(() => this.#run(episode), signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ThreadEnded || error instanceof EnvironmentError) throw error;
      throw new EnvironmentError(
        `The agent ${this.name} failed (seed ${seed}, difficulty ${difficulty}): ${messageOf(error)}`,
        'step',
        { cause: error },
      );
    }
    return checkedResult(result, this);
  }
}

/** An agent of a program's own, which runs in the program's thread. */
export const openAgent = (agent: Agent, options: OpenOptions): OpenAgent =>
  new OpenAgent(problemsOf(agent), (episode) => runAgent(agent, episode), options);

/** Runs an episode where the agent is. */
export async function runAgent(agent: Agent, { key, ...episode }: AgentEpisode): Promise<AgentResult> {
  const { seed, difficulty, signal } = episode;
  const random = problemRandom(agent.name, seed, difficulty);
  const problem = await agentProblem(agent, { seed, difficulty, random, signal });
  // The key of a problem is its text as a message of the user.
  if (JSON.stringify([{ role: 'user', content: problemText(problem) }]) !== key)
    throw new EnvironmentError(
      `The agent ${agent.name} gave two different problems for seed ${seed} and difficulty ${difficulty}: the same seed must always make the same one. Draw random numbers from the \`random\` that start gets.`,
      'contract',
    );
  return agent.run({ ...episode, problem });
}
