import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { UserError } from '../../errors.ts';
import { liveTensors } from '../../tensor/index.ts';
import { generate, LanguageModel, stream, type TextResponse } from './language-model.ts';

const tiny = join(import.meta.dirname, '../../../models/tiny');
const messages = [{ role: 'user' as const, content: 'Spell "abu" backward. Answer with one word.' }];

describe('text in, text out', () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await LanguageModel.open(tiny, { dtype: 'float32' });
  });
  afterAll(() => model.dispose());

  it('answers a conversation and says how it ended', async () => {
    const response = await model.generate({ messages, temperature: 0, maxNewTokens: 64 });
    expect(response.text).toContain('<answer>');
    expect(response.finish).toBe('stop');
    expect(response.logprobs.length).toBe(response.ids.length);
    expect(response.promptTokens).toBe(model.promptIds({ messages }).length);
  });

  it('gives several responses, each with its own seed', async () => {
    const responses = await model.generate({ messages, samples: 4, seed: 3, maxNewTokens: 48 });
    expect(responses).toHaveLength(4);
    const alone = await model.generate({ messages, seed: 5, maxNewTokens: 48 });
    expect(responses[2]?.text).toBe(alone.text);
  });

  it('streams the same text, piece by piece', async () => {
    const request = { messages, seed: 7, maxNewTokens: 48 };
    const whole = await model.generate(request);
    const pieces: string[] = [];
    const run = model.stream(request);
    let next = await run.next();
    for (; !next.done; next = await run.next()) pieces.push(next.value);
    expect(pieces.join('')).toBe(whole.text);
    expect(pieces.every((piece) => piece !== '')).toBe(true);
    expect((next.value as TextResponse).ids).toEqual(whole.ids);
  });

  it('cuts before a stop text, in a stream too', async () => {
    const request = { messages, temperature: 0, maxNewTokens: 64, stop: '</answer>' };
    const whole = await model.generate(request);
    expect(whole.finish).toBe('stop');
    expect(whole.text).not.toContain('</answer>');
    let streamed = '';
    for await (const piece of model.stream(request)) streamed += piece;
    expect(streamed).toBe(whole.text);
  });

  it('stops when its reader leaves', async () => {
    const leave = async () => {
      for await (const _ of model.stream({ messages, maxNewTokens: 400, seed: 1 })) break;
      const after = await model.generate({ messages, temperature: 0, maxNewTokens: 8 });
      expect(after.ids.length).toBeGreaterThan(0);
    };
    for (let i = 0; i < 20; i++) await leave(); // until copies in bf16 are made, if there are any
    const before = await settledTensors();
    await leave();
    expect(await settledTensors()).toBe(before);
  });

  it('wants a prompt or messages, not both', async () => {
    await expect(model.generate({})).rejects.toThrow(UserError);
    await expect(model.generate({ prompt: 'a', messages })).rejects.toThrow(/either/);
    await expect(model.generate({ messages: [] })).rejects.toThrow(/at least one message/);
    await expect(model.generate({ prompt: 42 as never })).rejects.toThrow(/prompt 42: expected text/);
  });

  it('refuses names that it does not know, with the nearest one', async () => {
    const misspelt = { messages, temprature: 0 };
    await expect(model.generate(misspelt)).rejects.toThrow(
      /generate does not know "temprature"\. Did you mean "temperature"\?/,
    );
    await expect(generate({ model: 'no/such-model', ...misspelt })).rejects.toThrow(/temprature/);
    await expect(model.stream(misspelt).next()).rejects.toThrow(/stream does not know "temprature"/);
    await expect(stream({ model, messages, samples: 2 } as never).next()).rejects.toThrow(/does not know "samples"/);
  });

  it('says what fits where a response would be longer than the memory', async () => {
    const fault = await model.generate({ messages, maxNewTokens: 1e9 }).catch((error) => error);
    expect(fault).toBeInstanceOf(UserError);
    expect(fault.message).toMatch(
      /1 sequence of 1,000,000,\d+ tokens takes [\d,.]+ GiB, and [\d,.]+ GiB are free on cpu/,
    );
    expect(fault.message).toMatch(/At most [\d,]+ tokens a sequence fit/);
    expect((await model.generate({ messages, maxNewTokens: 2 })).ids).toHaveLength(2);
  });

  it('takes a name, and frees what it loaded', async () => {
    const before = await settledTensors();
    const { text } = await generate({ model: tiny, prompt: 'What is', temperature: 0, maxNewTokens: 4 });
    expect(text.length).toBeGreaterThan(0);
    let streamed = '';
    for await (const piece of stream({ model: tiny, prompt: 'What is', temperature: 0, maxNewTokens: 4 }))
      streamed += piece;
    expect(streamed).toBe(text);
    expect(liveTensors()).toBe(before);
  });
});
