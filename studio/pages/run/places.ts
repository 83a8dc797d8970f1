/** The steps whose rollouts show what a signal tells of: before it, where it happened, now. */
import type { SignalNote } from '../../../src/studio/api.ts';
import type { Curve } from '../../wire/curves.ts';
import { steepestFall } from './steepest.ts';

export interface Place {
  step: number;
  what: string;
}

export function placesOf({ kind, step, before }: SignalNote, reward: Curve | undefined): Place[] {
  const fall = kind === 'falling-reward' && reward ? steepestFall(reward) : undefined;
  const all: Place[] = [
    // A window that holds the fall itself has no step before it.
    ...(before === undefined || (fall && before >= fall.step)
      ? []
      : [{ step: before, what: fall === undefined ? '(before it)' : '(at its best)' }]),
    ...(fall === undefined ? [] : [{ step: fall.before, what: '(before it fell most)' }]),
    ...(fall === undefined ? [] : [{ step: fall.step, what: '(where it fell most)' }]),
    { step, what: before === undefined ? '' : '(now)' },
  ];
  // Of two places at one step the later word says more.
  return all.filter((place, i) => !all.slice(i + 1).some((later) => later.step === place.step));
}
