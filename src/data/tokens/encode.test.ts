import { describe, expect, it } from 'vitest';
import type { ExampleOf, Message, Shape } from '../shapes/shapes.ts';
import { wordsTokenizer } from '../words-tokenizer.test-support.ts';
import { type EncodeOptions, ExampleEncoder } from './encode.ts';
import type { TokenRecord } from './record.ts';
import { packRecord, unpackRecord } from './record.ts';

const ask = (content: string): Message[] => [{ role: 'user', content }];

/** Each sequence as text, with the parts that carry loss in brackets. */
async function shown<S extends Shape>(
  shape: S,
  example: ExampleOf[S],
  options: EncodeOptions & { chat?: boolean; bos?: boolean } = {},
) {
  const tokenizer = wordsTokenizer(options);
  const [result] = await new ExampleEncoder(tokenizer, shape, options).encode([example]);
  if (result === undefined || 'dropped' in result) return result?.dropped;
  return result.records.flatMap((record) =>
    record.sequences.map(({ ids, spans, marks }) => {
      const edges = [...spans];
      let text = '';
      for (let i = 0; i <= ids.length; i++) {
        for (const [place, edge] of edges.entries()) if (edge === i) text += place % 2 === 0 ? '[' : ']';
        for (let m = 0; m < marks.length; m += 2) if (marks[m] === i - 1) text += `{${marks[m + 1]}}`;
        if (i < ids.length) text += tokenizer.decode([ids[i] as number]);
      }
      return text;
    }),
  );
}

describe('encoding with a chat template', () => {
  it('puts loss on the response up to its end-of-turn token', async () => {
    const pair = { prompt: ask('Is it so?'), chosen: 'Yes it is.', rejected: 'No' };
    expect(await shown('preference', pair)).toEqual([
      '<|user|>Is it so?<|end|>\n<|assistant|>[Yes it is.<|end|>]',
      '<|user|>Is it so?<|end|>\n<|assistant|>[No<|end|>]',
    ]);
  });

  it('renders responses as the template would, also after the first have been checked', async () => {
    const tokenizer = wordsTokenizer();
    let rendered = 0;
    const counting = {
      ...tokenizer,
      renderChat: (...args: Parameters<typeof tokenizer.renderChat>) => {
        rendered++;
        return tokenizer.renderChat(...args);
      },
    };
    const encoder = new ExampleEncoder(counting, 'preference');
    const pairs = Array.from({ length: 100 }, (_, i) => ({
      prompt: ask(`q ${i}`),
      chosen: `good ${i}`,
      rejected: i === 90 ? ' padded  ' : `bad ${i}`,
    }));
    const results = await encoder.encode(pairs);
    const text = (i: number, side: number) => {
      const result = results[i];
      return result !== undefined && 'records' in result
        ? tokenizer.decode(result.records[0]?.sequences[side]?.ids ?? [])
        : '';
    };
    for (const i of [0, 15, 16, 17, 99]) {
      expect(text(i, 0)).toBe(`<|user|>q ${i}<|end|>\n<|assistant|>good ${i}<|end|>`);
      expect(text(i, 1)).toBe(`<|user|>q ${i}<|end|>\n<|assistant|>bad ${i}<|end|>`);
    }
    expect(text(90, 1)).toBe('<|user|>q 90<|end|>\n<|assistant|>padded<|end|>');
    // 100 prompts, 32 checked responses, one frame, one response with outer blanks.
    expect(rendered).toBe(134);
  });

  it('keeps rendering each response where a template changes responses by their content', async () => {
    const tokenizer = wordsTokenizer();
    const odd = {
      ...tokenizer,
      renderChat: (messages: readonly Message[], options?: object) =>
        tokenizer.renderChat(
          messages.map((m) => (m.role === 'assistant' ? { ...m, content: m.content.toUpperCase() } : m)),
          options,
        ),
    };
    const results = await new ExampleEncoder(odd, 'unpaired').encode(
      Array.from({ length: 60 }, (_, i) => ({ prompt: ask('q'), completion: `word ${i}`, label: true })),
    );
    const last = results[59] as { records: TokenRecord[] };
    expect(tokenizer.decode(last.records[0]?.sequences[0]?.ids ?? [])).toContain('WORD 59');
  });

  it('marks every turn of the assistant in a conversation', async () => {
    const messages: Message[] = [
      ...ask('a'),
      { role: 'assistant', content: 'b' },
      ...ask('c'),
      { role: 'assistant', content: 'd e' },
    ];
    expect(await shown('messages', { messages })).toEqual([
      '<|user|>a<|end|>\n<|assistant|>[b<|end|>]\n<|user|>c<|end|>\n<|assistant|>[d e<|end|>]\n',
    ]);
    expect(await shown('messages', { messages: messages.slice(0, 2) })).toEqual([
      '<|user|>a<|end|>\n<|assistant|>[b<|end|>]',
    ]);
  });

  it('labels the last token of each step, and none of those that are context', async () => {
    const steps = [
      { text: 'one two', label: null },
      { text: 'three', label: 1 as const },
      { text: 'four', label: -1 as const },
    ];
    expect(await shown('steps', { prompt: ask('q'), steps })).toEqual([
      '<|user|>q<|end|>\n<|assistant|>[one two\nthree\n{1}four\n]{-1}',
    ]);
  });
});

describe('encoding without a template', () => {
  it('writes a transcript and ends responses with EOS, after BOS where the tokenizer wants it', async () => {
    const pair = {
      prompt: [...ask('a'), { role: 'assistant' as const, content: 'b' }, ...ask('c')],
      chosen: 'd',
      rejected: 'e',
    };
    expect(await shown('preference', pair, { chat: false, bos: true })).toEqual([
      '<bos>\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant:[ d<eos>]',
      '<bos>\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant:[ e<eos>]',
    ]);
    const conversation = {
      messages: [
        ...ask('a'),
        { role: 'assistant' as const, content: 'b' },
        ...ask('c'),
        { role: 'assistant' as const, content: 'd' },
      ],
    };
    expect(await shown('messages', conversation, { chat: false })).toEqual([
      '\n\nHuman: a\n\nAssistant:[ b<eos>]\n\nHuman: c\n\nAssistant:[ d<eos>]',
    ]);
  });

  it('leaves raw prompts as they are, and cuts long texts into pieces', async () => {
    expect(await shown('prompts', { prompt: ask('Once upon a time') }, { format: 'raw' })).toEqual([
      'Once upon a time',
    ]);
    expect(await shown('text', { text: 'a b c d e' }, { chat: false, maxLength: 4 })).toEqual([
      '[a b c d]',
      '[ e<eos>]',
    ]);
    expect(await shown('text', { text: 'a b c d' }, { chat: false, maxLength: 4 })).toEqual(['[a b c d]']);
  });
});

describe('limits', () => {
  const example = { prompt: ask('a b c d'), completion: 'e f g', label: true };

  it('cuts prompts at the left and responses at the right', async () => {
    expect(await shown('unpaired', example, { maxPromptLength: 5 })).toEqual([
      ' c d<|end|>\n<|assistant|>[e f g<|end|>]',
    ]);
    expect(await shown('unpaired', example, { maxResponseLength: 2 })).toEqual([
      '<|user|>a b c d<|end|>\n<|assistant|>[e f]',
    ]);
    expect(await shown('unpaired', example, { chat: false, bos: true, format: 'raw', maxPromptLength: 3 })).toEqual([
      '<bos> c d[e f g<eos>]',
    ]);
  });

  it('leaves out what is longer than the limit', async () => {
    expect(await shown('unpaired', example, { maxLength: 12 })).toHaveLength(1);
    expect(await shown('unpaired', example, { maxLength: 11 })).toBe('too long');
  });
});

describe('records', () => {
  it('keep everything through packing', async () => {
    const encoder = new ExampleEncoder(wordsTokenizer(), 'preference');
    const pair = { prompt: ask('q'), chosen: 'x y', rejected: 'z', margin: -1.25, source: 'web' };
    const [, result] = await encoder.encode([pair, pair]);
    const [record] = (result as { records: TokenRecord[] }).records as [TokenRecord];
    expect(record).toMatchObject({ example: 1, margin: -1.25, source: 0 });
    expect(encoder.sources).toEqual(['web']);
    expect(unpackRecord(packRecord(record))).toEqual(record);
  });
});
