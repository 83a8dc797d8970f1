/**
 * The conversations of an agent's episode as token sequences. A call that repeats an earlier conversation word for word
 * and adds messages continues it after the sampled ids. Any other call starts a new sequence. The policy's own text is
 * never tokenised again for training.
 */
import { UserError } from '../../errors.ts';
import type { SampledResponse } from '../../models/index.ts';
import type { ChatRequest } from '../../serve/protocol.ts';
import { templateMessage } from '../../serve/requests.ts';
import type { ToolCall } from '../../serve/tools.ts';
import { ChatFormat, type FormatOptions, type Message, NextTurn, type Tokenizer } from '../../text/index.ts';

/** One token sequence: a prompt, then the policy's answers with the messages between them. */
export interface Conversation {
  /** Counted from 1, in the order of first calls. */
  number: number;
  /** The messages of its first call. */
  begin: readonly Message[];
  /** The messages that a call must begin with to continue it. undefined while an answer is pending. */
  said: string[] | undefined;
  /** The tools and template variables with which its prompt was rendered. */
  setting: string;
  ids: number[];
  /** Number of tokens in its first call. */
  promptLength: number;
  spans: number[];
  logprobs: number[];
  cutMass: number[];
}

/** A call matched against the conversations: the ids to answer, and the new messages. */
export interface Prompted {
  /** The conversation that the call continues. undefined for a new one. */
  conversation: Conversation | undefined;
  /** All ids that the policy reads. */
  ids: number[];
  asked: Message[];
  /** All messages of the call, in canonical form for comparison. */
  written: string[];
  setting: string;
}

/** Converts calls to tokens. */
export class CallWriter {
  readonly #tokenizer: Tokenizer;
  readonly #format: ChatFormat;
  readonly #nextTurn: NextTurn;
  readonly #options: FormatOptions;

  constructor(tokenizer: Tokenizer, options: FormatOptions) {
    this.#tokenizer = tokenizer;
    this.#format = new ChatFormat(tokenizer, options);
    this.#nextTurn = new NextTurn(tokenizer, this.#format);
    this.#options = { format: options.format, templateVariables: options.templateVariables };
  }

  /** Whether prompts are rendered with a chat template, which may support tools. */
  get isChat(): boolean {
    return this.#format.chat;
  }

  /**
   * `check` gets the text of a new conversation before it is tokenised, because its tools and its thinking may be long
   * too.
   */
  prompted(
    request: ChatRequest,
    tools: ChatRequest['tools'],
    conversations: readonly Conversation[],
    check: (text: string) => void,
  ): Prompted {
    const messages = request.messages.map(templateMessage);
    const setting = JSON.stringify([tools ?? [], request.chat_template_kwargs ?? {}]);
    const written = request.messages.map(canonical);
    const open = conversations
      .filter((each) => each.setting === setting && isPrefix(each.said, written))
      .sort((a, b) => (b.said?.length ?? 0) - (a.said?.length ?? 0));
    for (const conversation of open) {
      const told = messages.slice(conversation.said?.length);
      if (told.some(({ role }) => role === 'assistant')) continue;
      const between = this.#between(conversation, told, request.chat_template_kwargs);
      if (between !== undefined)
        return { conversation, ids: [...conversation.ids, ...between], asked: told, written, setting };
    }
    const text = this.#begin(request, tools, messages);
    check(text);
    const ids = [...this.#format.bos, ...this.#tokenizer.encode(text)];
    return { conversation: undefined, ids, asked: messages, written, setting };
  }

  /** The ids between two answers. undefined if the chat template cannot continue after an answer. */
  #between(
    { begin, ids }: Conversation,
    told: readonly Message[],
    more: ChatRequest['chat_template_kwargs'],
  ): number[] | undefined {
    try {
      return this.#nextTurnOf(more).ids(begin, told, ids.at(-1) as number);
    } catch (error) {
      if (error instanceof UserError) return undefined;
      throw error;
    }
  }

  /** The call's template variables hold for its whole conversation: one that hides thinking hides it in every turn. */
  #nextTurnOf(more: ChatRequest['chat_template_kwargs']): NextTurn {
    if (more === undefined) return this.#nextTurn;
    const options = { ...this.#options, templateVariables: { ...this.#options.templateVariables, ...more } };
    return new NextTurn(this.#tokenizer, new ChatFormat(this.#tokenizer, options));
  }

  #begin({ chat_template_kwargs: more }: ChatRequest, tools: ChatRequest['tools'], messages: Message[]): string {
    const isPlain = (tools ?? []).length === 0 && more === undefined;
    const variables = { ...this.#options.templateVariables, ...more };
    return isPlain || !this.isChat
      ? this.#format.prompt(messages)
      : this.#tokenizer.renderChat(messages, { addGenerationPrompt: true, tools: tools ?? undefined, variables });
  }
}

/** Appends an answer, and records the messages that the client now has. */
export function answered(
  conversation: Conversation,
  { written, ids }: Prompted,
  response: SampledResponse,
  reply: { text: string; calls: readonly ToolCall[] },
): void {
  conversation.ids = [...ids, ...response.ids];
  conversation.spans.push(ids.length, conversation.ids.length);
  for (const logprob of response.logprobs) conversation.logprobs.push(logprob);
  for (const mass of response.cutMass ?? []) conversation.cutMass.push(mass);
  conversation.said = [...written, canonical({ role: 'assistant', content: reply.text, tool_calls: [...reply.calls] })];
}

const isPrefix = (said: readonly string[] | undefined, written: readonly string[]) =>
  said !== undefined && said.length < written.length && said.every((each, i) => each === written[i]);

type AskedMessage = ChatRequest['messages'][number];

/** A message as text that is equal for equal messages. Clients may omit empty fields or reorder fields. */
function canonical({ role, content, tool_calls: calls = [], name, tool_call_id: id, ...rest }: AskedMessage): string {
  const called = calls.map(({ id: own, function: { name: asked, arguments: given } }) => [own, asked, jsonOf(given)]);
  return JSON.stringify([role, content ?? '', called, name ?? '', id ?? '', rest.reasoning_content ?? '']);
}

/** The parsed arguments of a call, because clients may change the white space. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
