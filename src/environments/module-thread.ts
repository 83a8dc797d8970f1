/** The thread in which a user's environment or agent runs; see module.ts. It holds the episodes in progress. */
import { workerData } from 'node:worker_threads';
import { exported, loadedModule, refuse, serve } from '../threads/served-module.ts';
import { runAgent } from './agent.ts';
import {
  type Described,
  type EnvironmentRequest,
  type ModuleKind,
  type Started,
  unknownEpisode,
} from './module-words.ts';
import { problemRandom } from './opened.ts';
import { type Agent, defineAgent, problemsOf } from './parts/agent.ts';
import { defineEnvironment, type Environment, EnvironmentError, type Episode } from './parts/environment.ts';

const episodes = new Map<number, Episode>();
let agent: Agent | undefined;
const loaded = await loadedModule();
const { kind } = workerData as { kind: ModuleKind };
const environment = loaded && (kind === 'agent' ? agentOf(loaded) : environmentOf(loaded));
if (environment !== undefined)
  serve((request: EnvironmentRequest, signal) => answer(environment, request, signal), faultOf);

function environmentOf(module: Record<string, unknown>): Environment | undefined {
  const found = (module.default ?? module.environment) as Environment | undefined;
  if (typeof found?.start !== 'function') {
    const has = exported(module);
    refuse(
      `exports no environment: it needs "export default defineEnvironment({ name, start })" (it exports: ${has}).`,
    );
    return undefined;
  }
  try {
    return defineEnvironment(found);
  } catch (error) {
    refuse(`exports no environment that can be used: ${(error as Error).message}`);
    return undefined;
  }
}

/** Wraps an agent as the environment of its problems. */
function agentOf(module: Record<string, unknown>): Environment | undefined {
  const found = (module.default ?? module.agent) as Agent | undefined;
  if (typeof found?.run !== 'function') {
    refuse(
      `exports no agent: it needs "export default defineAgent({ name, start, run })" (it exports: ${exported(module)}).`,
    );
    return undefined;
  }
  try {
    agent = defineAgent(found);
    return problemsOf(agent);
  } catch (error) {
    refuse(`exports no agent that can be used: ${(error as Error).message}`);
    return undefined;
  }
}

async function answer(own: Environment, request: EnvironmentRequest, signal: AbortSignal): Promise<unknown> {
  switch (request.kind) {
    case 'describe': {
      const { start: _, demonstrate, ...described } = own;
      return { ...described, demonstrates: demonstrate !== undefined } satisfies Described;
    }
    case 'start': {
      const { seed, difficulty } = request;
      const episode = await own.start({ seed, difficulty, random: problemRandom(own.name, seed, difficulty), signal });
      episodes.set(request.episode, episode);
      // The reader refuses a value that is not an episode.
      const { messages, key, step } = episode ?? {};
      return { messages, key, steps: typeof step === 'function' } satisfies Started;
    }
    case 'step': {
      const episode = episodes.get(request.episode);
      if (episode === undefined) throw new Error(unknownEpisode);
      return episode.step(request.response, { turn: request.turn, signal });
    }
    case 'end': {
      const episode = episodes.get(request.episode);
      episodes.delete(request.episode);
      return episode?.end?.();
    }
    case 'run': {
      const { kind: _, ...episode } = request;
      return runAgent(agent as Agent, { ...episode, signal });
    }
    case 'demonstrate': {
      const { seed, difficulty, skill } = request;
      return own.demonstrate?.({ seed, difficulty, random: problemRandom(own.name, seed, difficulty), skill });
    }
  }
}

function faultOf(error: unknown): string {
  if (error instanceof EnvironmentError) return error.fault;
  return error instanceof Error && error.message === unknownEpisode ? unknownEpisode : 'step';
}
