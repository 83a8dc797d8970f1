import { describe, expect, it } from 'vitest';
import { culpritOf, type EndedRank, verdictOn } from './verdict.ts';

const rank = (number: number, code: number | null, text?: string, errors: string[] = []): EndedRank => ({
  ...{ rank: number, pid: 100 + number, errors },
  ended: code === null ? { code, signal: 'SIGKILL' } : { code, signal: null },
  ...(text === undefined ? {} : { error: { text, code: code ?? 1 } }),
});
const judged = (...ranks: EndedRank[]) => verdictOn(culpritOf(ranks) as EndedRank, ranks);

describe('a mistake of the user', () => {
  it('is said once, without a rank, where several ranks meet it', () => {
    const text = 'attune: nowhere.jsonl: no such file or folder.';
    expect(judged(rank(0, 2, text), rank(1, 2, text))).toMatchObject({ code: 2, mistake: text, others: [] });
    expect(judged(rank(4, 2, text), rank(5, 2, text))).toMatchObject({ code: 2, mistake: text, others: [] });
  });

  it('is said once where rank 0 met it first and told the others', () => {
    const text = 'attune: nowhere.jsonl: no such file or folder.';
    const told = rank(1, 1, `attune: Rank 0 has ended the run: ${text}`);
    expect(judged(rank(0, 2, text), told)).toMatchObject({ code: 2, mistake: text, others: [] });
  });

  it('is said once where a rank of another machine has met it', () => {
    const told = 'attune: Rank 0 has ended the run: the run exists.';
    expect(judged(rank(2, 2, told))).toMatchObject({ code: 2, mistake: told });
  });

  it('names the rank where only one has met it', () => {
    const found = judged(
      rank(0, 1, 'attune: Rank 1 has ended the run: no such file.'),
      rank(1, 2, 'attune: no such file.'),
    );
    expect(found).toEqual({
      code: 2,
      failure: 'rank 1 (process 101) ended with exit code 2: no such file',
      others: [],
    });
  });

  it('shows what ranks say differently with their names', () => {
    const found = judged(rank(0, 2, 'attune: /data is full.'), rank(1, 2, 'attune: /data is not there.'));
    expect(found).toMatchObject({
      mistake: 'attune: /data is full.',
      others: ['[rank 1] attune: /data is not there.'],
    });
  });
});

describe('a failure', () => {
  it('is that of the rank that was killed, whatever the others say', () => {
    const { code, failure, mistake } = judged(rank(0, 1, 'attune: all_reduce failed on rank 0 of 2'), rank(1, null));
    expect({ code, mistake }).toEqual({ code: 1, mistake: undefined });
    expect(failure).toMatch(/^rank 1 \(process 101\) was killed \(SIGKILL/);
  });

  it('is told once where all ranks have the same', () => {
    const text = 'attune: the hub cannot be asked.';
    expect(judged(rank(0, 1, text), rank(1, 1, text))).toEqual({
      ...{ code: 1, others: [] },
      failure: 'rank 0 (process 100) ended with exit code 1: the hub cannot be asked',
    });
  });

  it('is that of a rank that failed and was slow to end, not that of those who heard of it', () => {
    const slow = { ...rank(0, null, 'attune: the disk is full.'), wasEnded: true };
    const stopped = { ...rank(2, null), wasEnded: true };
    const found = judged(slow, rank(1, 1, 'attune: Rank 0 has ended the run: the disk is full.'), stopped);
    expect(found).toEqual({
      ...{ code: 1, others: [] },
      failure: 'rank 0 (process 100) ended with exit code 1: the disk is full',
    });
  });

  it('is taken from the last words of a rank that could tell nothing', () => {
    const found = judged(rank(0, 0), rank(1, 134, undefined, ['terminate called', '  (core dumped)']));
    expect(found.failure).toBe('rank 1 (process 101) ended with exit code 134: terminate called');
  });
});
