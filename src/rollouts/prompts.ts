/**
 * Prompts, the interface of their sources, and the rendering of messages. The sources are in task-prompts.ts,
 * dataset-prompts.ts and environment-prompts.ts. The prompt at each place of the stream depends on the seed alone, so a
 * resumed run continues with the next one.
 */
import { createHash } from 'node:crypto';
import type { Problem } from '../environments/index.ts';
import type { Example } from '../tasks/index.ts';
import { ChatFormat, type FormatOptions, isFarLonger, type Message, type Tokenizer } from '../text/index.ts';

export interface PolicyPrompt {
  /** Its place in the stream (tasks) or in the set (datasets). */
  index: number;
  messages: readonly Message[];
  /** The text that the model reads. */
  text: string;
  ids: Int32Array;
  /** The task's problem, for the verifier. */
  example?: Example;
  /** The environment's problem, if it starts an episode. */
  problem?: Problem;
  /** The known final answer of a dataset's prompt. */
  answer?: string;
  /** The other columns of a dataset's row, for reward functions. */
  fields?: Readonly<Record<string, unknown>>;
}

/** The task or environment of a prompt. */
export const taskOf = ({ example, problem }: PolicyPrompt): string | undefined =>
  example?.task ?? problem?.environment.name;

export interface PromptSource {
  /** The next prompts of the stream. */
  take(count: number): PolicyPrompt[] | Promise<PolicyPrompt[]>;
  /** A hash of the prompts that it draws from, and of their rendering. */
  readonly fingerprint: string;
  /** Passes over the prompts so far; always 0 for an endless source. */
  readonly epoch: number;
  /** Number of prompts in one pass; undefined for an endless source. */
  readonly size: number | undefined;
  /** Tells a curriculum what share of responses solved each prompt, from 0 to 1. */
  learn?(prompts: readonly PolicyPrompt[], success: readonly number[]): void;
  /** Metrics of the source, such as a curriculum's levels. */
  metrics?(): Record<string, number>;
  state(): unknown;
  restore(state: unknown): void;
}

export interface PromptOptions extends FormatOptions {
  /** Longer prompts are dropped and counted. */
  maxLength?: number;
  system?: string;
}

/** Renders messages as prompts. */
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

  /** undefined if the prompt is too long. */
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

/** Renders the problem of an environment or an agent. */
export type ProblemWriter = Pick<PromptWriter, 'write' | 'maxLength'>;

/** An agent's problem as a prompt without text: the policy reads nothing before the agent's first call. */
export function agentPrompt(index: number, problem: string | readonly Message[]): PolicyPrompt {
  const messages: readonly Message[] = typeof problem === 'string' ? [{ role: 'user', content: problem }] : problem;
  return { index, messages, text: messages.map(({ content }) => content).join('\n\n'), ids: new Int32Array() };
}

/** A hash of prompts in their order, with their answers. */
export function promptsFingerprint(prompts: readonly PolicyPrompt[]): string {
  const hash = createHash('sha256');
  for (const { text, answer, problem } of prompts)
    hash.update(JSON.stringify(problem === undefined ? [text, answer] : [text, problem.environment.name, problem.key]));
  return hash.digest('hex');
}

/** Tells a curriculum the share of right responses to each of its prompts. */
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
