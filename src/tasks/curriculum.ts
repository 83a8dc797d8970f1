/**
 * Moves tasks and environments through their ranges of difficulties by success: harder where most is solved, easier again where
 * hardly anything is.
 */
import { UserError } from '../errors.ts';

export interface CurriculumOptions {
  /** Success rate at which a task gets harder, and below which it gets easier again. */
  up: number;
  down: number;
  /** Weight of the newest group in the running success rate. */
  momentum?: number;
}

/** What moves, with its range. */
export interface CurriculumPart {
  name: string;
  lowest: number;
  highest: number;
}

interface Level {
  difficulty: number;
  success: number;
  /** Groups seen at this difficulty; the level changes only after several. */
  groups: number;
}

/** How a group of responses to a problem went: the share that was right. */
export interface GroupSuccess {
  name: string | undefined;
  difficulty: number | undefined;
  success: number;
}

const groupsPerLevel = 8;

export class Curriculum {
  readonly #parts: readonly CurriculumPart[];
  readonly #options: CurriculumOptions;
  #levels: Record<string, Level> = {};

  /** `recipe`: the parts as they were asked for. */
  constructor(parts: readonly CurriculumPart[], options: CurriculumOptions, recipe: string) {
    if (parts.every(({ lowest, highest }) => lowest === highest))
      throw new UserError(
        `--curriculum moves through difficulties, and ${recipe} has one difficulty: give a range, such as ${parts[0]?.name}:1-3.`,
      );
    const names = parts.map(({ name }) => name);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined)
      throw new UserError(
        `--curriculum moves each name through one range of difficulties, and ${recipe} names ${twice} twice: name it once.`,
      );
    this.#parts = parts;
    this.#options = options;
    for (const { name, lowest } of parts) this.#levels[name] = { difficulty: lowest, success: 0, groups: 0 };
  }

  difficultyOf(name: string): number {
    return (this.#levels[name] as Level).difficulty;
  }

  learn(groups: readonly GroupSuccess[]): void {
    const { up, down, momentum = 0.1 } = this.#options;
    for (const { name, difficulty, success } of groups) {
      const level = this.#levels[name ?? ''];
      if (level === undefined || difficulty !== level.difficulty) continue;
      const weight = Math.max(momentum, 1 / (level.groups + 1));
      level.success += weight * (success - level.success);
      level.groups++;
    }
    for (const { name, lowest, highest } of this.#parts) {
      const level = this.#levels[name] as Level;
      if (level.groups < groupsPerLevel) continue;
      const step = level.success >= up ? 1 : level.success < down ? -1 : 0;
      const difficulty = Math.min(highest, Math.max(lowest, level.difficulty + step));
      if (difficulty !== level.difficulty) this.#levels[name] = { difficulty, success: level.success, groups: 0 };
    }
  }

  metrics(): Record<string, number> {
    return Object.fromEntries(
      Object.entries(this.#levels).map(([name, { difficulty }]) => [`level_${name}`, difficulty]),
    );
  }

  state(): unknown {
    return this.#levels;
  }
  restore(state: unknown): void {
    const levels = structuredClone(state) as Record<string, Level>;
    // What the run did not have, or had within other difficulties, begins anew.
    for (const { name, lowest, highest } of this.#parts) {
      const level = levels[name];
      if (level && level.difficulty >= lowest && level.difficulty <= highest) this.#levels[name] = level;
    }
  }
}
