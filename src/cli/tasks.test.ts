import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { UserError } from '../errors.ts';
import { allTasks, task } from '../tasks/index.ts';
import { register } from './tasks.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-tasks-'));
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true, force: true });
});

async function run(...args: string[]): Promise<string> {
  let output = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    output += text;
    return true;
  });
  const program = new Command('attune').exitOverride();
  register(program);
  await program.parseAsync(['tasks', ...args], { from: 'user' });
  vi.mocked(process.stdout.write).mockRestore();
  return output;
}

function written(rows: unknown[]): string {
  const file = join(folder, 'rows.jsonl');
  writeFileSync(file, rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'));
  return file;
}

describe('attune tasks', () => {
  it('lists every task', async () => {
    const output = await run();
    for (const { name, summary } of allTasks) expect(output).toMatch(new RegExp(`^${name} +1-5 +${summary}$`, 'm'));
    expect(JSON.parse(await run('list', '--json'))).toHaveLength(allTasks.length);
  });

  it('shows samples with solutions', async () => {
    const output = await run('show', 'chain_sum', '--difficulty', '1', '--seed', '3', '--count', '2');
    const example = task('chain_sum').generate(4, 1);
    expect(output).toContain(example.prompt);
    expect(output).toContain('difficulty 1, seed 4');
    expect((await run('show', 'chain-sum', '--json')).trim().split('\n')).toHaveLength(5);
    expect(await run('show', 'chain_sum:1', '--seed', '3', '--count', '2')).toBe(output);
  });

  it('scores a file by task', async () => {
    const sum = task('chain_sum').generate(5, 1);
    const sort = task('number_sorting').generate(5, 1);
    const file = written([
      { task: 'chain_sum', seed: 5, difficulty: 1, response: `<think>x</think><answer>${sum.answer}</answer>` },
      { task: 'chain_sum', seed: 5, difficulty: 1, response: '99' },
      '',
      { ...sort, seed: undefined, response: sort.answer },
    ]);
    const scores = JSON.parse(await run('score', file, '--json'));
    expect(scores.tasks).toEqual([
      { task: 'chain_sum', rows: 2, score: 0.5, correct: 0.5, format: 0.5 },
      { task: 'number_sorting', rows: 1, score: 1, correct: 1, format: 0 },
    ]);
    expect(scores.total.rows).toBe(3);
    expect(await run('score', file)).toMatch(/^chain_sum +2 +50\.0 % +0\.500 +0\.500$/m);
  });

  it('generates files of each kind', async () => {
    for (const [kind, field] of [
      ['sft', 'messages'],
      ['preference', 'rejected'],
      ['graded', 'correct'],
      ['steps', 'steps'],
    ] as const) {
      const out = join(folder, 'deep', `${kind}.jsonl`);
      expect(await run('generate', '--kind', kind, '--tasks', 'all:1-2', '--count', '20', '--out', out)).toContain(
        '20',
      );
      const rows = readFileSync(out, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
      expect(rows).toHaveLength(20);
      for (const row of rows) expect(row).toHaveProperty(field);
    }
  });

  it('says when there are few different problems', async () => {
    const told: string[] = [];
    const out = join(folder, 'few.jsonl');
    const spy = vi.spyOn(process.stderr, 'write').mockImplementation((text) => told.push(String(text)) > 0);
    const few = ['generate', '--kind', 'sft', '--tasks', 'gcd:1', '--part', 'test', '--count', '2000'];
    expect(await run(...few, '--out', out)).toMatch(/2000 sft rows in .*, \d+ different prompts/);
    spy.mockRestore();
    expect(told.join('')).toMatch(/Attention: only \d+ of 2,000 prompts are different/);
  });

  it('explains mistakes', async () => {
    const fails = async (message: RegExp, ...args: string[]) => {
      const failure = await run(...args).catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(UserError);
      expect((failure as Error).message).toMatch(message);
    };
    await fails(/Did you mean "gcd"/, 'show', 'gdc');
    await fails(/from 1 to 5, not 7/, 'show', 'gcd', '--difficulty', '7');
    await fails(/from 1 to 5, not 7/, 'show', 'gcd:7');
    await fails(/gcd:1 names a difficulty already/, 'show', 'gcd:1', '--difficulty', '1');
    await fails(/--count: expected a number, got "x"/, 'show', 'gcd', '--count', 'x');
    await fails(/missing.jsonl: no such file/, 'score', join(folder, 'missing.jsonl'));
    await fails(
      /rows\.jsonl:2 is not JSON/,
      'score',
      written([{ task: 'gcd', seed: 1, difficulty: 1, response: '' }, '{']),
    );
    await fails(/:1: the row has no "task"/, 'score', written([{ response: '1' }]));
    await fails(/:1: the row has no "response"/, 'score', written([{ task: 'gcd', seed: 1, difficulty: 1 }]));
    await fails(/"seed" and "difficulty"/, 'score', written([{ task: 'gcd', response: '1' }]));
    await fails(
      /"meta" is not that of a countdown/,
      'score',
      written([{ task: 'countdown', answer: '1', meta: 3, response: '1+1' }]),
    );
    await fails(/no rows to score/, 'score', written([]));
    await fails(
      /--kind: expected one of sft.*got "stf".*Did you mean "sft"/,
      'generate',
      '--kind',
      'stf',
      '--tasks',
      'gcd',
    );
    await fails(
      /--test-share: expected a number at most 1, got 2/,
      'generate',
      '--kind',
      'sft',
      '--tasks',
      'gcd',
      '--test-share',
      '2',
    );
    await fails(/Unknown task "gdc"/, 'generate', '--kind', 'sft', '--tasks', 'gdc', '--out', join(folder, 'x'));
    await fails(/--out .* is a folder; name a file/, 'generate', '--kind', 'sft', '--tasks', 'gcd', '--out', folder);
  });
});

it('leaves no hidden file behind where Ctrl-C stops it in the middle', async () => {
  const bin = join(import.meta.dirname, '../../bin/attune.mjs');
  const many = ['tasks', 'generate', '--kind', 'sft', '--tasks', 'gcd', '--count', '1e8'];
  const child = spawn(process.execPath, [bin, ...many, '--out', join(folder, 'x.jsonl')], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  const partial = `.x.jsonl.${child.pid}.part`;
  // Whether the folder can be written to is tried first, by a folder that lives for microseconds.
  while (!existsSync(join(folder, partial)) && child.exitCode === null) await setTimeout(20);
  expect(readdirSync(folder)).toEqual([partial]);
  child.kill('SIGINT');
  expect((await ended)[1]).toBe('SIGINT');
  expect(readdirSync(folder)).toEqual([]);
});
