/** Tools, from a client's request to its parsed calls, with a model whose template knows them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Registry } from './registry.ts';
import { question, withTools } from './served.test-support.ts';
import { type RunningServer, serve } from './server.ts';
import { toolFormat } from './tools.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-tools-'));
const parameters = {
  type: 'object' as const,
  properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer' } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const weather = { type: 'function' as const, function: { name: 'weather', parameters } };
const clock = {
  type: 'function' as const,
  function: { name: 'clock', parameters: { type: 'object', properties: {}, additionalProperties: false } },
};
let registry: Registry;
let server: RunningServer;
let client: OpenAI;

beforeAll(async () => {
  registry = new Registry({ dtype: 'float32', maxTokens: 1024, slots: 4 });
  await registry.add('tiny', withTools(folder));
  server = await serve(registry, { port: 0 });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
  rmSync(folder, { recursive: true });
});

const asked = { model: 'tiny', messages: question, max_tokens: 200, temperature: 0.5 };

function expectWeather(call: { name: string; arguments: string } | undefined): void {
  expect(call?.name).toBe('weather');
  const given = JSON.parse(call?.arguments ?? '');
  expect(['Rome', 'Oslo']).toContain(given.city);
  expect(Number.isInteger(given.days)).toBe(true);
}

describe("tools with OpenAI's client", () => {
  it('a named function is called, with arguments of its schema', async () => {
    const named = { type: 'function' as const, function: { name: 'weather' } };
    const made = await client.chat.completions.create({ ...asked, tools: [clock, weather], tool_choice: named });
    const [choice] = made.choices;
    expect(choice?.finish_reason).toBe('tool_calls');
    expect(choice?.message.content).toBeNull();
    const [call] = choice?.message.tool_calls ?? [];
    expect(call?.id).toMatch(/^call_/);
    expectWeather(call?.type === 'function' ? call.function : undefined);
  });

  it('a required call is of one of the tools, whatever the seed', async () => {
    const names = new Set<string>();
    for (let seed = 0; seed < 6; seed++) {
      const made = await client.chat.completions.create({
        ...{ ...asked, seed, temperature: 1, tools: [clock, weather], tool_choice: 'required' as const },
        parallel_tool_calls: false,
      });
      expect(made.choices[0]?.message.tool_calls).toHaveLength(1);
      for (const call of made.choices[0]?.message.tool_calls ?? []) {
        if (call.type !== 'function') continue;
        names.add(call.function.name);
        JSON.parse(call.function.arguments);
      }
      expect(made.choices[0]?.finish_reason).toBe('tool_calls');
    }
    expect([...names].every((name) => ['clock', 'weather'].includes(name))).toBe(true);
    expect(names.size).toBeGreaterThan(0);
  });

  it('streams calls as deltas that put the same call together', async () => {
    const named = { type: 'function' as const, function: { name: 'weather' } };
    const request = { ...asked, seed: 3, tools: [weather], tool_choice: named };
    const whole = (await client.chat.completions.create(request)).choices[0]?.message.tool_calls?.[0];
    const calls: { name: string; arguments: string }[] = [];
    let content = '';
    let finish: string | null | undefined;
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      const [choice] = chunk.choices;
      content += choice?.delta.content ?? '';
      finish = choice?.finish_reason ?? finish;
      for (const delta of choice?.delta.tool_calls ?? []) {
        calls[delta.index] ??= { name: '', arguments: '' };
        const call = calls[delta.index] as { name: string; arguments: string };
        call.name += delta.function?.name ?? '';
        call.arguments += delta.function?.arguments ?? '';
      }
    }
    expect(content).toBe('');
    expect(finish).toBe('tool_calls');
    expectWeather(calls[0]);
    expect(whole?.type === 'function' && whole.function).toEqual(calls[0]);
  });

  it('"none" leaves the tools out of the prompt: the text is that of a request without any', async () => {
    const plain = await client.chat.completions.create({ ...asked, seed: 4 });
    const none = await client.chat.completions.create({ ...asked, seed: 4, tools: [weather], tool_choice: 'none' });
    expect(none.choices[0]?.message).toEqual(plain.choices[0]?.message);
    expect(none.usage).toEqual(plain.usage);
    const auto = await client.chat.completions.create({ ...asked, seed: 4, tools: [weather] });
    expect(auto.usage?.prompt_tokens).toBeGreaterThan(plain.usage?.prompt_tokens ?? Number.POSITIVE_INFINITY);
  });

  it('reads past calls and their results', async () => {
    const call = { id: 'call_1', type: 'function' as const, function: { name: 'clock', arguments: '{}' } };
    const made = await client.chat.completions.create({
      ...asked,
      tools: [clock],
      messages: [
        ...question,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'call_1', content: 'noon' },
      ],
    });
    const short = await client.chat.completions.create({ ...asked, tools: [clock] });
    expect(made.usage?.prompt_tokens).toBeGreaterThan((short.usage?.prompt_tokens ?? 0) + 10);
  });

  it("takes back messages with what OpenAI's client adds to them", async () => {
    let calls = 0;
    const { parameters } = clock.function;
    const noon = { name: 'clock', description: '', parameters, parse: JSON.parse, function: () => `noon ${++calls}` };
    const more = { tool_choice: 'required' as const, parallel_tool_calls: false };
    const run = client.chat.completions.runTools(
      { ...asked, ...more, tools: [{ type: 'function', function: noon }] },
      { maxChatCompletions: 2 },
    );
    await run.done();
    expect(calls).toBe(2);
    const call = { id: 'call_1', type: 'function' as const, function: { name: 'clock', arguments: '{}' } };
    const made = await client.chat.completions.create({
      ...{ ...asked, max_tokens: 2, tools: [clock] },
      messages: [
        ...question,
        { role: 'assistant', tool_calls: [{ ...call, function: { ...call.function, parsed_arguments: {} } }] } as never,
        { role: 'tool', tool_call_id: 'call_1', content: 'noon' },
        { role: 'assistant', content: '{}', parsed: { a: 1 }, annotations: [] } as never,
        ...question,
      ],
    });
    expect(made.choices).toHaveLength(1);
  });

  it('a choice that is not among the tools is refused', async () => {
    const other = { type: 'function' as const, function: { name: 'other' } };
    await expect(client.chat.completions.create({ ...asked, tools: [weather], tool_choice: other })).rejects.toThrow(
      /not among the tools/,
    );
  });
});

describe('tools with the AI SDK', () => {
  const provider = () => createOpenAICompatible({ name: 'attune', baseURL: `${server.url}/v1` });

  it('generateText runs the tool that the model calls', async () => {
    const given: { city: string; days: number }[] = [];
    const { toolCalls, finishReason } = await generateText({
      model: provider()('tiny'),
      prompt: 'Weather in Rome?',
      maxOutputTokens: 200,
      toolChoice: { type: 'tool', toolName: 'weather' },
      tools: {
        weather: tool({
          inputSchema: jsonSchema<{ city: string; days: number }>(parameters as never),
          execute: async (input) => {
            given.push(input);
            return 'sunny';
          },
        }),
      },
    });
    expect(finishReason).toBe('tool-calls');
    expect(toolCalls[0]?.toolName).toBe('weather');
    expect(['Rome', 'Oslo']).toContain(given[0]?.city);
  });
});

describe('what the families write', () => {
  const written = '{"name": "f", "arguments": {"a": 1}}';
  it.each([
    ['tools <tool_call>', `before <tool_call>\n${written}\n</tool_call>`, 'before'],
    ['tools [TOOL_CALLS]', `before [TOOL_CALLS] [${written}]`, 'before'],
    ['tools parameters', '{"name": "f", "parameters": {"a": 1}}', ''],
  ])('%s', (template, response, text) => {
    const parsed = toolFormat(template)?.parse(response);
    expect(parsed?.text).toBe(text);
    expect(parsed?.calls.map((call) => call.function)).toEqual([{ name: 'f', arguments: '{"a":1}' }]);
  });

  it.each([
    ['tools <tool_call>', 'a <tool_call>{"name": </tool_call>'],
    ['tools [TOOL_CALLS]', '[TOOL_CALLS] [{"nam'],
    ['tools parameters', '{"answer": 4}'],
  ])('%s: what is no call stays text', (template, response) => {
    expect(toolFormat(template)?.parse(response)).toEqual({ text: response, calls: [] });
  });

  it('a template that does not speak of tools has no format', () => {
    expect(toolFormat('{{ messages }}')).toBeUndefined();
    expect(toolFormat(undefined)).toBeUndefined();
  });
});
