import { EventEmitter } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ONE_KEYSTROKE_MS, onInterrupt } from './interrupt.ts';

class FakeProcess extends EventEmitter {
  readonly codes: number[] = [];
  exit(code: number): void {
    this.codes.push(code);
  }
}

afterEach(() => void vi.useRealTimers());

describe('onInterrupt', () => {
  it('aborts on the first Ctrl-C and leaves on the second', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const source = new FakeProcess();
    const told: string[] = [];
    const interrupt = onInterrupt((name) => told.push(name), source);
    source.emit('SIGINT', 'SIGINT');
    expect(interrupt.signal.aborted).toBe(true);
    expect(interrupt.signal.reason).toBe('SIGINT');
    source.emit('SIGINT', 'SIGINT'); // the same one, passed on by npm
    expect(source.codes).toEqual([]);
    vi.advanceTimersByTime(ONE_KEYSTROKE_MS + 1);
    source.emit('SIGINT', 'SIGINT');
    expect(source.codes).toEqual([130]);
    expect(told).toEqual(['SIGINT']);
    interrupt.dispose();
    expect(source.listenerCount('SIGINT')).toBe(0);
  });

  it('saves once however often SIGTERM is repeated', () => {
    const source = new FakeProcess();
    const told: string[] = [];
    using interrupt = onInterrupt((name) => told.push(name), source);
    source.emit('SIGTERM', 'SIGTERM');
    source.emit('SIGTERM', 'SIGTERM');
    expect(interrupt.signal.reason).toBe('SIGTERM');
    expect(source.codes).toEqual([]);
    expect(told).toEqual(['SIGTERM']);
  });
});
