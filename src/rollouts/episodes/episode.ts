/**
 * An episode in progress: one token sequence that only grows. The policy's text keeps its sampled ids, and the
 * environment's observations are appended. `spans` records which tokens are the policy's own, and the losses cover only
 * those.
 */
import { EnvironmentError, type OpenEpisode } from '../../environments/index.ts';
import { type Problem, playProblem } from '../../environments/recipe.ts';
import { UserError } from '../../errors.ts';
import type { GenerationRequest, SampledResponse } from '../../models/index.ts';
import { Random } from '../../random.ts';
import { isReward } from '../../rewards/scorer.ts';
import { isFarLonger, type Message, type NextTurn, type Tokenizer } from '../../text/index.ts';
import type { PolicyPrompt } from '../prompts.ts';
import {
  type EpisodeEnd,
  type EpisodeRecord,
  type EpisodeTurn,
  ownIds,
  type Rollout,
  transcriptOf,
} from '../rollout.ts';

/** The longest observation stored after the last turn: whole files in every episode would fill memory and disk. */
const mostUnread = 10_000;

/** The settings that all episodes share. */
export interface EpisodeRules {
  tokenizer: Pick<Tokenizer, 'decode' | 'encode'>;
  nextTurn: NextTurn;
  maxTurns: number;
  /** The most tokens after the prompt, counting answers and observations. */
  maxNewTokens: number;
  /** When an environment fails: stop the run, or end the episode with the reward earned so far. */
  onError: 'stop' | 'score';
  onFailure?: (error: Error) => void;
}

/** Identifies an episode: the number of its prompt, and its index in the group. */
export interface EpisodePlace {
  prompt: PolicyPrompt;
  group: number;
  rolloutIndex: number;
  seed: number;
}

export class PlayedEpisode {
  readonly #place: EpisodePlace;
  readonly #rules: EpisodeRules;
  readonly #problem: Problem;
  readonly #opened: Promise<OpenEpisode>;
  readonly #ids: number[];
  readonly #spans: number[] = [];
  readonly #logprobs: number[] = [];
  readonly #cutMass: number[] = [];
  readonly #turns: EpisodeTurn[] = [];
  readonly #parts: Record<string, number>;
  #success: boolean | undefined;
  #wasCut = false;
  #end: EpisodeEnd | undefined;

  constructor(place: EpisodePlace, rules: EpisodeRules, signal: AbortSignal) {
    const { problem, ids } = place.prompt;
    if (problem === undefined) throw new UserError('A prompt of no environment cannot be played as an episode.');
    this.#place = place;
    this.#rules = rules;
    this.#problem = problem;
    this.#ids = Array.from(ids);
    this.#parts = Object.fromEntries(problem.environment.parts.map((name) => [name, 0]));
    this.#opened = playProblem(problem, signal);
    this.#opened.catch(() => {}); // reported at first use
  }

  /** The number of its prompt. */
  get group(): number {
    return this.#place.group;
  }

  get isOver(): boolean {
    return this.#end !== undefined;
  }

  /** The request for its next turn. */
  request(rule: Omit<GenerationRequest, 'prompt' | 'maxNewTokens'>): GenerationRequest {
    const { seed, rolloutIndex } = this.#place;
    const turn = new Random('turn', seed, rolloutIndex, this.#turns.length).uint32();
    return { ...rule, prompt: Int32Array.from(this.#ids), maxNewTokens: this.#room, seed: turn };
  }

  get #room(): number {
    return this.#rules.maxNewTokens - (this.#ids.length - this.#place.prompt.ids.length);
  }

  /** Records an answer of the policy and passes it to the environment. */
  async take({ ids, logprobs, cutMass, finish }: SampledResponse, signal: AbortSignal): Promise<void> {
    const start = this.#ids.length;
    for (const id of ids) this.#ids.push(id);
    for (const each of logprobs) this.#logprobs.push(each);
    for (const each of cutMass ?? []) this.#cutMass.push(each);
    this.#spans.push(start, this.#ids.length);
    this.#wasCut = finish !== 'stop';
    const response = this.#rules.tokenizer.decode(ids, { skipSpecialTokens: true });
    const turn: EpisodeTurn = { response, tokens: ids.length, told: [], reward: 0 };
    this.#turns.push(turn);
    try {
      const episode = await this.#opened;
      const step = await episode.step(response, { turn: this.#turns.length, signal });
      turn.told = step.observation;
      turn.reward = step.reward;
      this.#success = step.success ?? this.#success;
      for (const [name, value] of Object.entries(step.parts)) this.#parts[name] = (this.#parts[name] ?? 0) + value;
      this.#end = step.done ? 'done' : this.#wasCut ? 'length' : this.#goesOn(step.observation, ids.at(-1) as number);
      if (this.isOver) turn.told = step.observation.map(shortened);
    } catch (error) {
      this.#fail(error, signal);
    }
  }

  /** Appends the observation. Returns the reason if the episode ends here. */
  #goesOn(told: readonly Message[], last: number): EpisodeEnd | undefined {
    if (this.#turns.length >= this.#rules.maxTurns) return 'turns';
    const { nextTurn, tokenizer } = this.#rules;
    if (told.some(({ content }) => isFarLonger(tokenizer, content, this.#room))) return 'length';
    const ids = nextTurn.ids(this.#place.prompt.messages, told, last);
    if (ids.length >= this.#room) return 'length';
    for (const id of ids) this.#ids.push(id);
    return undefined;
  }

  /**
   * A failed step ends the episode if --on-reward-error says so. An environment that breaks its contract always stops
   * the run.
   */
  #fail(error: unknown, signal: AbortSignal): void {
    signal.throwIfAborted();
    const { onError, onFailure } = this.#rules;
    if (onError === 'stop' || !(error instanceof EnvironmentError) || error.fault !== 'step') throw error;
    onFailure?.(error);
    this.#end = 'error';
  }

  /** Frees what the environment holds. `quiet`: the run has already failed. */
  async close({ quiet }: { quiet: boolean }): Promise<void> {
    const episode = await this.#opened.catch(() => undefined);
    try {
      await episode?.end();
    } catch (error) {
      const { onError, onFailure } = this.#rules;
      if (quiet) return;
      if (onError === 'stop') throw error;
      onFailure?.(error as Error);
    }
  }

  rollout(): Rollout {
    const { prompt, group, rolloutIndex } = this.#place;
    const { environment, difficulty } = this.#problem;
    const end = this.#end as EpisodeEnd;
    const score = this.#turns.reduce((sum, { reward }) => sum + reward, 0);
    if (!isReward(score))
      throw new EnvironmentError(
        `The rewards of an episode of ${environment.name} add up to ${score}: not a number to compute with.`,
        'contract',
      );
    const episode: EpisodeRecord = {
      ...{ environment: environment.name, difficulty, turns: this.#turns, end },
      ...(this.#success !== undefined && { success: this.#success }),
      ...(environment.judged !== undefined && { judged: environment.judged }),
    };
    return {
      ...{ prompt, group, rolloutIndex, episode, score, parts: this.#parts },
      ids: Int32Array.from(this.#ids),
      promptLength: prompt.ids.length,
      spans: Int32Array.from(this.#spans),
      responseIds: ownIds(this.#ids, this.#spans),
      response: transcriptOf(episode),
      ended: !this.#wasCut && end !== 'length',
      lpOld: Float32Array.from(this.#logprobs),
      ...(this.#cutMass.length > 0 && { cutMass: Float32Array.from(this.#cutMass) }),
      reward: 0,
      advantages: new Float64Array(),
      advantage: 0,
    };
  }
}

const shortened = ({ role, content }: Message): Message => {
  const more = content.length - mostUnread;
  return { role, content: more > 0 ? `${content.slice(0, mostUnread)}… (${more} more characters)` : content };
};
