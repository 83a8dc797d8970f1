/** Letters: letter_counting, spell_backward, palindrome and caesar_cipher. */
import { readLine, scoreItems, scoreLine, scoreNumber } from '../parts/answer.ts';
import { misspelling } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';
import { madeUpWord, wordsOfLength } from '../parts/words.ts';

const alphabet = 'abcdefghijklmnopqrstuvwxyz';

export const letterCounting = defineTask<{ words: string[]; letter: string }>({
  name: 'letter_counting',
  summary: 'count how often a letter appears',
  pose(random, difficulty) {
    const [count, shortest, longest] = level(difficulty, [
      [1, 3, 5],
      [1, 6, 8],
      [2, 5, 7],
      [4, 5, 8],
      [7, 5, 8],
    ] as const);
    const words = random.sample(wordsOfLength(shortest, longest), count);
    const letter = random.chance(0.85) ? random.pick([...words.join('')]) : random.pick([...'aeioulnrst']);
    return {
      prompt: `How many times is the letter ${letter} in "${words.join(' ')}"? Answer with a number.`,
      meta: { words, letter },
    };
  },
  work({ words, letter }, pen) {
    let count = 0;
    for (const word of words) {
      const places = [...word].flatMap((found, i) => (found === letter ? [i] : []));
      // The slip is one letter missed or one seen that is not there.
      const slip = pen.value(-1, (random) => random.int(0, word.length - 1));
      const tally = [...word].map((found, i) => {
        if (places.includes(i) !== (slip === i)) count++;
        return `${found}${count}`;
      });
      pen.say(tally.join(' '));
    }
    pen.say(`count ${count}`);
    return String(count);
  },
  check: scoreNumber,
});

export const spellBackward = defineTask<{ text: string }>({
  name: 'spell_backward',
  summary: 'spell a word from its last letter to its first',
  pose(random, difficulty) {
    const [shortest, longest] = level(difficulty, [
      [3, 3],
      [4, 5],
      [6, 7],
      [8, 9],
      [10, 12],
    ] as const);
    const text = madeUpWord(random, random.int(shortest, longest));
    return { prompt: `Spell "${text}" backward. Answer with one word.`, meta: { text } };
  },
  work({ text }, pen) {
    pen.note([...text].join(' '));
    const right = [...text].reverse().join('');
    const backward = pen.value(right, (random) => misspelling(random, right));
    pen.say([...backward].join(' '));
    pen.say(backward);
    return backward;
  },
  check: (response, answer) => scoreItems([...(readLine(response)?.toLowerCase() ?? '')], [...answer]),
});

export const palindrome = defineTask<{ letters: string }>({
  name: 'palindrome',
  summary: 'arrange letters so that they read the same both ways',
  pose(random, difficulty) {
    const length = level(difficulty, [3, 5, 7, 9, 12]) + (difficulty === 1 ? 0 : random.int(0, 1));
    const half = Array.from({ length: Math.floor(length / 2) }, () => random.pick([...alphabet]));
    const middle = length % 2 === 1 ? [random.pick([...alphabet])] : [];
    const letters = random.shuffle([...half, ...half, ...middle]);
    return {
      prompt: `Arrange the letters ${letters.join(' ')} into a palindrome, using each once. Answer with one word.`,
      meta: { letters: letters.join('') },
    };
  },
  work({ letters }, pen) {
    const sorted = [...letters].sort();
    const half: string[] = [];
    let middle = '';
    for (let i = 0; i < sorted.length; i++) {
      if (sorted[i] === sorted[i + 1]) half.push(sorted[i++] ?? '');
      else middle = sorted[i] ?? '';
    }
    pen.say(`pairs ${half.join(' ')}`);
    if (middle !== '') pen.say(`middle ${middle}`);
    const right = [...half, middle, ...half.toReversed()].join('');
    const built = pen.value(right, (random) => misspelling(random, right, letters));
    pen.say(built);
    return built;
  },
  check(response, _answer, { letters }) {
    const word = readLine(response)?.toLowerCase().replaceAll(' ', '') ?? '';
    const sameLetters = [...word].sort().join('') === [...letters].sort().join('');
    const bothWays = word === [...word].reverse().join('');
    if (sameLetters) return bothWays ? 1 : 0.1;
    return bothWays && word.length === letters.length ? 0.1 : 0;
  },
});

export const caesarCipher = defineTask<{ text: string; shift: number }>({
  name: 'caesar_cipher',
  summary: 'shift letters along the alphabet',
  pose(random, difficulty) {
    const [words, length, most] = level(difficulty, [
      [1, 3, 3],
      [1, 5, 5],
      [2, 5, 9],
      [3, 6, 13],
      [4, 8, 25],
    ] as const);
    const text = Array.from({ length: words }, () => madeUpWord(random, length)).join(' ');
    const shift = random.int(1, most) * (difficulty > 1 && random.chance(0.5) ? -1 : 1);
    const way = shift > 0 ? 'forward' : 'back';
    const form = words === 1 ? 'one word' : `${words} words`;
    return {
      prompt: `Shift each letter of "${text}" ${way} by ${Math.abs(shift)} (z and a are neighbours). Answer with ${form}.`,
      meta: { text, shift },
    };
  },
  work({ text, shift }, pen) {
    const moved = text.split(' ').map((word) => {
      const right = [...word].map((letter) => shifted(letter, shift));
      const slip = pen.value(-1, (random) => random.int(0, word.length - 1));
      // One letter is moved by one too few.
      if (slip >= 0) right[slip] = shifted(right[slip] ?? 'a', -Math.sign(shift));
      pen.say([...word].map((letter, i) => `${letter}-${right[i]}`).join(' '));
      return right.join('');
    });
    pen.say(moved.join(' '));
    return moved.join(' ');
  },
  check(response, answer) {
    if (scoreLine(response, answer) === 1) return 1;
    return scoreItems([...(readLine(response)?.toLowerCase() ?? '')], [...answer]);
  },
});

function shifted(letter: string, shift: number): string {
  return alphabet[(alphabet.indexOf(letter) + shift + 52) % 26] ?? '';
}
