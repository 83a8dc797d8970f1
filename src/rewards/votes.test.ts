import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { recordVote, tally } from './votes.ts';

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
});
