/**
 * Prompts from verifiable tasks: an endless stream to train on, with an optional curriculum, and held-out problems.
 *
 *     const prompts = new TaskPrompts(new PromptWriter(tokenizer), { tasks: 'chain_sum:1*2,gcd', seed: 42 });
 *     prompts.take(8);
 */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.ts';
import { counted } from '../spelling.ts';
import { type Mixture, mixture, recipeText, type TaskRecipe } from '../tasks/index.ts';
import type { PolicyPrompt, PromptSource, PromptWriter } from './prompts.ts';

/** Prompts that are too long are skipped; this many in a row are an error. */
const mostTooLong = 1000;

export interface CurriculumOptions {
  /** Accuracy at which a task gets harder, and below which it gets easier again. */
  up: number;
  down: number;
  /** Weight of the newest group in the running success rate. */
  momentum?: number;
}

export interface TaskPromptOptions {
  tasks: TaskRecipe;
  seed: number;
  testShare?: number;
  curriculum?: CurriculumOptions;
}

interface Level {
  difficulty: number;
  success: number;
  /** Groups seen at this difficulty; the level changes only after several. */
  groups: number;
}

const groupsPerLevel = 8;

/** An endless stream of training problems; test problems never appear in it (a hash of the prompt decides). */
export class TaskPrompts implements PromptSource {
  readonly epoch = 0;
  readonly size = undefined;
  readonly #writer: PromptWriter;
  readonly #options: TaskPromptOptions;
  readonly #whole: Mixture;
  #mixture: Mixture;
  #next = 0;
  #levels: Record<string, Level> = {};

  constructor(writer: PromptWriter, options: TaskPromptOptions) {
    this.#writer = writer;
    this.#options = options;
    this.#whole = mixture(options.tasks);
    if (options.curriculum) {
      if (this.#whole.parts.every(({ lowest, highest }) => lowest === highest))
        throw new UserError(
          `--curriculum moves through difficulties, and ${recipeText(options.tasks)} has one difficulty: give a range, such as ${this.#whole.parts[0]?.task.name}:1-3.`,
        );
      const names = this.#whole.parts.map(({ task }) => task.name);
      const twice = names.find((name, i) => names.indexOf(name) !== i);
      if (twice !== undefined)
        throw new UserError(
          `--curriculum moves a task through one range of difficulties, and ${options.tasks} names ${twice} twice: name it once.`,
        );
      for (const part of this.#whole.parts)
        this.#levels[part.task.name] = { difficulty: part.lowest, success: 0, groups: 0 };
    }
    this.#mixture = this.#atLevels();
  }

  /** The problems that it draws from, whatever the spelling and the order of the tasks, and one of them as it is written. */
  get fingerprint(): string {
    const used = this.#whole.parts
      .filter(({ weight }) => weight > 0)
      .toSorted((a, b) => compare(a.task.name, b.task.name) || a.lowest - b.lowest || a.weight - b.weight);
    const whole = used.reduce((sum, { weight }) => sum + weight, 0);
    // Shares of the same weights in other units differ in their last digits.
    const share = (weight: number) => Number((weight / whole).toPrecision(9));
    const tasks = used.map(({ task, lowest, highest, weight }) => [task.name, lowest, highest, share(weight)]);
    const { task, lowest } = used[0] as (typeof used)[0];
    const { text } = this.#writer.write(0, task.generate(0, lowest).prompt) ?? {};
    const facts = [tasks.map((each) => JSON.stringify(each)).sort(), text, this.#options.curriculum !== undefined];
    return createHash('sha256').update(JSON.stringify(facts)).digest('hex');
  }

  take(count: number): PolicyPrompt[] {
    const taken: PolicyPrompt[] = [];
    for (let tooLong = 0; taken.length < count; this.#next++) {
      const { seed, testShare } = this.#options;
      const example = this.#mixture.example(seed, this.#next, { part: 'train', testShare });
      const prompt = this.#writer.write(this.#next, example.prompt);
      if (prompt !== undefined) taken.push({ ...prompt, example });
      else if (++tooLong > mostTooLong)
        throw new UserError(
          `${mostTooLong} prompts in a row were longer than ${counted(this.#writer.maxLength, 'token')} (--prompt-max-length, or the room that --max-new-tokens leaves).`,
        );
    }
    return taken;
  }

  learn(prompts: readonly PolicyPrompt[], success: readonly number[]): void {
    const { curriculum } = this.#options;
    if (!curriculum) return;
    for (const [i, prompt] of prompts.entries()) {
      const level = this.#levels[prompt.example?.task ?? ''];
      if (level === undefined || prompt.example?.difficulty !== level.difficulty) continue;
      const weight = Math.max(curriculum.momentum ?? 0.1, 1 / (level.groups + 1));
      level.success += weight * ((success[i] as number) - level.success);
      level.groups++;
    }
    for (const part of this.#whole.parts) {
      const level = this.#levels[part.task.name] as Level;
      if (level.groups < groupsPerLevel) continue;
      const step = level.success >= curriculum.up ? 1 : level.success < curriculum.down ? -1 : 0;
      const difficulty = Math.min(part.highest, Math.max(part.lowest, level.difficulty + step));
      if (difficulty !== level.difficulty)
        this.#levels[part.task.name] = { difficulty, success: level.success, groups: 0 };
    }
    this.#mixture = this.#atLevels();
  }

  metrics(): Record<string, number> {
    return Object.fromEntries(
      Object.entries(this.#levels).map(([name, { difficulty }]) => [`level_${name}`, difficulty]),
    );
  }

  state(): unknown {
    return { next: this.#next, levels: this.#levels };
  }
  restore(state: unknown): void {
    const { next, levels } = structuredClone(state) as { next: number; levels: Record<string, Level> };
    this.#next = next;
    // A task that the run did not have, or had within other difficulties, begins anew.
    for (const { task, lowest, highest } of this.#options.curriculum ? this.#whole.parts : []) {
      const level = levels[task.name];
      if (level && level.difficulty >= lowest && level.difficulty <= highest) this.#levels[task.name] = level;
    }
    this.#mixture = this.#atLevels();
  }

  #atLevels(): Mixture {
    if (!this.#options.curriculum) return this.#whole;
    return mixture(
      this.#whole.parts.map(({ task, weight }) => ({
        task,
        weight,
        difficulty: (this.#levels[task.name] as Level).difficulty,
      })),
    );
  }
}

/** Held-out problems of a mixture, without repeats; fewer than `count` if the tasks have fewer. */
export function taskEvalPrompts(
  writer: PromptWriter,
  options: { tasks: TaskRecipe; seed: number; count: number; testShare?: number; onTooLong?: () => void },
): PolicyPrompt[] {
  const { tasks, seed, count, testShare, onTooLong } = options;
  const mix = mixture(tasks);
  const seen = new Set<string>();
  const prompts: PolicyPrompt[] = [];
  for (let place = 0; prompts.length < count && place < count * 20; place++) {
    const example = mix.example(seed, place, { part: 'test', testShare });
    if (seen.has(example.prompt)) continue;
    seen.add(example.prompt);
    const prompt = writer.write(prompts.length, example.prompt);
    if (prompt === undefined) onTooLong?.();
    else prompts.push({ ...prompt, example });
  }
  return prompts;
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
