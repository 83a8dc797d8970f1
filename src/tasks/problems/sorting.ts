/** Order: number_sorting and word_sorting. Worked by picking what comes next from what is left. */
import { numbersIn, readLine, scoreItems } from '../parts/answer.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';
import { wordsOfLength } from '../parts/words.ts';

/** Selection sort, one step per line. A slip picks an item that is not the next; the rest is sorted correctly. */
function pickInOrder<T extends string | number>(pen: Pen, items: readonly T[], before: (a: T, b: T) => boolean): T[] {
  const sorted: T[] = [];
  let left = [...items];
  while (left.length > 1) {
    const candidates = left;
    const next = pen.choice(
      candidates.reduce((a, b) => (before(b, a) ? b : a)),
      candidates,
    );
    left = left.filter((item) => item !== next);
    sorted.push(next);
    pen.say(`${next} left ${left.join(' ')}`);
  }
  sorted.push(...left);
  pen.say(sorted.join(' '));
  return sorted;
}

export const numberSorting = defineTask<{ numbers: number[]; descending: boolean }>({
  name: 'number_sorting',
  summary: 'sort numbers up or down',
  pose(random, difficulty) {
    const count = level(difficulty, [3, 4, 6, 8, 10]);
    const top = level(difficulty, [9, 20, 99, 999, 9999]);
    const chosen = new Set<number>();
    while (chosen.size < count) chosen.add(random.int(0, top));
    const meta = { numbers: [...chosen], descending: random.chance(0.5) };
    const order = meta.descending ? 'largest to smallest' : 'smallest to largest';
    return {
      prompt: `Sort from ${order}: ${meta.numbers.join(' ')}. Answer with the numbers separated by spaces.`,
      meta,
    };
  },
  work: ({ numbers, descending }, pen) => pickInOrder(pen, numbers, (a, b) => (descending ? a > b : a < b)).join(' '),
  check: (response, answer) =>
    scoreItems(numbersIn((readLine(response) ?? '').replaceAll(',', ' ')), answer.split(' ')),
});

export const wordSorting = defineTask<{ words: string[]; descending: boolean }>({
  name: 'word_sorting',
  summary: 'sort words by the alphabet',
  pose(random, difficulty) {
    const count = level(difficulty, [3, 4, 5, 7, 10]);
    const [shortest, longest] = level(difficulty, [
      [3, 4],
      [3, 5],
      [4, 6],
      [5, 7],
      [5, 8],
    ] as const);
    const meta = { words: random.sample(wordsOfLength(shortest, longest), count), descending: random.chance(0.5) };
    const order = meta.descending ? 'reverse alphabetical' : 'alphabetical';
    return {
      prompt: `Sort in ${order} order: ${meta.words.join(' ')}. Answer with the words separated by spaces.`,
      meta,
    };
  },
  work: ({ words, descending }, pen) => pickInOrder(pen, words, (a, b) => (descending ? a > b : a < b)).join(' '),
  check(response, answer) {
    const words = (readLine(response) ?? '').toLowerCase().split(/[\s,]+/);
    return scoreItems(words, answer.split(' '));
  },
});
