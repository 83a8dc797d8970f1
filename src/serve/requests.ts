/**
 * Turns a client's request into a sampler request: prompt tokens, sampling options, limits. Limits are checked before
 * the work.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { AttuneError } from '../errors.ts';
import type { GenerationRequest, Submission } from '../models/index.ts';
import {
  Constraint,
  type EncodeOptions,
  type GrammarNode,
  type Message,
  objectGrammar,
  schemaGrammar,
  vocabularyOf,
} from '../text/index.ts';
import { ApiError } from './api-error.ts';
import type { ChatRequest, CompletionRequest } from './protocol.ts';
import type { ServedModel } from './registry.ts';
import { type ToolFormat, toolFormat } from './tools.ts';

/** OpenAI's default. */
const defaultTemperature = 1;
/** Most calls in one response if several are allowed. */
const mostCalls = 8;

type Sampled = Pick<
  ChatRequest,
  'temperature' | 'top_p' | 'top_k' | 'min_p' | 'repetition_penalty' | 'seed' | 'n' | 'user' | 'max_tokens' | 'stop'
>;

type Asked = Sampled & { messages?: unknown; max_completion_tokens?: number | null };

/**
 * How many tokens the response may have. Refuses a prompt of (at least) this many tokens if it does not fit the
 * context.
 */
function checkedRoom(served: ServedModel, asked: Asked, tokens: number, atLeast = ''): number {
  const room = served.maxTokens - tokens;
  const wanted = asked.max_completion_tokens ?? asked.max_tokens;
  if (room < 1 || (wanted ?? 1) > room)
    throw new ApiError(
      400,
      `This model takes ${served.maxTokens} tokens, prompt and response together; the prompt has ${atLeast}${tokens}${wanted == null ? '' : ` and ${wanted} were asked for`}. Shorten one of them.`,
      { param: asked.messages === undefined ? 'prompt' : 'messages', code: 'context_length_exceeded' },
    );
  return wanted ?? room;
}

/** The sampler's request; refused if it does not fit the context. */
export function samplerRequest(
  served: ServedModel,
  prompt: readonly number[],
  asked: Asked,
  more: Partial<GenerationRequest> = {},
): GenerationRequest {
  return {
    prompt,
    maxNewTokens: checkedRoom(served, asked, prompt.length),
    temperature: asked.temperature ?? defaultTemperature,
    topP: asked.top_p ?? 1,
    topK: asked.top_k ?? 0,
    minP: asked.min_p ?? 0,
    repetitionPenalty: asked.repetition_penalty ?? 1,
    samples: asked.n ?? 1,
    seed: asked.seed ?? Math.floor(Math.random() * 2 ** 31),
    stopIds: served.tokenizer.eosIds,
    stopStrings: stopsOf(asked),
    adapter: served.adapter,
    ...(asked.user === undefined ? {} : { client: asked.user }),
    ...more,
  };
}

export const stopsOf = ({ stop }: Pick<Sampled, 'stop'>): string[] => [stop ?? []].flat().filter((text) => text !== '');

/** Submits a request; it is cancelled when the client disconnects. */
export function submit(served: ServedModel, request: GenerationRequest, gone: AbortSignal): Submission {
  return served.sampler.submit({ ...request, signal: gone });
}

/**
 * Longer texts, in characters, are tokenised on other threads: on this one, each would stop every stream for 50 ms and
 * more.
 */
const LONG_TEXT = 2 ** 15;

/** Refuses a text whose bytes show that it cannot fit the context, before it is tokenised. */
async function encoded(
  served: ServedModel,
  asked: Asked,
  text: string,
  options: EncodeOptions = {},
): Promise<readonly number[]> {
  const { tokenizer } = served;
  checkedRoom(served, asked, tokenizer.leastTokens(text), 'at least ');
  if (text.length < LONG_TEXT) return tokenizer.encode(text, options);
  const [ids = []] = await tokenizer.encodeBatch([text], options);
  return Array.from(ids);
}

/** A conversation as prompt tokens, and the format of tool calls if there are tools. */
export async function chatPrompt(
  served: ServedModel,
  request: ChatRequest,
): Promise<{ prompt: readonly number[]; tools: ToolFormat | undefined; grammar: GrammarNode | undefined }> {
  const { tokenizer, sampler } = served;
  sampler.checkQueue(request.n ?? 1);
  const given = request.tool_choice === 'none' ? [] : (request.tools ?? []);
  const format = given.length === 0 ? undefined : toolFormat(tokenizer.chatTemplate);
  if (given.length > 0 && format === undefined)
    throw new ApiError(400, `The chat template of "${served.name}" knows no tools.`, { param: 'tools' });
  if (tokenizer.chatTemplate === undefined)
    throw new ApiError(400, `"${served.name}" has no chat template: use /v1/completions.`, { param: 'model' });
  // every message has at least one token
  if (request.messages.length > served.maxTokens)
    throw new ApiError(
      400,
      `This model takes ${served.maxTokens} tokens, prompt and response together; there are ${request.messages.length} messages.`,
      { param: 'messages', code: 'context_length_exceeded' },
    );
  const text = tokenizer.renderChat(request.messages.map(templateMessage), {
    addGenerationPrompt: true,
    ...(given.length > 0 ? { tools: given } : {}),
    ...(request.chat_template_kwargs === undefined ? {} : { variables: request.chat_template_kwargs }),
  });
  const grammar = grammarOf(request, given, format);
  return { prompt: await encoded(served, request, text), tools: format, grammar };
}

/** The grammar of the response if the client wants JSON or a tool call. */
function grammarOf(
  request: ChatRequest,
  given: NonNullable<ChatRequest['tools']>,
  format: ToolFormat | undefined,
): GrammarNode | undefined {
  const { tool_choice: wanted, response_format: shape } = request;
  if (format !== undefined && wanted !== null && wanted !== undefined && wanted !== 'auto' && wanted !== 'none') {
    const named = wanted === 'required' ? given : given.filter((tool) => tool.function.name === wanted.function.name);
    if (named.length === 0)
      throw new ApiError(400, 'tool_choice names a function that is not among the tools.', { param: 'tool_choice' });
    const most = wanted === 'required' && request.parallel_tool_calls !== false ? mostCalls : 1;
    return format.grammar(
      named.map((tool) => ({ name: tool.function.name, parameters: tool.function.parameters })),
      most,
    );
  }
  if (shape?.type === 'json_object') return objectGrammar;
  if (shape?.type === 'json_schema') return schemaGrammar(shape.json_schema.schema ?? true);
  return undefined;
}

/** The hook of constrained decoding; each sample of a request has its own state in the grammar. */
export function allowOf(served: ServedModel, grammar: GrammarNode | undefined): Pick<GenerationRequest, 'allow'> {
  if (grammar === undefined) return {};
  const constraint = new Constraint(vocabularyOf(served.tokenizer), grammar);
  try {
    constraint.after([]);
  } catch (error) {
    // such as a reference that leads back to itself
    const reason = error instanceof AttuneError ? ` (${error.message})` : '';
    throw new ApiError(400, `No response can fit the schema${reason}.`, { param: 'response_format' });
  }
  return { allow: (ids) => constraint.after(ids) };
}

/** Messages as chat templates expect them: arguments of calls as objects, and "system" for the role "developer". */
export function templateMessage(message: ChatRequest['messages'][number]): Message {
  const { role, content, tool_calls: calls, ...rest } = message;
  return {
    ...rest,
    role: role === 'developer' ? 'system' : role,
    content: content ?? '',
    ...(calls === undefined
      ? {}
      : {
          tool_calls: calls.map((call) => ({
            ...call,
            function: { ...call.function, arguments: objectOf(call.function.arguments) },
          })),
        }),
  };
}

function objectOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** How long prompts are tokenised on this thread before other work gets a turn. */
const turnMs = 10;

/** The prompts of /v1/completions: texts or ids, one or several. */
export async function completionPrompts(served: ServedModel, asked: CompletionRequest): Promise<(readonly number[])[]> {
  const { prompt } = asked;
  const list = (typeof prompt === 'string' || typeof prompt[0] === 'number' ? [prompt] : prompt) as (
    | string
    | number[]
  )[];
  served.sampler.checkQueue(list.length * (asked.n ?? 1));
  const prompts: (readonly number[])[] = [];
  const vocabulary = served.model.decoder.spec.vocabSize;
  let turned = performance.now();
  for (const each of list) {
    const ids = typeof each === 'string' ? await encoded(served, asked, each, { addSpecialTokens: true }) : each;
    const foreign = ids.find((id) => id >= vocabulary);
    if (foreign !== undefined)
      throw new ApiError(400, `Token ${foreign} is not among the model's ${vocabulary}.`, { param: 'prompt' });
    if (ids.length === 0) throw new ApiError(400, 'A prompt has no tokens.', { param: 'prompt' });
    prompts.push(ids);
    if (performance.now() - turned < turnMs) continue;
    await turn();
    turned = performance.now();
  }
  return prompts;
}
