import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { recordVote, tally, voter } from './votes.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-votes-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('votes', () => {
  it('keeps a vote apart from the row before it', () => {
    const path = join(folder, 'votes.jsonl');
    writeFileSync(path, JSON.stringify({ prompt: 'p', chosen: 'a', rejected: 'b' }));
    const settings = { temperature: 0, maxTokens: 8, seed: 1 };
    recordVote(path, { prompt: [], responses: ['x', 'y'], models: ['m', 'n'], winner: 0, settings });
    expect(readFileSync(path, 'utf8').trimEnd().split('\n')).toHaveLength(2);
    expect(tally(path, ['m', 'n']).wins).toEqual([1, 0]);
  });

  it('takes two responses that are the same for a tie', () => {
    const path = join(folder, 'same.jsonl');
    const settings = { temperature: 0, maxTokens: 8, seed: 1 };
    const file = recordVote(path, { prompt: [], responses: ['x', 'x'], models: ['m', 'n'], winner: 1, settings });
    expect([file, existsSync(path)]).toEqual([join(folder, 'same.ties.jsonl'), false]);
    expect(tally(path, ['m', 'n'])).toEqual({ wins: [0, 0], ties: 1 });
  });

  it('names a voter whose user id has no name', () => {
    const spy = vi.spyOn(os, 'userInfo').mockImplementation(() => {
      throw new Error('ENOENT');
    });
    syncBuiltinESMExports();
    expect(voter()).toBe(`uid ${process.getuid?.()}`);
    spy.mockRestore();
    syncBuiltinESMExports();
  });
});
