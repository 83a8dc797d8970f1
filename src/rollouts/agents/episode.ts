/**
 * An agent's episode in progress. Its calls wait here until the turn is sampled, and answers are stored token by token.
 * An agent that must run again, because another one ended their shared thread, gets the same answers again.
 */
import { createHash } from 'node:crypto';
import {
  type AgentEpisode as AgentRun,
  AgentThreadLost,
  EnvironmentError,
  OpenAgent,
} from '../../environments/index.ts';
import type { Step } from '../../environments/parts/step.ts';
import type { Problem } from '../../environments/recipe.ts';
import { UserError } from '../../errors.ts';
import type { GenerationRequest, SampledResponse } from '../../models/index.ts';
import { Random } from '../../random.ts';
import { ApiError } from '../../serve/api-error.ts';
import { finishReason } from '../../serve/chat.ts';
import type { ChatRequest } from '../../serve/protocol.ts';
import { stopsOf } from '../../serve/requests.ts';
import { type ToolFormat, toolFormat } from '../../serve/tools.ts';
import { isFarLonger, type Tokenizer } from '../../text/index.ts';
import { ThreadEnded } from '../../threads/module-thread.ts';
import { timerMs } from '../../threads/time-limit.ts';
import type { PolicyPrompt } from '../prompts.ts';
import {
  type EpisodeEnd,
  type EpisodeRecord,
  type EpisodeTurn,
  ownIds,
  type Rollout,
  transcriptOf,
} from '../rollout.ts';
import { answered, type CallWriter, type Conversation, type Prompted } from './conversation.ts';
import { type Answer, policyName } from './endpoint.ts';

/** The number of attempts at a run whose thread keeps ending without another run being to blame. */
const mostTries = 4;

/** The settings that all episodes share. */
export interface AgentRules {
  tokenizer: Tokenizer;
  writer: CallWriter;
  /** The most calls in an episode. */
  maxTurns: number;
  /** The most tokens of a conversation after its first messages. */
  maxNewTokens: number;
  /** The most tokens of a conversation's first messages. */
  maxPromptTokens: number;
  /** The longest time that an agent may take before its next call or its end. */
  timeLimitMs: number;
  onError: 'stop' | 'score';
  onFailure?: (error: Error) => void;
  /** Called when an episode waits for an answer or is over. */
  onChange(): void;
}

/** Identifies an episode: the number of its prompt, and its index in the group. */
export interface AgentPlace {
  prompt: PolicyPrompt;
  group: number;
  rolloutIndex: number;
  seed: number;
}

/** A call waiting for its answer. */
export interface WaitingCall {
  request: GenerationRequest;
  /** Passes the policy's answer to the agent. */
  answer(response: SampledResponse): void;
}

/** A call, stored by the hash of its request because the text repeats the whole conversation. */
interface KnownCall {
  asked: string;
  answer: Promise<Answer>;
}

export class AgentEpisode {
  readonly #place: AgentPlace;
  readonly #rules: AgentRules;
  readonly #problem: Problem & { environment: OpenAgent };
  readonly #rule: Omit<GenerationRequest, 'prompt' | 'maxNewTokens'>;
  readonly #conversations: Conversation[] = [];
  readonly #turns: EpisodeTurn[] = [];
  /** All calls so far with their answers or refusals, in case the agent has to run again. */
  readonly #calls: KnownCall[] = [];
  /** The calls that the current run has not repeated yet. */
  #left: KnownCall[] = [];
  /** Number of calls that were not refused. */
  #entered = 0;
  #queued: WaitingCall[] = [];
  /** Number of calls without an answer yet. */
  #open = 0;
  #watch: NodeJS.Timeout | undefined;
  readonly #stop = new AbortController();
  /** Why a call was refused. */
  #refused: 'turns' | 'length' | undefined;
  #wasCut = false;
  #result: Step | undefined;
  #end: EpisodeEnd | undefined;

  constructor(place: AgentPlace, rules: AgentRules, rule: Omit<GenerationRequest, 'prompt' | 'maxNewTokens'>) {
    const { problem } = place.prompt;
    if (!(problem?.environment instanceof OpenAgent))
      throw new UserError('A prompt of no agent cannot be played as an episode of one.');
    this.#place = place;
    this.#rules = rules;
    this.#rule = rule;
    this.#problem = { ...problem, environment: problem.environment };
  }

  get isOver(): boolean {
    return this.#end !== undefined;
  }

  /** Whether it is waiting for an answer. */
  get isWaiting(): boolean {
    return this.#queued.length > 0;
  }

  get calls(): number {
    return this.#turns.length;
  }

  /** Removes and returns the waiting calls, for the caller to answer. */
  take(): WaitingCall[] {
    return this.#queued.splice(0);
  }

  /** Runs the agent to its end. Rejects if the training run has to stop. */
  async run(address: { baseURL: string; apiKey: string }, signal: AbortSignal): Promise<void> {
    const { environment: agent, seed, difficulty, key } = this.#problem;
    const both = AbortSignal.any([signal, this.#stop.signal]);
    const episode: AgentRun = { ...address, model: policyName, seed, difficulty, key, signal: both };
    try {
      this.#result = await this.#played(agent, episode);
      if (this.#turns.length === 0)
        throw new EnvironmentError(
          `The agent ${agent.name} ended without a call to the policy (seed ${seed}, difficulty ${difficulty}): there is nothing to train on.`,
          'step',
        );
      this.#end = this.#refused ?? 'done';
    } catch (error) {
      this.#fail(error, signal);
    } finally {
      clearTimeout(this.#watch);
      this.#queued = [];
      this.#end ??= 'error';
      this.#rules.onChange();
    }
  }

  async #played(agent: OpenAgent, episode: AgentRun): Promise<Step> {
    for (let tries = 1; ; )
      try {
        this.#left = [...this.#calls];
        this.#watchTime();
        return await agent.run(episode);
      } catch (error) {
        const isEnded = error instanceof ThreadEnded;
        // Unlimited retries, because another run ended the thread, and that run fails for it.
        if ((isEnded && error.isBlamed) || (error instanceof AgentThreadLost && this.#open > 0)) continue;
        if (!isEnded) throw error;
        if (tries++ >= mostTries) throw error.cause;
      }
  }

  /** Handles a call of the agent. Rejects with an ApiError if it cannot be answered. */
  call = (request: ChatRequest): Promise<Answer> => {
    if (this.isOver || this.#stop.signal.aborted)
      return Promise.reject(new ApiError(400, 'The episode is over.', { code: 'episode_over' }));
    const asked = createHash('sha256').update(JSON.stringify(request)).digest('base64');
    // Concurrent calls may arrive in another order.
    const known = this.#left.findIndex((each) => each.asked === asked);
    if (known >= 0) return (this.#left.splice(known, 1)[0] as KnownCall).answer;
    if (this.#left.length > 0) {
      const error = new EnvironmentError(
        `The agent ${this.#problem.environment.name} made other calls when it was run again, after another one had ended their thread: calls have to depend on the problem and the answers alone.`,
        'step',
      );
      this.#stop.abort(error);
      return Promise.reject(new ApiError(400, error.message));
    }
    const answer = this.#answerTo(request);
    answer.catch(() => {}); // the caller may have gone
    this.#calls.push({ asked, answer });
    return answer;
  };

  #answerTo(request: ChatRequest): Promise<Answer> {
    try {
      const answer = this.#enter(request);
      this.#entered++;
      this.#rules.onChange();
      return answer;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Queues a call. */
  #enter(request: ChatRequest): Promise<Answer> {
    const { tokenizer, maxTurns, maxNewTokens, maxPromptTokens, writer } = this.#rules;
    if (this.#entered >= maxTurns)
      throw this.#refusal('turns', `An episode has at most ${maxTurns} calls (--max-turns).`, 'max_turns');
    const most = maxPromptTokens + maxNewTokens;
    const tooLong = (what: string) =>
      this.#refusal(
        'length',
        `${what} more tokens than a whole conversation may have: ${most} (--prompt-max-length and --max-new-tokens).`,
        'context_length_exceeded',
      );
    // Refuses a call that is far too long before rendering or tokenising it, which would delay all episodes. Every
    // message has at least one token.
    if (request.messages.length > most) throw tooLong(`${request.messages.length} messages have`);
    if (request.messages.some(({ content = '' }) => isFarLonger(tokenizer, content, most)))
      throw tooLong('A message has');
    const tools = this.#toolsOf(request);
    const given = tools === undefined ? undefined : request.tools;
    const prompted = writer.prompted(request, given, this.#conversations, (text) => {
      if (isFarLonger(tokenizer, text, most)) throw tooLong('What the call brings has');
    });
    const { ids } = prompted;
    if (ids.length === 0)
      throw new ApiError(400, 'The messages have no tokens: there is nothing to answer.', { param: 'messages' });
    const first = prompted.conversation?.promptLength ?? ids.length;
    if (first > maxPromptTokens)
      throw this.#refusal(
        'length',
        `The messages have ${first} tokens, and a conversation begins with at most ${maxPromptTokens} (--prompt-max-length).`,
        'context_length_exceeded',
      );
    const room = maxNewTokens - (ids.length - first);
    if (room < 1)
      throw this.#refusal(
        'length',
        `The conversation has no room left behind its first messages: ${maxNewTokens} tokens (--max-new-tokens).`,
        'context_length_exceeded',
      );
    const wanted = request.max_completion_tokens ?? request.max_tokens ?? room;
    const { seed, rolloutIndex } = this.#place;
    const number = this.#entered + 1;
    const stopStrings = stopsOf(request);
    const generation: GenerationRequest = {
      ...this.#rule,
      prompt: Int32Array.from(ids),
      maxNewTokens: Math.min(wanted, room),
      seed: new Random('turn', seed, rolloutIndex, number).uint32(),
      ...(stopStrings.length > 0 && { stopStrings }),
    };
    const conversation = prompted.conversation ?? this.#began(prompted);
    conversation.said = undefined;
    const answer = Promise.withResolvers<Answer>();
    this.#open++;
    clearTimeout(this.#watch);
    this.#queued.push({
      request: generation,
      answer: (response) => {
        if (this.isOver) return;
        const isCut = response.finish === 'length' && wanted >= room;
        const taken = this.#answered({ conversation, prompted, response, tools, number, isCut });
        this.#open--;
        this.#watchTime();
        answer.resolve(taken);
      },
    });
    return answer.promise;
  }

  #began({ ids, asked, setting }: Prompted): Conversation {
    const conversation: Conversation = {
      ...{ number: this.#conversations.length + 1, begin: asked, said: undefined, setting },
      ...{ ids: [], promptLength: ids.length, spans: [], logprobs: [], cutMass: [] },
    };
    this.#conversations.push(conversation);
    return conversation;
  }

  #answered(call: {
    conversation: Conversation;
    prompted: Prompted;
    response: SampledResponse;
    tools: ToolFormat | undefined;
    number: number;
    isCut: boolean;
  }): Answer {
    const { conversation, prompted, response, tools, number, isCut } = call;
    const { tokenizer } = this.#rules;
    const { ids, finish } = response;
    const whole = writtenText(tokenizer, response, tools !== undefined);
    const { text, calls } = tools?.parse(whole) ?? { text: whole, calls: [] };
    // The ids must be reproducible: random ones would differ in a resumed run.
    const named = calls.map((each, i) => ({ ...each, id: `call${String(number).padStart(4, '0')}${i}` }));
    answered(conversation, prompted, response, { text, calls: named });
    this.#wasCut ||= isCut;
    const turn = { response: whole, tokens: ids.length, told: [], reward: 0 };
    this.#turns.push({ ...turn, asked: prompted.asked, conversation: conversation.number });
    return {
      ...{ number, text, calls: named, promptTokens: prompted.ids.length, responseTokens: ids.length },
      finish: named.length > 0 && finish !== 'length' ? 'tool_calls' : finishReason(finish),
    };
  }

  /** The format of tool calls, if the call allows tools. */
  #toolsOf({ tools, tool_choice: choice }: ChatRequest): ToolFormat | undefined {
    if (choice === 'none' || (tools ?? []).length === 0) return undefined;
    const { tokenizer, writer } = this.#rules;
    const format = writer.isChat ? toolFormat(tokenizer.chatTemplate) : undefined;
    if (format !== undefined) return format;
    throw new ApiError(400, 'The chat template of the policy knows no tools.', { param: 'tools' });
  }

  #refusal(why: 'turns' | 'length', message: string, code: string): ApiError {
    this.#refused ??= why;
    if (why === 'length') this.#wasCut = true;
    return new ApiError(400, message, { code });
  }

  /** Limits the time in which the agent itself is busy, with no call waiting for an answer. */
  #watchTime(): void {
    clearTimeout(this.#watch);
    if (this.#open > 0 || this.isOver) return;
    const { timeLimitMs } = this.#rules;
    const { environment: agent, seed, difficulty } = this.#problem;
    const late = new EnvironmentError(
      `The agent ${agent.name} took longer than ${timeLimitMs / 1000} s without a call to the policy (--tool-timeout; seed ${seed}, difficulty ${difficulty}).`,
      'step',
    );
    this.#watch = setTimeout(() => this.#stop.abort(late), timerMs(timeLimitMs));
  }

  /**
   * A failure ends the episode if --on-reward-error says so, or if a call was refused. An agent that breaks its
   * contract stops the run.
   */
  #fail(error: unknown, signal: AbortSignal): void {
    signal.throwIfAborted();
    const { onError, onFailure } = this.#rules;
    const isStep = error instanceof EnvironmentError && error.fault === 'step';
    if (isStep && this.#refused !== undefined && this.#turns.length > 0 && !this.#stop.signal.aborted) {
      this.#end = this.#refused;
      return;
    }
    if (onError === 'stop' || !isStep) throw error;
    onFailure?.(error);
    this.#end = 'error';
  }

  rollout(): Rollout {
    const { prompt, group, rolloutIndex } = this.#place;
    const { environment: agent, difficulty } = this.#problem;
    const end = this.#end as EpisodeEnd;
    const { reward: score = 0, success, parts = {} } = (end === 'error' ? undefined : this.#result) ?? {};
    const turns = this.#turns.map((turn, i, all) => (i === all.length - 1 ? { ...turn, reward: score } : turn));
    const episode: EpisodeRecord = {
      ...{ environment: agent.name, difficulty, turns, end },
      ...(success !== undefined && { success }),
      ...(agent.judged !== undefined && { judged: agent.judged }),
    };
    const own = this.#conversations.filter(({ spans }) => spans.length > 0);
    // A model must read at least one token.
    const nothing = [Math.max(0, this.#rules.tokenizer.eosIds[0] ?? 0)];
    const ids = own.length === 0 ? nothing : own.flatMap((each) => each.ids);
    let at = 0;
    const starts = own.map((each) => {
      at += each.ids.length;
      return at - each.ids.length;
    });
    const spans = own.flatMap((each, i) => each.spans.map((place) => place + (starts[i] as number)));
    const cutMass = own.flatMap((each) => each.cutMass);
    return {
      ...{ prompt, group, rolloutIndex, episode, score },
      parts: { ...Object.fromEntries(agent.parts.map((name) => [name, 0])), ...parts },
      ids: Int32Array.from(ids),
      promptLength: 0,
      spans: Int32Array.from(spans),
      starts: Int32Array.from(own.length === 0 ? [0] : starts),
      responseIds: ownIds(ids, spans),
      response: transcriptOf(episode),
      ended: !this.#wasCut,
      lpOld: Float32Array.from(own.flatMap((each) => each.logprobs)),
      ...(cutMass.length > 0 && { cutMass: Float32Array.from(cutMass) }),
      reward: 0,
      advantages: new Float64Array(),
      advantage: 0,
    };
  }
}

/**
 * The answer's text, cut before a stop string. If tools are allowed it keeps special tokens, because some families open
 * a tool call with them.
 */
function writtenText(tokenizer: Tokenizer, { ids, text, finish }: SampledResponse, hasTools: boolean): string {
  const { eosIds } = tokenizer;
  const isCutByText = finish === 'stop' && !eosIds.includes(ids.at(-1) ?? -1);
  if (isCutByText && text !== undefined) return text;
  return tokenizer.decode(hasTools ? ids.filter((id) => !eosIds.includes(id)) : ids, { skipSpecialTokens: !hasTools });
}
