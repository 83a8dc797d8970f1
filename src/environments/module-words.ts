/** The messages between attune and the thread of a user's environment, all serialisable. */
import type { AgentEpisode } from './agent.ts';
import type { Environment, Episode } from './parts/environment.ts';

/** `episode` is a number chosen by the caller. */
export type EnvironmentRequest =
  | { kind: 'describe' }
  | { kind: 'start'; episode: number; seed: number; difficulty: number }
  | { kind: 'step'; episode: number; response: string; turn: number }
  | { kind: 'end'; episode: number }
  | { kind: 'demonstrate'; seed: number; difficulty: number; skill: number }
  | ({ kind: 'run' } & Omit<AgentEpisode, 'signal'>);

/** What a module must export. */
export type ModuleKind = 'environment' | 'agent';

export type Described = Omit<Environment, 'start' | 'demonstrate'> & { demonstrates: boolean };
export type Started = Pick<Episode, 'messages' | 'key'> & { steps: boolean };

/** The fault of a call for an episode unknown to the thread, because it was played in an earlier thread. */
export const unknownEpisode = 'unknown episode';
