import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { onInterrupt } from './interrupt.ts';

class FakeProcess extends EventEmitter {
  readonly codes: number[] = [];
  exit(code: number): void {
    this.codes.push(code);
  }
}

describe('onInterrupt', () => {
  it('aborts on the first Ctrl-C and leaves on the second', () => {
    const source = new FakeProcess();
    const told: string[] = [];
    const interrupt = onInterrupt((name) => told.push(name), source);
    source.emit('SIGINT', 'SIGINT');
    expect(interrupt.signal.aborted).toBe(true);
    expect(interrupt.signal.reason).toBe('SIGINT');
    expect(source.codes).toEqual([]);
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
