/** Guess a word. Every letter of a guess is marked as in its place, elsewhere in the word, or absent. */
import type { Random } from '../../random.ts';
import { defineEnvironment } from '../parts/environment.ts';
import { said } from '../parts/tags.ts';
import { words } from './words.ts';

/** Word length and number of guesses, by difficulty. */
const levels = [
  { letters: 3, guesses: 8 },
  { letters: 4, guesses: 7 },
  { letters: 4, guesses: 6 },
  { letters: 5, guesses: 6 },
  { letters: 5, guesses: 5 },
] as const;

const gameOf = (random: Random, difficulty: number) => {
  const level = levels[difficulty - 1] as (typeof levels)[number];
  const list = words[level.letters];
  return { ...level, list, word: random.pick(list) };
};

/** `+` for a letter in its place, `?` for one elsewhere in the word, `-` for one that is absent or used up. */
export function marks(guess: string, word: string): string {
  const left = [...word].filter((letter, i) => letter !== guess[i]);
  return [...guess]
    .map((letter, i) => {
      if (letter === word[i]) return '+';
      const at = left.indexOf(letter);
      if (at < 0) return '-';
      left.splice(at, 1);
      return '?';
    })
    .join('');
}

const placed = (marked: string) => [...marked].filter((mark) => mark === '+').length / marked.length;

export const wordle = defineEnvironment({
  name: 'wordle',
  summary: 'a hidden word from marked letters: + right, ? elsewhere, - not in it',
  levels: levels.length,
  parts: ['word', 'letters'],
  judged: true,
  start({ random, difficulty }) {
    const { letters, guesses, word } = gameOf(random, difficulty);
    let rest: number = guesses;
    let best = 0;
    /** Up to 0.2 at the end of a lost game, for letters in place. */
    const lost = () => ({ word: 0, letters: 0.2 * best });
    return {
      messages: `Guess my word of ${letters} letters. I mark each letter: + right place, ? other place, - not in it. ${rest} left.`,
      key: word,
      step(response) {
        const guessed = said(response)
          .toLowerCase()
          .match(/[a-z]+/g)
          ?.findLast((each) => each.length === letters);
        rest--;
        if (guessed === word)
          return { observation: 'Right.', parts: { word: 1, letters: 0.2 }, done: true, success: true };
        const marked = guessed && marks(guessed, word);
        if (marked) best = Math.max(best, placed(marked));
        if (rest <= 0) return { observation: `No, it was ${word}.`, parts: lost(), done: true, success: false };
        if (!marked) return { observation: `One word of ${letters} letters, please. ${rest} left.` };
        return { observation: `${guessed} ${marked} ${rest} left.` };
      },
    };
  },
  demonstrate({ random, difficulty, skill }) {
    const { guesses, list, word } = gameOf(random, difficulty);
    const turns: string[] = [];
    let possible: readonly string[] = list;
    while (turns.length < guesses && turns.at(-1) !== word) {
      const turn = random.chance(skill) ? tellingWord(list, possible) : random.pick(list);
      turns.push(turn);
      const marked = marks(turn, word);
      possible = possible.filter((each) => marks(turn, each) === marked);
    }
    return turns;
  },
});

const telling = new Map<readonly string[], string>();

/** The guess whose marks best separate the possible words. Ties go to a possible word. */
function tellingWord(list: readonly string[], possible: readonly string[]): string {
  const known = telling.get(possible);
  if (known !== undefined) return known;
  if (possible.length <= 2) return possible[0] as string;
  let [best, most] = [possible[0] as string, 0];
  for (const each of [...possible, ...list]) {
    const told = new Set(possible.map((word) => marks(each, word))).size;
    if (told > most) [best, most] = [each, told];
  }
  // The first guess of a game is always the same, so it is cached.
  if (possible === list) telling.set(list, best);
  return best;
}
