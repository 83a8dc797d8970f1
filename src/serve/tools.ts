/**
 * Formats of tool calls, by model family. The chat template tells which one a model was trained on:
 *
 *   <tool_call>{"name": …, "arguments": {…}}</tool_call>     Qwen, Hermes and their kin
 *   [TOOL_CALLS][{"name": …, "arguments": {…}}]               Mistral
 *   {"name": …, "parameters": {…}}                            Llama 3
 */
import { randomUUID } from 'node:crypto';
import {
  choice,
  type GrammarNode,
  type JsonSchema,
  literal,
  optional,
  repeat,
  schemaGrammar,
  sequence,
} from '../text/index.ts';

export interface ToolCall {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}

export interface Tool {
  name: string;
  parameters?: JsonSchema;
}

export interface ToolFormat {
  /** The text that a call begins with; text before it is content. */
  readonly opening: string;
  /** The calls in a response, and the rest of its text; undefined if the text after the opening is not a call. */
  parse(response: string): { text: string; calls: ToolCall[] };
  /** The grammar of a response that consists of one to `most` calls of these tools, for `tool_choice: required`. */
  grammar(tools: readonly Tool[], most: number): GrammarNode;
}

/** The format in which a chat template writes past calls; undefined if it does not support tools. */
export function toolFormat(template: string | undefined): ToolFormat | undefined {
  if (template === undefined || !/\btools\b/.test(template)) return undefined;
  if (template.includes('<tool_call>')) return tagged;
  if (template.includes('[TOOL_CALLS]')) return listed;
  if (/"parameters"|'parameters'|parameters/.test(template)) return bare;
  return undefined;
}

interface WrittenCall {
  name?: unknown;
  arguments?: unknown;
  parameters?: unknown;
}

function toCall(written: unknown): ToolCall | undefined {
  const { name, arguments: given, parameters } = (written ?? {}) as WrittenCall;
  if (typeof name !== 'string') return undefined;
  const values = given ?? parameters ?? {};
  const text = typeof values === 'string' ? values : JSON.stringify(values);
  return {
    id: `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`,
    type: 'function',
    function: { name, arguments: text },
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const callGrammar = (tool: Tool, key: string): GrammarNode =>
  sequence([
    literal(`{"name":${JSON.stringify(tool.name)},"${key}":`),
    schemaGrammar(tool.parameters ?? { type: 'object' }),
    literal('}'),
  ]);

const tagged: ToolFormat = {
  opening: '<tool_call>',
  parse(response) {
    const calls = [...response.matchAll(/<tool_call>([\s\S]*?)(?:<\/tool_call>|$)/g)]
      .map(([, inside = '']) => toCall(parseJson(inside.trim())))
      .filter((call) => call !== undefined);
    return { text: calls.length > 0 ? response.slice(0, response.indexOf('<tool_call>')).trim() : response, calls };
  },
  grammar: (tools, most) => {
    const call = sequence([
      literal('<tool_call>\n'),
      choice(tools.map((tool) => callGrammar(tool, 'arguments'))),
      literal('\n</tool_call>'),
    ]);
    return sequence([call, repeat(sequence([literal('\n'), call]), 0, most - 1)]);
  },
};

const listed: ToolFormat = {
  opening: '[TOOL_CALLS]',
  parse(response) {
    const at = response.indexOf('[TOOL_CALLS]');
    if (at < 0) return { text: response, calls: [] };
    const written = parseJson(response.slice(at + '[TOOL_CALLS]'.length).trim());
    const calls = [written]
      .flat()
      .map(toCall)
      .filter((call) => call !== undefined);
    return calls.length > 0 ? { text: response.slice(0, at).trim(), calls } : { text: response, calls: [] };
  },
  grammar: (tools, most) => {
    const call = choice(tools.map((tool) => callGrammar(tool, 'arguments')));
    const more = repeat(sequence([literal(','), call]), 0, most - 1);
    return sequence([literal('[TOOL_CALLS] ['), call, more, literal(']')]);
  },
};

const bare: ToolFormat = {
  opening: '{"name"',
  parse(response) {
    const text = response.replace(/^\s*(?:<\|python_tag\|>)?\s*/, '');
    if (!text.startsWith('{')) return { text: response, calls: [] };
    const call = toCall(parseJson(text.trim()));
    return call === undefined ? { text: response, calls: [] } : { text: '', calls: [call] };
  },
  grammar: (tools) => sequence([choice(tools.map((tool) => callGrammar(tool, 'parameters'))), optional(literal('\n'))]),
};
