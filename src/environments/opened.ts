/** An environment that is ready to play. Its episodes are checked, limited in time, and ended exactly once. */
import { Random } from '../random.ts';
import type { Message } from '../text/index.ts';
import { messageOf } from '../threads/messages.ts';
import { ThreadEnded } from '../threads/module-thread.ts';
import { withinTime } from '../threads/time-limit.ts';
import { type Environment, EnvironmentError, type Episode } from './parts/environment.ts';
import { checkedStep, isMessage, messagesOf, type Step, shown } from './parts/step.ts';

export interface OpenOptions {
  /** Time limit of one step. */
  timeLimitMs: number;
  /** It runs in a thread that enforces the time limit itself. */
  isBounded?: boolean;
  /** The word used in messages; default environment. */
  what?: 'environment' | 'agent';
  dispose?: () => void;
}

/** The problem at the start of an episode. */
export interface Beginning {
  seed: number;
  difficulty: number;
  signal?: AbortSignal | undefined;
}

/** The random numbers of a problem. */
export const problemRandom = (name: string, seed: number, difficulty: number): Random =>
  new Random('environment', name, seed, difficulty);

/** The error of a step that exceeded the time limit. */
export const tooLate = (name: string, timeLimitMs: number, what = 'environment'): EnvironmentError =>
  new EnvironmentError(
    `The ${what} ${name} took longer than ${timeLimitMs / 1000} s for a step (--tool-timeout).`,
    'step',
  );

/** A started episode, with checked messages and steps. */
export interface OpenEpisode {
  readonly messages: readonly Message[];
  readonly key: string;
  step(response: string, options: { turn: number; signal?: AbortSignal | undefined }): Promise<Step>;
  /** Frees the episode. Later calls do nothing. */
  end(): Promise<void>;
}

/** An environment that is ready to play. */
export class OpenEnvironment implements Disposable {
  readonly name: string;
  readonly summary: string;
  readonly levels: number;
  readonly parts: readonly string[];
  readonly judged: boolean | undefined;
  readonly #environment: Environment;
  readonly #options: OpenOptions;
  readonly #what: string;

  constructor(environment: Environment, options: OpenOptions) {
    this.#environment = environment;
    this.#options = options;
    this.#what = options.what ?? 'environment';
    this.name = environment.name;
    this.summary = environment.summary ?? '';
    this.levels = environment.levels ?? 1;
    this.parts = environment.parts ?? [];
    this.judged = environment.judged;
  }

  async start({ seed, difficulty, signal }: Beginning): Promise<OpenEpisode> {
    const { name } = this;
    const of = `seed ${seed}, difficulty ${difficulty}`;
    const begin = (both: AbortSignal) =>
      this.#environment.start({ seed, difficulty, random: problemRandom(name, seed, difficulty), signal: both });
    const episode = await this.#bounded(`failed to start (${of})`, begin, signal);
    const messages = this.#messages(episode);
    const { key = JSON.stringify(messages) } = episode;
    if (typeof key !== 'string') throw this.#wrong(`started with the key ${shown(key)}: expected text.`);
    if (typeof episode.step !== 'function') throw this.#wrong('started an episode without a step(response) to take.');
    let isOver = false;
    return {
      messages,
      key,
      step: async (response, { turn, signal: asked }) => {
        const take = (both: AbortSignal) => episode.step(response, { turn, signal: both });
        const result = await this.#bounded(`failed at turn ${turn} (${of})`, take, asked);
        return checkedStep(result, this);
      },
      end: async () => {
        if (isOver || episode.end === undefined) return;
        isOver = true;
        await this.#bounded(`failed to end an episode (${of})`, () => episode.end?.());
      },
    };
  }

  get demonstrates(): boolean {
    return this.#environment.demonstrate !== undefined;
  }

  /** The turns of its scripted player. */
  async demonstrate(seed: number, difficulty: number, skill: number): Promise<readonly string[]> {
    const random = problemRandom(this.name, seed, difficulty);
    const play = () => this.#environment.demonstrate?.({ seed, difficulty, random, skill }) ?? [];
    const turns = await this.#bounded(`failed to demonstrate (seed ${seed}, difficulty ${difficulty})`, play);
    if (Array.isArray(turns) && turns.every((turn) => typeof turn === 'string')) return turns;
    throw this.#wrong(`demonstrated ${shown(turns)}: expected a list with the text of each turn.`);
  }

  dispose(): void {
    this.#options.dispose?.();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }

  #messages(episode: Episode): readonly Message[] {
    if (typeof episode !== 'object' || episode === null)
      throw this.#wrong(`started with ${shown(episode)}: expected an episode, { messages, step }.`);
    const { messages: given } = episode;
    const messages = given === undefined || given === null ? [] : messagesOf(given);
    const isRight = messages.length > 0 && messages.every(isMessage);
    if (isRight) return messages.map(({ role, content }) => ({ role, content }));
    throw this.#wrong(
      `started with the messages ${shown(given)}: expected text, or messages with a role and a text content.`,
    );
  }

  /** Runs the environment's own code within the time limit. Errors name the environment. */
  async #bounded<T>(failed: string, body: (signal: AbortSignal) => T | Promise<T>, signal?: AbortSignal): Promise<T> {
    const { timeLimitMs, isBounded = false } = this.#options;
    try {
      if (isBounded) return await body(signal ?? new AbortController().signal);
      return await withinTime(body, {
        timeLimitMs,
        tooLate: () => tooLate(this.name, timeLimitMs, this.#what),
        signal,
      });
    } catch (error) {
      signal?.throwIfAborted();
      const cause = error instanceof ThreadEnded ? error.cause : error;
      if (cause instanceof EnvironmentError) throw cause;
      throw new EnvironmentError(`The ${this.#what} ${this.name} ${failed}: ${messageOf(cause)}`, 'step', { cause });
    }
  }

  #wrong(what: string): EnvironmentError {
    return new EnvironmentError(`The ${this.#what} ${this.name} ${what}`, 'contract');
  }
}
