/** Chats typed into a screen that is no terminal, and one typed into a real pseudo-terminal. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { otherTiny } from '../../../tests/support/other-tiny.ts';
import { openDataset } from '../../data/index.ts';
import { LanguageModel } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { describeTally, tally } from '../../rewards/votes.ts';
import { rewardModel } from '../../serve/served.test-support.ts';
import { ThinkingParts } from '../../text/chat/thinking-parts.ts';
import { hasScript, keys, onTerminal } from '../terminal/pty.test-support.ts';
import { type ChatModel, type ChatOptions, chat } from './chat.ts';
import { Conversation } from './conversation.ts';
import { Screen } from './screen.ts';
import { parseCommand } from './settings.ts';

const root = join(import.meta.dirname, '../../..');
const tiny = join(root, 'models/tiny');
const folder = mkdtempSync(join(tmpdir(), 'attune-chat-'));
let model: LanguageModel;
beforeAll(async () => {
  model = await LanguageModel.open(tiny, { dtype: 'float32', reusePrefixes: true });
});
afterAll(() => {
  model.dispose();
  rmSync(folder, { recursive: true });
});

async function type(lines: string[], more: Partial<ChatOptions> = {}) {
  const input = new PassThrough();
  const output = new PassThrough();
  let shown = '';
  output.on('data', (piece) => {
    shown += piece;
  });
  const conversation = new Conversation({ temperature: 0, maxTokens: 64, seed: 1 });
  input.end(lines.map((line) => `${line}\n`).join(''));
  const models = [{ name: 'tiny', model }] as const;
  const failed = await chat({
    models,
    conversation,
    screen: new Screen({ input, output }),
    votes: join(folder, 'votes.jsonl'),
    ...more,
  });
  return { shown, conversation, failed };
}

const question = 'Spell "abu" backward. Answer with one word.';
const length: RewardScorer = { name: 'length', score: async (items) => items.map(({ response }) => response.length) };

describe('a chat with one model', () => {
  it('answers, tells the rate, and keeps the conversation', async () => {
    const { shown, conversation } = await type([question, '/exit']);
    expect(shown).toContain('<answer>');
    expect(shown).toMatch(/\d+ tokens, \d+\/s/);
    expect(conversation.turns.map(({ role }) => role)).toEqual(['user', 'assistant']);
  });

  it('changes its settings, and says what is wrong with a value', async () => {
    const { shown, conversation } = await type([
      '/temperature 0.5',
      '/temperature 9',
      '/max-tokens 10',
      '/seed 7',
      '/system Be brief.',
      '/temprature',
    ]);
    expect(conversation.settings).toMatchObject({ temperature: 0.5, maxTokens: 64, seed: 7, system: 'Be brief.' });
    expect(shown).toContain('/temperature takes a number from 0 to 1.5, not "9"');
    expect(shown).toContain('/max-tokens takes a number from 64 to 2048, not "10"');
    expect(shown).toContain('Did you mean /temperature?');
  });

  it('asks again with /retry, and reads several lines as one message', async () => {
    const { conversation } = await type(['one \\', 'two', '"""', 'three', 'four', '"""', '/retry']);
    const asked = conversation.turns.filter(({ role }) => role === 'user').map(({ content }) => content);
    expect(asked).toEqual(['one \ntwo', 'three\nfour']);
    expect(conversation.turns).toHaveLength(4);
  });

  it('scores responses, saves and loads', async () => {
    const file = join(folder, 'kept.json');
    const { shown } = await type([question, '/score', `/save ${file}`, `/save ${file}`, '/save no/x'], {
      scorer: length,
    });
    expect(shown.match(/score \d+\.000/g)).toHaveLength(2);
    expect(shown).toContain(`${file} exists already: name another file.`);
    expect(shown).toContain('no/x cannot be written: there is no such folder.');
    expect(shown).not.toMatch(/E[A-Z]{4}/);
    const loaded = await type([`/load ${file}`, '/load nowhere.json']);
    expect(loaded.conversation.turns).toHaveLength(2);
    expect(loaded.shown).toContain('nowhere.json: there is no such file.');
  });

  it('refuses what is no conversation, and takes over the instructions of one, or that it has none', async () => {
    const odd = { null: 'null', list: '[]', messages: '{"messages": [null]}', json: 'user: hi' };
    for (const [name, content] of Object.entries(odd)) writeFileSync(join(folder, name), content);
    const { shown } = await type([...Object.keys(odd).map((name) => `/load ${join(folder, name)}`), '/load /dev/zero']);
    expect(shown.match(/is no conversation/g)).toHaveLength(3);
    expect(shown).toContain('cannot be read as a conversation');
    expect(shown).toContain('/dev/zero: there is no such file.');
    const [bare, told] = [join(folder, 'bare.json'), join(folder, 'told.json')];
    writeFileSync(bare, JSON.stringify({ messages: [{ role: 'user', content: 'hi' }] }));
    writeFileSync(told, JSON.stringify({ messages: [{ role: 'system', content: 'Be brief.' }] }));
    expect((await type([`/load ${told}`])).conversation.settings.system).toBe('Be brief.');
    expect((await type(['/system Be long.', `/load ${bare}`])).conversation.settings.system).toBeUndefined();
  });

  it('counts a question that fails when it is asked again, and a command without its file', async () => {
    const file = join(folder, 'long.json');
    const turns = [
      { role: 'user', content: 'abu '.repeat(1024) },
      { role: 'assistant', content: 'no' },
    ];
    writeFileSync(file, JSON.stringify({ messages: turns }));
    const { shown, failed } = await type([`/load ${file}`, '/retry', '/save']);
    expect(failed).toEqual({ messages: 1, commands: 1 });
    expect(shown).toContain('/save takes a file.');
  });

  it('counts what failed, and forgets a question that could not be answered', async () => {
    const tooLong = 'abu '.repeat(1024);
    const { shown, conversation, failed } = await type([tooLong, question, '/temperature 9']);
    expect(failed).toEqual({ messages: 1, commands: 1 });
    expect(shown).toMatch(/The conversation has \d+ tokens; the model reads 1024 positions\. \/clear/);
    expect(conversation.turns).toMatchObject([{ role: 'user', content: question }, { role: 'assistant' }]);
  });

  it('a message may begin with a slash', () => {
    expect(parseCommand('//etc')).toBeUndefined();
    expect(parseCommand('/max_tokens 70')).toEqual({ name: '/max-tokens', rest: '70' });
  });
});

describe('a blind chat', () => {
  let other: LanguageModel;
  beforeAll(async () => {
    other = await LanguageModel.open(otherTiny(join(folder, 'other')), { dtype: 'float32', reusePrefixes: true });
  });
  afterAll(() => other.dispose());
  const two = (): [ChatModel, ChatModel] => [
    { name: 'a', model },
    { name: 'b', model: other },
  ];

  it('takes responses that are the same for a tie, and says so', async () => {
    const votes = join(folder, 'same.jsonl');
    const models = [
      { name: 'a', model },
      { name: 'b', model },
    ] as const;
    const { shown } = await type([question, '1'], { models, votes });
    expect(shown).toContain('both wrote the same, so it is a tie: kept in ');
    expect(tally(votes, ['a', 'b'])).toEqual({ wins: [0, 0], ties: 1 });
  });

  it('turns votes into preferences that training reads, and counts them', async () => {
    const begun = Date.now() - 1000;
    const votes = join(folder, 'blind.jsonl');
    const { shown } = await type(
      [question, '1', question, '2', question, '=', question, 's', question, 'x', '1', '/results'],
      {
        models: two(),
        votes,
      },
    );
    expect(shown).toContain('1 and 2 name the better response');
    const rows = readFileSync(votes, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(rows).toHaveLength(3);
    expect(rows[0]).toMatchObject({ settings: { temperature: 0, max_tokens: 64, seed: 1 } });
    expect(new Date(rows[0].time).getTime()).toBeGreaterThan(begun);
    const dataset = await openDataset(votes, { shape: 'preference' });
    const read = await dataset.toArray();
    expect(read).toHaveLength(3);
    expect(read[0]?.prompt.at(-1)?.content).toBe(question);
    const counted = tally(votes, ['a', 'b']);
    expect(counted.wins[0] + counted.wins[1]).toBe(3);
    expect(counted.ties).toBe(1);
    expect(describeTally(counted, ['a', 'b'])).toMatch(
      /a \d · b \d · ties 1: a is preferred in \d+ % of 3 \(95 %: \d+ % to \d+ %\)/,
    );
    // The names do not stand beside the responses.
    expect(shown.split('/results')[0]).not.toMatch(/\ba\b ——|—— a\b/);
  });

  it('shows both in either order', async () => {
    const other = join(folder, 'order.jsonl');
    let wins: readonly number[] = [0, 0];
    // The first is named better until each has been first: chance alone would not take so long.
    for (let turns = 0; turns < 40 && Math.min(...wins) === 0; turns++) {
      await type([question, '1'], { models: two(), votes: other });
      wins = tally(other, ['a', 'b']).wins;
    }
    expect(Math.min(...wins)).toBeGreaterThan(0);
  });
});

it('thinking is told apart, across pieces', () => {
  const parts = new ThinkingParts();
  const all = ['a<thi', 'nk>b', 'c</th', 'ink>d<', 'e'].flatMap((piece) => parts.push(piece)).concat(parts.flush());
  const of = (thinking: boolean) =>
    all
      .filter((part) => part.thinking === thinking)
      .map(({ text }) => text)
      .join('');
  expect(of(false)).toBe('ad<e');
  expect(of(true)).toBe('<think>bc</think>');
});

describe.runIf(hasScript)('through a pseudo-terminal', () => {
  it('Ctrl-C stops the response and not the program; Ctrl-D leaves', async () => {
    const args = ['chat', tiny, '--temperature', '1.5', '--max-tokens', '2048'];
    await onTerminal(args, async ({ type, until, ended }) => {
      await until('you>');
      type('What is 4 + 5?\r');
      await until(/\d+ tokens, \d+\/s/);
      type(keys.ctrlC);
      await until('Ctrl-C again');
      type('What is');
      await until('What is');
      type(keys.ctrlC);
      type('/seed 3\r');
      await until('seed: 3');
      type('one \\\r');
      await until('… ');
      type(keys.ctrlC);
      type('/seed 4\r');
      await until('seed: 4');
      type(keys.ctrlD);
      expect(await ended).toBe(0);
    });
  });
});

describe('the command', () => {
  it('opens a run folder, and shows the score of a reward model beside each response', async () => {
    const run = join(folder, 'run');
    cpSync(tiny, join(run, 'final'), { recursive: true });
    writeFileSync(join(run, 'run.json'), JSON.stringify({ name: 'run', command: 'train sft', status: 'finished' }));
    await rewardModel(join(folder, 'judge'));
    const args = ['bin/attune.mjs', 'chat', run, '--reward-model', join(folder, 'judge'), '--temperature', '0'];
    const { stdout, stderr, status } = spawnSync(process.execPath, args, {
      cwd: root,
      input: `${question}\n`,
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    expect(stdout).toContain('<answer>');
    expect(stdout + stderr).toMatch(/score -?\d+\.\d+/);
  });

  it.each([
    [2, 'a command of a pipe was wrong', ''],
    [1, 'a message of a pipe got no response', `${'abu '.repeat(1024)}\n`],
  ])('ends with exit code %i if %s, and says why on standard error', (code, _, message) => {
    const args = ['bin/attune.mjs', 'chat', tiny, '--temperature', '0'];
    const input = `/temperature 9\n/tmeperature 1\n${message}${question}\n`;
    const { stdout, stderr, status } = spawnSync(process.execPath, args, { cwd: root, input, encoding: 'utf8' });
    expect(status, stderr).toBe(code);
    expect(stderr).toMatch(
      /There is no \/tmeperature\. Did you mean \/temperature\? The commands are \/system, .*\/exit;/,
    );
    expect(stderr).toContain('/temperature takes a number');
    expect(stdout).not.toContain('/temperature takes');
    expect(stdout).toContain('<answer>');
  });
});
