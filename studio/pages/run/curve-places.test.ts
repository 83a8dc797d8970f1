import { expect, it } from 'vitest';
import { keepPlaces } from './curve-places.ts';

const group = (title: string, ...panels: string[]) => ({
  title,
  panels: panels.map((each) => ({ title: each })),
  same: [],
});
const written = (groups: ReturnType<typeof keepPlaces>) =>
  groups.map(({ title, panels }) => `${title}: ${panels.map((panel) => panel.title).join(' ')}`);

it('a panel that comes later comes last, and the rest stay', () => {
  const places = new Map<string, string>();
  expect(written(keepPlaces([group('Overview', 'reward', 'kl'), group('Loss', 'loss')], places))).toEqual([
    'Overview: reward kl',
    'Loss: loss',
  ]);
  const grown = [group('Overview', 'accuracy', 'reward', 'kl'), group('Loss', 'loss'), group('Speed', 'seconds')];
  expect(written(keepPlaces(grown, places))).toEqual([
    'Overview: reward kl',
    'Loss: loss',
    'Came later: accuracy seconds',
  ]);
  expect(written(keepPlaces([...grown, group('More', 'x')], places)).at(-1)).toBe('Came later: accuracy seconds x');
});
