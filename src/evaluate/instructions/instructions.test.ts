import { expect, it } from 'vitest';
import { followed, instructionNames } from './follow.ts';
import { sentenceCount, wordCount } from './text-units.ts';

const cases: [string, Record<string, unknown>, string, string][] = [
  ['keywords:existence', { keywords: ['sun', 'C++'] }, 'The Sun likes C++.', 'The sun likes C.'],
  ['keywords:frequency', { keyword: 'ha', frequency: 2, relation: 'at least' }, 'Ha, ha!', 'Ha!'],
  ['keywords:forbidden_words', { forbidden_words: ['cat', 'über'] }, 'Category übermut', 'The CAT sat'],
  ['keywords:letter_frequency', { letter: 'e', let_frequency: 3, let_relation: 'less than' }, 'Eve', 'Eleven'],
  ['length_constraints:number_words', { num_words: 4, relation: 'less than' }, "It's one", 'It is four words'],
  ['length_constraints:number_sentences', { num_sentences: 2, relation: 'at least' }, 'One. Two', 'Dr. Who came'],
  ['length_constraints:number_paragraphs', { num_paragraphs: 2 }, 'One\n***\nTwo\n***', 'One\n***\n\n***\nTwo'],
  [
    'length_constraints:nth_paragraph_first_word',
    { num_paragraphs: 2, nth_paragraph: 2, first_word: 'Then' },
    'First\n\n"Then," he said',
    'First\n\nNow',
  ],
  ['detectable_content:number_placeholders', { num_placeholders: 2 }, 'Dear [name] of [place]', 'Dear [name]'],
  ['detectable_content:postscript', { postscript_marker: 'P.S.' }, 'Bye\nP. S. one more', 'Bye\nPS one more'],
  ['detectable_content:postscript', { postscript_marker: 'P.P.S' }, 'Bye\nP.P.S. one more', 'Bye\nP.S. one more'],
  ['detectable_format:number_bullet_lists', { num_bullets: 2 }, '* one\n- two', '* one\n** two'],
  ['detectable_format:constrained_response', {}, 'Well. My answer is maybe.', 'Maybe'],
  ['detectable_format:number_highlighted_sections', { num_highlights: 2 }, '*one* and *two*', '*one* and * *'],
  [
    'detectable_format:multiple_sections',
    { section_spliter: 'PART', num_sections: 2 },
    'PART 1 a PART 2 b',
    'PART 1 a',
  ],
  ['detectable_format:json_format', {}, '```json\n{"a": [1]}\n```', '{a: 1}'],
  ['detectable_format:title', {}, '<<A title>>\ntext', '<< >>\ntext'],
  ['combination:two_responses', {}, 'One\n******\nTwo', 'One\n******\nOne'],
  ['combination:repeat_prompt', { prompt_to_repeat: 'Say it.' }, ' say it. Done', 'Done. Say it.'],
  ['startend:end_checker', { end_phrase: 'The end.' }, '"So. THE END."', 'The end. Or not'],
  ['startend:quotation', {}, ' "All of it" ', '"Not all" of it'],
  ['language:response_language', { language: 'ko' }, '안녕하세요, OK', 'Annyeong 하'],
  ['language:response_language', { language: 'ja' }, '東京は大きい。', '东京很大'],
  ['language:response_language', { language: 'ta' }, 'வணக்கம்', 'नमस्ते'],
  [
    'change_case:capital_word_frequency',
    { capital_frequency: 2, capital_relation: 'at least' },
    'I say NO.',
    'No, I say',
  ],
  ['change_case:english_capital', {}, 'HELLO, 42!', 'HELLo'],
  ['change_case:english_lowercase', {}, 'hello, 42!', 'hellO'],
  ['punctuation:no_comma', {}, 'No; none.', 'One, two'],
];

it.each(cases)('%s %j', (id, settings, good, bad) => {
  expect(followed([{ id, settings }], good).strict).toEqual([true]);
  // Strict only: the loose verdict forgives some lines.
  expect(followed([{ id, settings }], bad).strict).toEqual([false]);
});

it('has a case for every check', () => {
  expect([...new Set(cases.map(([id]) => id))].sort()).toEqual([...instructionNames].sort());
});

it('forgives an opening line, a closing line and asterisks, loosely', () => {
  const lower = [{ id: 'change_case:english_lowercase', settings: {} }];
  expect(followed(lower, 'Sure, here it is:\nall small\nAnything else?')).toEqual({ strict: [false], loose: [true] });
  expect(followed([{ id: 'startend:quotation', settings: {} }], '**"quoted"**')).toEqual({
    strict: [false],
    loose: [true],
  });
  // Removing the only line leaves an empty response, which follows no instruction.
  expect(followed([{ id: 'punctuation:no_comma', settings: {} }], 'a, b')).toEqual({ strict: [false], loose: [false] });
});

it('refuses an instruction that there is not', () => {
  expect(() => followed([{ id: 'punctuation:no_coma', settings: {} }], 'x')).toThrow('"punctuation:no_comma"?');
});

it('says which setting an instruction lacks', () => {
  expect(() => followed([{ id: 'keywords:existence', settings: {} }], 'x')).toThrow(/"keywords" \(a list of texts\)/);
  const settings = { num_words: 3, relation: 'about' };
  expect(() => followed([{ id: 'length_constraints:number_words', settings }], 'x')).toThrow(/"relation" must be/);
});

it('counts words and sentences', () => {
  expect(wordCount("It's naïve, isn't_it? 42")).toBe(6);
  expect(sentenceCount('Mr. Smith paid 3.50. "Really?" J. R. asked! And e.g. this')).toBe(4);
  expect(sentenceCount('')).toBe(0);
});
