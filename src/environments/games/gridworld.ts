/** Walk to a goal around walls. The map is text, and a turn has up to three moves. */
import type { Random } from '../../random.ts';
import { defineEnvironment } from '../parts/environment.ts';
import { said } from '../parts/tags.ts';

const moves = { up: [-1, 0], down: [1, 0], left: [0, -1], right: [0, 1] } as const;
type Move = keyof typeof moves;
type Place = readonly [row: number, column: number];

interface World {
  walls: readonly (readonly boolean[])[];
  start: Place;
  goal: Place;
  /** The shortest path. */
  way: readonly Move[];
}

const movesOfTurn = 3;
/** Turns allowed beyond the shortest path. */
const spareTurns = 2;

/** The map at a difficulty: from 3 by 3 to 7 by 7, with more walls and longer paths. */
function world(random: Random, difficulty: number): World {
  const size = difficulty + 2;
  for (;;) {
    const walls = Array.from({ length: size }, () => Array.from({ length: size }, () => random.chance(0.22)));
    const place = (): Place => [random.int(0, size - 1), random.int(0, size - 1)];
    const [start, goal] = [place(), place()];
    if (isWall(walls, start) || isWall(walls, goal)) continue;
    const way = shortestWay(walls, start, goal);
    if (way !== undefined && way.length >= Math.min(difficulty + 1, size)) return { walls, start, goal, way };
  }
}

const isWall = (walls: World['walls'], [row, column]: Place) => walls[row]?.[column] ?? true;
const moved = ([row, column]: Place, move: Move): Place => [row + moves[move][0], column + moves[move][1]];
const isSame = (a: Place, b: Place) => a[0] === b[0] && a[1] === b[1];

function shortestWay(walls: World['walls'], start: Place, goal: Place): Move[] | undefined {
  const seen = new Set([start.join()]);
  let reached: { place: Place; way: Move[] }[] = [{ place: start, way: [] }];
  while (reached.length > 0) {
    const found = reached.find(({ place }) => isSame(place, goal));
    if (found !== undefined) return found.way;
    reached = reached.flatMap(({ place, way }) =>
      (Object.keys(moves) as Move[]).flatMap((move) => {
        const next = moved(place, move);
        if (isWall(walls, next) || seen.has(next.join())) return [];
        seen.add(next.join());
        return [{ place: next, way: [...way, move] }];
      }),
    );
  }
  return undefined;
}

function mapOf({ walls, goal }: World, at: Place): string {
  const sign = (place: Place, wall: boolean) =>
    isSame(place, at) ? 'A' : isSame(place, goal) ? 'G' : wall ? '#' : '.';
  return walls.map((row, r) => row.map((wall, c) => sign([r, c], wall)).join('')).join('\n');
}

const turnsFor = ({ way }: World) => Math.ceil(way.length / movesOfTurn) + spareTurns;

export const gridworld = defineEnvironment({
  name: 'gridworld',
  summary: 'a way to the goal around walls, on a map of text',
  levels: 5,
  judged: true,
  start({ random, difficulty }) {
    const here = world(random, difficulty);
    const map = mapOf(here, here.start);
    let at = here.start;
    let rest = turnsFor(here);
    const left = () => `${rest} ${rest === 1 ? 'turn' : 'turns'} left.`;
    return {
      messages: `Walk from A to G; # is a wall. Answer up, down, left or right, up to ${movesOfTurn} a turn. ${left()}\n${map}`,
      key: map,
      step(response) {
        const asked = (
          said(response)
            .toLowerCase()
            .match(/\b(up|down|left|right)\b/g) ?? []
        ).slice(0, movesOfTurn);
        for (const move of asked as Move[]) {
          const next = moved(at, move);
          if (!isWall(here.walls, next)) at = next;
          if (isSame(at, here.goal)) return { observation: 'You are there.', reward: 1, done: true, success: true };
        }
        rest--;
        if (rest <= 0) return { observation: 'No turns left.', done: true, success: false };
        const said_ = asked.length === 0 ? 'Answer up, down, left or right. ' : '';
        return { observation: `${said_}${left()}\n${mapOf(here, at)}` };
      },
    };
  },
  demonstrate({ random, difficulty, skill }) {
    const here = world(random, difficulty);
    const turns: string[] = [];
    let at = here.start;
    for (let rest = turnsFor(here); rest > 0 && !isSame(at, here.goal); rest--) {
      const way = shortestWay(here.walls, at, here.goal) ?? [];
      const turn = random.chance(skill)
        ? way.slice(0, movesOfTurn)
        : Array.from({ length: movesOfTurn }, () => random.pick(Object.keys(moves) as Move[]));
      turns.push(turn.join(' '));
      for (const move of turn) {
        const next = moved(at, move);
        if (!isWall(here.walls, next)) at = next;
        if (isSame(at, here.goal)) break;
      }
    }
    return turns;
  },
});
