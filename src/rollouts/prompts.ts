/**
 * Prompts, their sources, and how messages are written as prompts. The sources are in task-prompts.ts and
 * dataset-prompts.ts. The seed alone decides the prompt at any place of the stream, so that a resumed run continues
 * with the next one.
 */
import { createHash } from 'node:crypto';
import type { Problem } from '../environments/index.ts';
import type { Example } from '../tasks/index.ts';
import { ChatFormat, type FormatOptions, isFarLonger, type Message, type Tokenizer } from '../text/index.ts';

export interface PolicyPrompt {
  /** Its place in the stream (tasks) or in the set (datasets). */
  index: number;
  messages: readonly Message[];
  /** As the model reads it. */
  text: string;
  ids: Int32Array;
  /** The problem behind it, for the verifier. */
  example?: Example;
  /** The problem of an environment that it begins. */
  problem?: Problem;
  /** The known final answer of a dataset's prompt. */
  answer?: string;
  /** The other columns of a dataset's row, for reward functions. */
  fields?: Readonly<Record<string, unknown>>;
}

/** The task or the environment that a prompt is of. */
export const taskOf = ({ example, problem }: PolicyPrompt): string | undefined =>
  example?.task ?? problem?.environment.name;

export interface PromptSource {
  /** The next prompts of the stream. */
  take(count: number): PolicyPrompt[] | Promise<PolicyPrompt[]>;
  /** Stands for the prompts that it draws from, and for how they are written. */
  readonly fingerprint: string;
  /** Passes over the prompts so far; always 0 for an endless source. */
  readonly epoch: number;
  /** Prompts of one pass; undefined for an endless source. */
  readonly size: number | undefined;
  /** Tells a curriculum how often each of its prompts was solved, from 0 to 1. */
  learn?(prompts: readonly PolicyPrompt[], success: readonly number[]): void;
  /** Metrics of the source, such as a curriculum's levels. */
  metrics?(): Record<string, number>;
  state(): unknown;
  restore(state: unknown): void;
}

export interface PromptOptions extends FormatOptions {
  /** Longer prompts are left out and counted. */
  maxLength?: number;
  system?: string;
}

/** Writes messages as prompts. */
export class PromptWriter {
  readonly #tokenizer: Tokenizer;
  readonly #format: ChatFormat;
  readonly #options: PromptOptions;

  constructor(tokenizer: Tokenizer, options: PromptOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#format = new ChatFormat(tokenizer, options);
    this.#options = options;
  }

  /** The most tokens of a prompt. */
  get maxLength(): number {
    return this.#options.maxLength ?? Number.POSITIVE_INFINITY;
  }

  /** Undefined if the prompt is too long. */
  write(index: number, prompt: string | readonly Message[]): PolicyPrompt | undefined {
    const { system } = this.#options;
    const asked: readonly Message[] = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
    const messages: readonly Message[] =
      system !== undefined && asked[0]?.role !== 'system' ? [{ role: 'system', content: system }, ...asked] : asked;
    const text = this.#format.prompt(messages);
    if (isFarLonger(this.#tokenizer, text, this.maxLength)) return undefined;
    const ids = Int32Array.from([...this.#format.bos, ...this.#tokenizer.encode(text)]);
    return ids.length > this.maxLength ? undefined : { index, messages, text, ids };
  }
}

/** Writes the problem of an environment, or of an agent. */
export type ProblemWriter = Pick<PromptWriter, 'write' | 'maxLength'>;

/** The problem of an agent as a prompt: nothing is read before the agent's first call. */
export function agentPrompt(index: number, problem: string | readonly Message[]): PolicyPrompt {
  const messages: readonly Message[] = typeof problem === 'string' ? [{ role: 'user', content: problem }] : problem;
  return { index, messages, text: messages.map(({ content }) => content).join('\n\n'), ids: new Int32Array() };
}

/** Stands for a set of prompts in their order, with their answers. */
export function promptsFingerprint(prompts: readonly PolicyPrompt[]): string {
  const hash = createHash('sha256');
  for (const { text, answer, problem } of prompts)
    hash.update(JSON.stringify(problem === undefined ? [text, answer] : [text, problem.environment.name, problem.key]));
  return hash.digest('hex');
}

/** Tells a curriculum which share of the responses to each of its prompts was right. */
export function reportSuccess(
  source: PromptSource,
  prompts: readonly PolicyPrompt[],
  rollouts: readonly { prompt: PolicyPrompt; correct?: boolean }[],
): void {
  if (source.learn === undefined) return;
  const success = prompts.map((prompt) => {
    const own = rollouts.filter((rollout) => rollout.prompt === prompt);
    return own.filter(({ correct }) => correct).length / Math.max(1, own.length);
  });
  source.learn(prompts, success);
}
