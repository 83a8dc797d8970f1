import { describe, expect, it } from 'vitest';
import {
  addedToken,
  sentencePieceConfig,
  sentencePieceJson,
  tokenizerWith,
} from '../tokenizer/tokenizer.test-support.ts';
import type { Tokenizer } from '../tokenizer/tokenizer.ts';
import { type Message, plainChatTemplate } from './chat.ts';

const added_tokens = [
  ...sentencePieceJson().added_tokens,
  addedToken(307, '<|im_start|>'),
  addedToken(308, '<|im_end|>'),
];
const withTemplate = (
  chat_template: unknown,
  files: Record<string, unknown> = {},
  overrides: Record<string, unknown> = {},
) =>
  tokenizerWith({
    'tokenizer.json': sentencePieceJson({ added_tokens, ...overrides }),
    'tokenizer_config.json': { ...sentencePieceConfig, chat_template },
    ...files,
  });

const chat = (...contents: string[]): Message[] =>
  contents.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }));

/** The assistant's tokens as text; one string per run of them. */
function spoken(tokenizer: Tokenizer, messages: Message[], options = {}): string[] {
  const { ids, assistantMask } = tokenizer.encodeChat(messages, options);
  expect(ids).toEqual(tokenizer.encode(tokenizer.renderChat(messages, options)));
  const runs: number[][] = [];
  ids.forEach((id, i) => {
    if (!assistantMask[i]) return;
    if (!assistantMask[i - 1]) runs.push([]);
    runs.at(-1)?.push(id);
  });
  return runs.map((run) => tokenizer.decode(run));
}

// The templates of well-known families, shortened.
const llama2 =
  "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0].content %}{% else %}{% set rest = messages %}{% endif %}" +
  "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}" +
  "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + (system + ' ' if loop.index0 == 0 and system else '') + m.content | trim + ' [/INST]' }}" +
  "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}";
const dropsThinking =
  "{% for m in messages %}{% set c = m.content %}{% if m.role == 'assistant' and not loop.last and '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip() %}{% endif %}" +
  "{% if m.role == 'assistant' and loop.last and '</think>' not in c %}{% set c = '<think>\\n\\n</think>\\n\\n' + c %}{% endif %}" +
  "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}" +
  "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}";
const opensThinking =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content.split('</think>')[-1] + '<|im_end|>' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant<think>\\n' }}{% endif %}";

describe('rendering', () => {
  it('knows the tokens, the generation prompt, named templates and further variables', async () => {
    const tokenizer = await withTemplate([
      {
        name: 'default',
        template:
          '{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ mood }}{% if add_generation_prompt %}>{% endif %}',
      },
      { name: 'tool_use', template: '{{ tools | length }}{{ strftime_now("%Y") | length }}' },
    ]);
    expect(tokenizer.renderChat(chat('a', 'b'), { addGenerationPrompt: true, variables: { mood: '!' } })).toBe(
      '<s>ab!>',
    );
    expect(tokenizer.renderChat(chat('a'), { template: 'tool_use', tools: [{}, {}] })).toBe('24');
  });

  it('takes chat_template.jinja before the field, and trims blocks as transformers does', async () => {
    const tokenizer = await withTemplate('old', {
      'chat_template.jinja': '{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n',
    });
    expect(tokenizer.renderChat(chat('a', 'b'))).toBe('a\nb\n');
  });

  it('explains what is wrong', async () => {
    const plain = await withTemplate(undefined);
    expect(() => plain.renderChat(chat('a'))).toThrow(/no chat template.*plainChatTemplate/);
    expect(plain.renderChat(chat('a'), { template: plainChatTemplate, addGenerationPrompt: true })).toBe(
      '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n',
    );
    expect(() => plain.renderChat(chat('a'), { template: '{% if %}' })).toThrow('cannot be parsed');
    const strict = await withTemplate(llama2);
    expect(() => strict.renderChat(chat('a', 'b').reverse())).toThrow('roles must alternate');
    expect(() => strict.renderChat([{ role: 'user' } as Message])).toThrow('messages[0] (user) has no text content');
  });
});

describe('assistant mask', () => {
  it('covers responses and their end of turn', async () => {
    const tokenizer = await withTemplate(plainChatTemplate);
    expect(spoken(tokenizer, chat('hello', 'the hall'))).toEqual(['the hall<|im_end|>']);
    expect(spoken(tokenizer, chat('a', ' b é😀', 'c', 'c\n', 'a'))).toEqual(['b é😀<|im_end|>', 'c\n<|im_end|>']);
    expect(spoken(tokenizer, chat('a', 'b', 'a'), { addGenerationPrompt: true })).toEqual(['b<|im_end|>']);
    expect(spoken(tokenizer, [{ role: 'system', content: 'x' }, ...chat('a', 'a')])).toEqual(['a<|im_end|>']);
    expect(spoken(tokenizer, chat('a'))).toEqual([]);
  });

  it('holds where the template trims and refuses parts of a chat', async () => {
    const tokenizer = await withTemplate(llama2);
    expect(spoken(tokenizer, [{ role: 'system', content: 'x' }, ...chat('hello', '\n the hall \n', 'a', 'b')])).toEqual(
      ['the hall </s>', 'b </s>'],
    );
  });

  it('holds where the thinking of earlier turns is dropped', async () => {
    const tokenizer = await withTemplate(dropsThinking);
    const thought = (answer: string) => `<think>\nin\n</think>\n\n${answer}`;
    expect(spoken(tokenizer, chat('a', thought('b'), 'c', thought('d')))).toEqual([
      'b<|im_end|>',
      '<think>\nin\n</think>\n\nd<|im_end|>',
    ]);
    expect(spoken(tokenizer, chat('a', 'b', 'c', 'd'))).toEqual(['b<|im_end|>', '<think>\n\n</think>\n\nd<|im_end|>']);
    const variables = { enable_thinking: false };
    expect(spoken(tokenizer, chat('a', 'b', 'c', 'd'), { variables })).toEqual(['b<|im_end|>', 'd<|im_end|>']);
    expect(spoken(tokenizer, chat('a', thought('d')), { variables })).toEqual(['<think>\nin\n</think>\n\nd<|im_end|>']);
  });

  it('holds where only the generation prompt opens the thinking', async () => {
    expect(spoken(await withTemplate(opensThinking), chat('a', '<think>x</think>b', 'a', 'tea'))).toEqual([
      'b<|im_end|>',
      'tea<|im_end|>',
    ]);
  });

  it('holds for a turn of tool calls alone', async () => {
    const calls =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}{% for c in m.tool_calls or [] %}" +
      "{{ ('\\n' if m.content else '') + c.name }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}" +
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    const call = { role: 'assistant', content: '', tool_calls: [{ name: 'hall' }] } as Message;
    const messages: Message[] = [
      ...chat('a'),
      call,
      { role: 'tool', content: 'x' },
      { role: 'assistant', content: 'b' },
    ];
    expect(spoken(await withTemplate(calls), messages)).toEqual(['hall<|im_end|>', 'b<|im_end|>']);
  });

  it('finds the place inside a piece of bytes, digits and emoji', async () => {
    const vocab = { ...sentencePieceJson().model.vocab };
    const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
    const bytes = Object.fromEntries([...'ĠĊðŁĺĢÃ©'].map((char, i) => [char, 400 + i]));
    const model = { ...sentencePieceJson().model, vocab: { ...vocab, ...bytes }, byte_fallback: false };
    const tokenizer = await withTemplate(
      '{% for m in messages %}{{ m.content }}{% endfor %}',
      {},
      { normalizer: { type: 'NFC' }, pre_tokenizer: byteLevel, decoder: byteLevel, model },
    );
    // "hé" + "éllo😀": one word to the pre-tokenizer, and the é of the prompt is composed by the normaliser.
    expect(
      spoken(tokenizer, [
        { role: 'user', content: 'he\u0301' },
        { role: 'assistant', content: 'éllo😀' },
      ]),
    ).toEqual(['éllo😀']);
  });

  it.each([
    [
      'a template that leaves responses out',
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
      'leaves the response out',
    ],
    ['one that writes them twice', '{% for m in messages %}{{ m.content + m.content }}{% endfor %}', 'more than once'],
    [
      'one that counts them in front',
      '{{ messages[-1].content | length }}{% for m in messages %}{{ m.content }}{% endfor %}',
      'before the response depends',
    ],
    [
      'one that counts them behind',
      '{% for m in messages %}{{ m.content }}{{ m.content | length }}{% endfor %}',
      'after the response depends',
    ],
  ])('says why it is impossible for %s', async (_, template, message) => {
    const tokenizer = await withTemplate(template);
    expect(() => tokenizer.encodeChat(chat('a', 'bb'))).toThrow(message);
  });
});
