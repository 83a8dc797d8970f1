/** Requests of OpenAI's API, and how unsupported fields are treated. */
import { z } from 'zod';
import { suggestion } from '../errors.ts';
import { expectation } from '../expectation.ts';
import { lookup } from '../lookup.ts';
import { ApiError } from './api-error.ts';

/**
 * Clients send messages back as they received them: with null fields, and with fields that they added themselves.
 * OpenAI's client adds `parsed` and `parsed_arguments` to what it has read, and `runTools` returns them. `annotations`
 * belong to OpenAI's own searches; cache hints do not change the response.
 */
const asGiven = (own: readonly string[]) => (value: unknown) =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).filter(([name, each]) => each !== null && !own.includes(name)))
    : value;

const textPart = z.preprocess(
  asGiven(['prompt_cache_breakpoint', 'cache_control']),
  z.strictObject({ type: z.literal('text'), text: z.string() }),
);

/** For a list that is not one of texts, zod would report the faults of both forms. */
const onlyText = z.custom<string | unknown[]>(
  (value) => typeof value === 'string' || (Array.isArray(value) && value.every((part) => typeOf(part) === 'text')),
  { error: 'expected text, or a list of parts of type "text": models here read nothing else.', abort: true },
);
const typeOf = (part: unknown): unknown => (part as { type?: unknown } | null)?.type;

const text = onlyText.pipe(
  z.union([z.string(), z.array(textPart).transform((parts) => parts.map((part) => part.text).join(''))]),
);

const toolCall = z.preprocess(
  asGiven([]),
  z.strictObject({
    id: z.string().optional(),
    type: z.literal('function').optional(),
    /** From a stream's delta; a client may send it back. */
    index: z.number().optional(),
    function: z.preprocess(asGiven(['parsed_arguments']), z.strictObject({ name: z.string(), arguments: z.string() })),
  }),
);

const message = z.preprocess(
  asGiven(['parsed', 'annotations']),
  z
    .strictObject({
      role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
      content: text.optional(),
      name: z.string().optional(),
      tool_calls: z.array(toolCall).optional(),
      tool_call_id: z.string().optional(),
      /** An assistant's thinking, for templates that write it. */
      reasoning_content: z.string().optional(),
    })
    .refine(({ role, content, tool_calls: calls }) => content !== undefined || (role === 'assistant' && calls), {
      path: ['content'],
      message: 'is required; only a message of the assistant that has tool_calls may lack it.',
    }),
);

const tool = z.strictObject({
  type: z.literal('function'),
  function: z.strictObject({
    name: z.string().regex(/^[\w.-]{1,64}$/, 'letters, digits, _ . and -, at most 64'),
    description: z.string().optional(),
    parameters: z.record(z.string(), z.unknown()).optional(),
    strict: z.boolean().nullish(),
  }),
});

const responseFormat = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text') }),
  z.strictObject({ type: z.literal('json_object') }),
  z.strictObject({
    type: z.literal('json_schema'),
    json_schema: z.strictObject({
      name: z.string().optional(),
      description: z.string().optional(),
      schema: z.union([z.boolean(), z.record(z.string(), z.unknown())]).optional(),
      strict: z.boolean().nullish(),
    }),
  }),
]);

/** Names of nested fields, for suggestions. */
const nestedNames = [
  ...['role', 'content', 'name', 'tool_calls', 'tool_call_id', 'reasoning_content', 'function', 'arguments', 'type'],
  ...[
    'description',
    'parameters',
    'strict',
    'json_schema',
    'schema',
    'include_usage',
    'prompt',
    'messages',
    'response',
  ],
];

/** Fields of both kinds of completion. */
const sampling = {
  model: z.string().optional(),
  max_tokens: z.number().int().min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.number().int().min(0).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  // Beyond this, logits overflow or collapse into equal values.
  repetition_penalty: z.number().min(0.01).max(100).nullish(),
  n: z.number().int().min(1).max(128).nullish(),
  seed: z.number().int().nullish(),
  stop: z.union([z.string(), z.array(z.string()).max(16)]).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z
    .strictObject({ include_usage: z.boolean().optional(), include_obfuscation: z.boolean().optional() })
    .nullish(),
  user: z.string().optional(),
};

export const chatRequest = z
  .object({
    ...sampling,
    messages: z.array(message).min(1),
    max_completion_tokens: z.number().int().min(1).nullish(),
    logprobs: z.boolean().nullish(),
    top_logprobs: z.number().int().min(0).max(20).nullish(),
    tools: z.array(tool).nullish(),
    tool_choice: z
      .union([
        z.enum(['none', 'auto', 'required']),
        z.strictObject({ type: z.literal('function'), function: z.strictObject({ name: z.string() }) }),
      ])
      .nullish(),
    /** False allows at most one call if calls are required. */
    parallel_tool_calls: z.boolean().nullish(),
    response_format: responseFormat.nullish(),
    /** Further variables of the chat template, such as enable_thinking. */
    chat_template_kwargs: z.record(z.string(), z.unknown()).optional(),
  })
  .refine(({ tools, tool_choice: choice }) => choice == null || (tools ?? []).length > 0, {
    path: ['tool_choice'],
    message: 'there are no tools to choose from.',
  })
  .refine(({ logprobs, top_logprobs: top }) => top == null || logprobs === true, {
    path: ['top_logprobs'],
    message: 'needs logprobs: true.',
  });
export type ChatRequest = z.output<typeof chatRequest>;

type Prompt = string | string[] | number[] | number[][];

const isIds = (value: unknown): boolean =>
  Array.isArray(value) && value.length > 0 && value.every((id) => Number.isSafeInteger(id) && id >= 0);
/** Not a union of lists: zod would keep a fault for each of a million ids that is not a text. */
const isPrompt = (value: unknown): boolean =>
  typeof value === 'string' ||
  isIds(value) ||
  (Array.isArray(value) &&
    value.length > 0 &&
    (value.every((each) => typeof each === 'string') || value.every((each) => isIds(each))));

export const completionRequest = z.object({
  ...sampling,
  prompt: z.custom<Prompt>(isPrompt, 'expected text or a list of token ids, or a list of these.'),
  logprobs: z.number().int().min(0).max(20).nullish(),
});
export type CompletionRequest = z.output<typeof completionRequest>;

const scored = z.strictObject({
  prompt: z.string().optional(),
  messages: z.array(message).optional(),
  response: z.string(),
});
export const scoreRequest = z.object({
  model: z.string().optional(),
  items: z.array(scored).min(1).max(1024),
});

/** Fields that do not change the response; clients often send them. */
const harmless = new Set([
  ...['store', 'metadata', 'service_tier', 'safety_identifier', 'verbosity'],
  ...['prompt_cache_key', 'prompt_cache_options', 'prompt_cache_retention'],
]);
/** Fields that would change the response, and the values with which they do not. */
const neutral: Record<string, (value: unknown) => boolean> = {
  presence_penalty: (value) => value === 0,
  frequency_penalty: (value) => value === 0,
  logit_bias: (value) => typeof value === 'object' && value !== null && Object.keys(value).length === 0,
  best_of: (value) => value === 1,
  echo: (value) => value === false,
  suffix: (value) => value === '',
  modalities: (value) => Array.isArray(value) && value.every((each) => each === 'text'),
  functions: (value) => Array.isArray(value) && value.length === 0,
};

/** The parsed body, or a 400 that names each fault; an unknown field anywhere is a fault. */
export function parsed<Schema extends z.ZodObject>(schema: Schema, body: unknown): z.output<Schema> {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new ApiError(400, "The request's body is a JSON object.");
  const known = Object.keys(schema.shape);
  for (const [name, value] of Object.entries(body)) {
    if (known.includes(name) || harmless.has(name) || value === null) continue;
    if (lookup(neutral, name)?.(value)) continue;
    throw notOffered(name, suggestion(name, known));
  }
  const result = schema.safeParse(body);
  if (result.success) return result.data as z.output<Schema>;
  const { issues } = result.error;
  const unknown = issues.find((issue) => issue.code === 'unrecognized_keys');
  if (unknown !== undefined) {
    const [name = ''] = unknown.keys;
    throw notOffered([...unknown.path, name].join('.'), suggestion(name, nestedNames));
  }
  const faults = issues.map(
    (issue) => `${issue.path.join('.') || 'body'}: ${expectation(issue, valueAt(body, issue.path))}`,
  );
  const message = faults.length === 1 ? faults[0] : faults.map((fault) => fault.replace(/\.$/, '')).join('; ');
  throw new ApiError(400, message ?? '', { param: String(issues[0]?.path[0] ?? '') });
}

const notOffered = (name: string, near: string): ApiError =>
  new ApiError(400, `"${name}" is not offered here.${near}`, { param: name, code: 'unsupported_parameter' });

function valueAt(body: unknown, path: readonly PropertyKey[]): unknown {
  let value = body;
  for (const part of path) value = (value as Record<PropertyKey, unknown> | null | undefined)?.[part];
  return value;
}
