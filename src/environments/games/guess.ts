/**
 * Guess a number: the environment says whether it is higher or lower. There are 2^n − 1 numbers and n guesses, so only
 * binary search always wins.
 */
import type { Random } from '../../random.ts';
import { defineEnvironment } from '../parts/environment.ts';
import { said } from '../parts/tags.ts';

interface Game {
  lowest: number;
  highest: number;
  guesses: number;
  number: number;
}

function game(random: Random, difficulty: number): Game {
  const guesses = difficulty + 2;
  const span = 2 ** guesses - 1;
  const lowest = difficulty < 5 ? random.int(10, 100 - span) : random.int(100, 1000 - span);
  const highest = lowest + span - 1;
  return { lowest, highest, guesses, number: random.int(lowest, highest) };
}

const left = (guesses: number) => `${guesses} ${guesses === 1 ? 'guess' : 'guesses'} left.`;

export const guess = defineEnvironment({
  name: 'guess',
  summary: 'a number from higher and lower; only halving the range always finds it',
  levels: 5,
  judged: true,
  start({ random, difficulty }) {
    const { lowest, highest, guesses, number } = game(random, difficulty);
    let rest = guesses;
    return {
      messages: `My number is from ${lowest} to ${highest}. Guess it. ${left(guesses)}`,
      key: `${lowest}-${highest}: ${number}`,
      step(response) {
        const guessed = Number(said(response).match(/\d+/g)?.at(-1) ?? Number.NaN);
        if (guessed === number) return { observation: 'Right.', reward: 1, done: true, success: true };
        rest--;
        if (rest <= 0) return { observation: `No, it was ${number}.`, done: true, success: false };
        if (guessed < lowest || guessed > highest || Number.isNaN(guessed))
          return { observation: `A number from ${lowest} to ${highest}, please. ${left(rest)}` };
        return { observation: `${guessed < number ? 'Higher.' : 'Lower.'} ${left(rest)}` };
      },
    };
  },
  demonstrate({ random, difficulty, skill }) {
    const { lowest, highest, guesses, number } = game(random, difficulty);
    const turns: number[] = [];
    let [from, to] = [lowest, highest];
    while (turns.length < guesses && turns.at(-1) !== number) {
      const turn = random.chance(skill) ? Math.floor((from + to) / 2) : random.int(lowest, highest);
      turns.push(turn);
      // A random guess may give no new information.
      if (turn < number) from = Math.max(from, turn + 1);
      else to = Math.min(to, turn - 1);
    }
    return turns.map(String);
  },
});
