import { expect, it } from 'vitest';
import { withinTime } from './time-limit.ts';

const forEver = () => new Promise<never>(() => {});
const tooLate = () => new Error('too late');

it('ends at the limit, and with its signal, also where that was aborted before', async () => {
  await expect(withinTime(() => 7, { timeLimitMs: 1000, tooLate })).resolves.toBe(7);
  await expect(withinTime(forEver, { timeLimitMs: 10, tooLate })).rejects.toThrow('too late');
  const signal = AbortSignal.abort(new Error('stopped'));
  await expect(withinTime(forEver, { timeLimitMs: 1000, tooLate, signal })).rejects.toThrow('stopped');
  const later = new AbortController();
  const waiting = withinTime(forEver, { timeLimitMs: 60_000, tooLate, signal: later.signal });
  later.abort(new Error('stopped later'));
  await expect(waiting).rejects.toThrow('stopped later');
});
