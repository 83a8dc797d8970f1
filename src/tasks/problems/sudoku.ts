/** mini_sudoku: 4x4 grids that can be filled one certain cell after another, without guessing. */

import type { Random } from '../../random.ts';
import { afterThinking, taggedAnswer } from '../parts/answer.ts';
import { defineTask, level } from '../parts/task.ts';

/** Sixteen cells, row by row; 0 is a blank. */
type Grid = number[];

/** Sixteen digits, spaced or ruled in any way, with no other digit before or after them. */
const gridAtEnd = /(?:^|[^\d-])((?:[1-4][\s,;|]{0,9}){16})[^\d\s]?\s*$/;
const longestGrid = 400;

export const miniSudoku = defineTask<{ grid: Grid }>({
  name: 'mini_sudoku',
  summary: 'fill a 4x4 sudoku',
  pose(random, difficulty) {
    const blanks = level(difficulty, [2, 4, 6, 8, 10]);
    let grid: Grid | undefined;
    while (grid === undefined) grid = carve(random, blanks);
    const rows = rowsOf(grid).map((row) => row.replaceAll('0', '_').split('').join(' '));
    return {
      prompt: `Fill the grid so that each row, column and 2x2 box has 1 2 3 4:\n${rows.join('\n')}\nAnswer with four rows of four digits.`,
      meta: { grid },
    };
  },
  work({ grid }, pen) {
    const filled = [...grid];
    const solution = completed(grid) ?? grid;
    for (let blanks = grid.filter((digit) => digit === 0).length; blanks > 0; blanks--) {
      // After a slip there may be no certain cell left; then the first blank gets its right digit.
      const cell = certainCell(filled) ?? filled.indexOf(0);
      const right = candidates(filled, cell)[0] ?? solution[cell] ?? 1;
      filled[cell] = pen.choice(right, [1, 2, 3, 4]);
      pen.say(`row ${Math.floor(cell / 4) + 1} col ${(cell % 4) + 1} is ${filled[cell]}`);
    }
    const answer = rowsOf(filled).join(' ');
    pen.say(answer);
    return answer;
  },
  check(response, _answer, { grid }) {
    const text = taggedAnswer(response) ?? afterThinking(response).slice(-longestGrid);
    const answer = (gridAtEnd.exec(text)?.[1]?.match(/\d/g) ?? []).map(Number);
    if (answer.length !== 16 || grid.some((given, i) => given !== 0 && given !== answer[i])) return 0;
    if (isComplete(answer)) return 1;
    const solution = completed(grid) ?? [];
    const blanks = grid.flatMap((given, i) => (given === 0 ? [i] : []));
    return (0.5 * blanks.filter((i) => solution[i] === answer[i]).length) / blanks.length;
  },
});

function rowsOf(grid: Grid): string[] {
  return [0, 4, 8, 12].map((start) => grid.slice(start, start + 4).join(''));
}

/** The other cells of a cell's row, column and box. */
function peers(cell: number): number[] {
  const [row, column] = [Math.floor(cell / 4), cell % 4];
  return Array.from({ length: 16 }, (_, i) => i).filter((i) => {
    const [r, c] = [Math.floor(i / 4), i % 4];
    const sameBox = Math.floor(r / 2) === Math.floor(row / 2) && Math.floor(c / 2) === Math.floor(column / 2);
    return i !== cell && (r === row || c === column || sameBox);
  });
}

const peersOf = Array.from({ length: 16 }, (_, cell) => peers(cell));

function candidates(grid: Grid, cell: number): number[] {
  return [1, 2, 3, 4].filter((digit) => !peersOf[cell]?.some((peer) => grid[peer] === digit));
}

function certainCell(grid: Grid): number | undefined {
  const cell = grid.findIndex((digit, i) => digit === 0 && candidates(grid, i).length === 1);
  return cell < 0 ? undefined : cell;
}

/** The grid filled by certain cells alone, or undefined where they run out. */
function completed(grid: Grid): Grid | undefined {
  const filled = [...grid];
  for (;;) {
    if (!filled.includes(0)) return filled;
    const cell = certainCell(filled);
    if (cell === undefined) return undefined;
    filled[cell] = candidates(filled, cell)[0] ?? 0;
  }
}

function isComplete(grid: Grid): boolean {
  return grid.every((digit, cell) => digit >= 1 && digit <= 4 && !peersOf[cell]?.some((peer) => grid[peer] === digit));
}

/** A full grid with cells taken out as long as it can still be completed. */
function carve(random: Random, blanks: number): Grid | undefined {
  let grid = fill(
    random,
    Array.from({ length: 16 }, () => 0),
  );
  let left = blanks;
  for (const cell of random.shuffle(grid.map((_, i) => i))) {
    if (left === 0) break;
    const without = grid.with(cell, 0);
    if (completed(without) === undefined) continue;
    grid = without;
    left--;
  }
  return left === 0 ? grid : undefined;
}

function fill(random: Random, grid: Grid): Grid {
  const cell = grid.indexOf(0);
  if (cell < 0) return grid;
  for (const digit of random.shuffle(candidates(grid, cell))) {
    const done = fill(random, grid.with(cell, digit));
    if (!done.includes(0)) return done;
  }
  return grid;
}
