/**
 * A user's module as an environment. It runs in its own thread: an endless loop is stopped at the time limit, and
 * process.exit() ends the thread, not the training.
 *
 *     using environment = await loadEnvironment('./my-env.ts', { timeLimitMs: 10_000 });
 *
 * The thread holds the episodes in progress. If one episode ends it, the others continue in a new thread: they start
 * again with their seeds, and the policy's answers so far are replayed.
 */
import { checkModuleFile, ModuleThread, ThreadEnded } from '../threads/module-thread.ts';
import { type AgentEpisode, AgentThreadLost, OpenAgent } from './agent.ts';
import {
  type Described,
  type EnvironmentRequest,
  type ModuleKind,
  type Started,
  unknownEpisode,
} from './module-words.ts';
import { OpenEnvironment, type OpenOptions, tooLate } from './opened.ts';
import type { AgentResult } from './parts/agent.ts';
import { type Environment, EnvironmentError, type Episode, type StepResult } from './parts/environment.ts';

/** The words for each kind in messages: the module, the function called in it, and one call. */
const words = {
  environment: { module: 'environment module', called: 'an environment', call: 'step' },
  agent: { module: 'agent module', called: 'an agent', call: 'run' },
} as const;
/** The number of attempts at a call whose thread keeps ending without another call being to blame. */
const mostTries = 4;

/** How to run a module's environment. */
export interface LoadOptions {
  /** Time limit of one step; default 60 s. */
  timeLimitMs?: number;
}

/** An agent's caller limits its time through a signal. */
const unbounded = Number.POSITIVE_INFINITY;

/** Refuses a path that is not a file. */
export const checkEnvironmentFile = (path: string, kind: ModuleKind = 'environment'): void =>
  checkModuleFile(path, words[kind].module);

/** Loads a TypeScript or JavaScript module whose default export is an environment. */
export const loadEnvironment = (path: string, options: LoadOptions = {}): Promise<OpenEnvironment> =>
  load(path, 'environment', options, (environment, _, open) => new OpenEnvironment(environment, open));

/** Loads a module whose default export is an agent. `timeLimitMs` limits its start. */
export const loadAgent = (path: string, options: LoadOptions = {}): Promise<OpenAgent> =>
  load(path, 'agent', options, (problems, asker, open) => new OpenAgent(problems, (each) => asker.run(each), open));

async function load<Opened>(
  path: string,
  kind: ModuleKind,
  { timeLimitMs = 60_000 }: LoadOptions,
  open: (environment: Environment, asker: Asker, options: OpenOptions) => Opened,
): Promise<Opened> {
  checkEnvironmentFile(path, kind);
  const asker = new Asker(path, kind, timeLimitMs);
  try {
    const { demonstrates, ...described } = (await asker.ask({ kind: 'describe' })) as Described;
    asker.name = described.name;
    const environment: Environment = {
      ...described,
      start: async ({ seed, difficulty, signal }) => asker.start({ seed, difficulty }, signal),
      ...(demonstrates && {
        demonstrate: async ({ seed, difficulty, skill }) =>
          (await asker.ask({ kind: 'demonstrate', seed, difficulty, skill })) as string[],
      }),
    };
    return open(environment, asker, { timeLimitMs, isBounded: true, dispose: () => asker.dispose() });
  } catch (error) {
    asker.dispose();
    throw error instanceof ThreadEnded ? error.cause : error;
  }
}

/** The caller adds the place to an error thrown by a step. */
function failureOf(message: string, fault: string): Error {
  if (fault === unknownEpisode) return new ThreadEnded(new EnvironmentError(message, 'step'), { isBlamed: false });
  if (fault === 'thread' || fault === 'contract')
    return new EnvironmentError(message, fault === 'contract' ? 'contract' : 'step');
  return new Error(message);
}

/** Calls the thread, and repeats a call that another call interrupted. */
class Asker {
  name: string;
  readonly #thread: ModuleThread;
  readonly #timeLimitMs: number;
  #episodes = 0;

  readonly #kind: ModuleKind;

  constructor(path: string, kind: ModuleKind, timeLimitMs: number) {
    this.name = path;
    this.#kind = kind;
    this.#timeLimitMs = timeLimitMs;
    this.#thread = new ModuleThread({
      path,
      script: new URL('./module-thread.ts', import.meta.url),
      data: { kind },
      words: words[kind],
      failure: (message, fault) =>
        kind === 'agent' && fault === 'thread' ? new AgentThreadLost(message) : failureOf(message, fault),
      endsWithLateCall: false,
    });
  }

  ask(request: EnvironmentRequest, signal?: AbortSignal): Promise<unknown> {
    const timeLimitMs = this.#timeLimitMs;
    return this.#thread.call(request, {
      timeLimitMs,
      tooLate: () => tooLate(this.name, timeLimitMs, this.#kind),
      signal,
    });
  }

  /** Runs an agent's episode without repeating it: the caller knows which calls it has made. */
  async run({ signal, ...episode }: AgentEpisode): Promise<AgentResult> {
    const limits = { timeLimitMs: unbounded, tooLate: () => tooLate(this.name, unbounded, this.#kind), signal };
    const request: EnvironmentRequest = { kind: 'run', ...episode };
    return (await this.#thread.call(request, limits)) as AgentResult;
  }

  async start(problem: { seed: number; difficulty: number }, signal: AbortSignal): Promise<Episode> {
    const episode = this.#episodes++;
    const said: { response: string; turn: number }[] = [];
    /** The thread that the episode lives in. */
    let home = -1;
    const begin = async (again: AbortSignal) => {
      await this.#thread.ready();
      const now = this.#thread.starts;
      const started = (await this.ask({ kind: 'start', episode, ...problem }, again)) as Started;
      home = now;
      return started;
    };
    const step = async (response: string, turn: number, asked: AbortSignal): Promise<StepResult> => {
      await this.#thread.ready();
      if (home !== this.#thread.starts) {
        await begin(asked);
        for (const each of said) await this.ask({ kind: 'step', episode, ...each }, asked);
      }
      const result = (await this.ask({ kind: 'step', episode, response, turn }, asked)) as StepResult;
      said.push({ response, turn });
      return result;
    };
    const { messages, key, steps } = await this.#again(() => begin(signal));
    return {
      messages,
      ...(key === undefined ? {} : { key }),
      // The caller refuses a value that is not an episode.
      step: steps
        ? (response, { turn, signal: asked }) => this.#again(() => step(response, turn, asked))
        : (undefined as never),
      // Needed even if the user's episode has no `end`, so that the thread forgets it.
      end: async () => {
        if (home !== this.#thread.starts) return;
        try {
          await this.ask({ kind: 'end', episode });
        } catch (error) {
          if (!(error instanceof ThreadEnded)) throw error; // it ended with its thread
        }
      },
    };
  }

  /** Repeats a call if others ended the thread. No limit is needed, because each time the call to blame fails. */
  async #again<T>(call: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; )
      try {
        return await call();
      } catch (error) {
        if (!(error instanceof ThreadEnded) || (!error.isBlamed && tries++ >= mostTries)) throw error;
      }
  }

  dispose(): void {
    this.#thread.dispose();
  }
}
