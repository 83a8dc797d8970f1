/** An agent that is ready to run, from the program or from a module. */
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

/** The episode to run, and the address at which the policy answers. */
export interface AgentEpisode extends Omit<AgentRunOptions, 'problem'> {
  /** The problem's key when it was drawn. */
  key: string;
}

/** The agents' thread ended by itself; any episode that was not waiting for an answer may be the cause. */
export class AgentThreadLost extends EnvironmentError {
  override name = 'AgentThreadLost';

  constructor(message: string) {
    super(message, 'step');
  }
}

export type AgentRunner = (episode: AgentEpisode) => Promise<AgentResult>;

/** An agent that is ready to run. Its problems are drawn like those of environments. A run plays a whole episode. */
export class OpenAgent extends OpenEnvironment {
  readonly #run: AgentRunner;

  constructor(problems: Environment, run: AgentRunner, options: OpenOptions) {
    super(problems, { ...options, what: 'agent' });
    this.#run = run;
  }

  /**
   * The checked result of an episode. The caller limits the time through its signal. Throws ThreadEnded if another
   * episode ended the thread, in which case it may run again.
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

/** A program's own agent, which runs in the program's thread. */
export const openAgent = (agent: Agent, options: OpenOptions): OpenAgent =>
  new OpenAgent(problemsOf(agent), (episode) => runAgent(agent, episode), options);

/** Runs an episode in the agent's own thread. */
export async function runAgent(agent: Agent, { key, ...episode }: AgentEpisode): Promise<AgentResult> {
  const { seed, difficulty, signal } = episode;
  const random = problemRandom(agent.name, seed, difficulty);
  const problem = await agentProblem(agent, { seed, difficulty, random, signal });
  // The key of a problem is its text as a user message.
  if (JSON.stringify([{ role: 'user', content: problemText(problem) }]) !== key)
    throw new EnvironmentError(
      `The agent ${agent.name} gave two different problems for seed ${seed} and difficulty ${difficulty}: the same seed must always make the same one. Draw random numbers from the \`random\` that start gets.`,
      'contract',
    );
  return agent.run({ ...episode, problem });
}
