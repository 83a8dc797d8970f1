/** Numbers, times and states as people read them, with the exact value on hover. */
import type { RunState } from '../../src/studio/api.ts';
import { ago, bytes, count, duration, exact, moment, percent, short } from '../format/numbers.ts';

type Given = number | null | undefined;

interface NumProps {
  value: Given;
  kind?: 'short' | 'percent' | 'count';
  /** What is smaller is rounding, and shown as 0. */
  least?: number;
}

export function Num({ value: given, kind = 'short', least = 0 }: NumProps) {
  const value = typeof given === 'number' && Math.abs(given) < least ? 0 : given;
  const text = kind === 'percent' ? percent(value) : kind === 'count' ? count(value) : short(value);
  return (
    <span class="number" title={exact(given)}>
      {text}
    </span>
  );
}

export function Size({ value }: { value: Given }) {
  return (
    <span class="number" title={value === null || value === undefined ? '' : `${count(value)} bytes`}>
      {bytes(value)}
    </span>
  );
}

export function Time({ at }: { at: number | null | undefined }) {
  return <time title={moment(at)}>{ago(at)}</time>;
}

export function Took({ seconds }: { seconds: Given }) {
  return (
    <span class="number" title={seconds === null || seconds === undefined ? '' : `${seconds} s`}>
      {duration(seconds)}
    </span>
  );
}

const meanings: Record<RunState, string> = {
  running: 'A process is writing it now.',
  finished: 'It took all its steps.',
  interrupted: 'It was stopped; it saved and can be resumed.',
  failed: 'It ended with an error.',
  crashed: 'It says that it runs, and no process does.',
  unknown: 'The folder does not say.',
};

export function State({ state }: { state: RunState }) {
  return (
    <span class={`state ${state}`} title={meanings[state]}>
      {state}
    </span>
  );
}
