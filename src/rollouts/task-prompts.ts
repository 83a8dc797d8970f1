/**
 * Prompts from verifiable tasks: an endless stream to train on, with an optional curriculum, and held-out problems.
 *
 *     const prompts = new TaskPrompts(new PromptWriter(tokenizer), { tasks: 'chain_sum:1*2,gcd', seed: 42 });
 *     prompts.take(8);
 */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.ts';
import { counted } from '../spelling.ts';
import { Curriculum, type CurriculumOptions } from '../tasks/curriculum.ts';
import { type Mixture, mixture, recipeText, type TaskRecipe } from '../tasks/index.ts';
import type { PolicyPrompt, PromptSource, PromptWriter } from './prompts.ts';

/** Prompts that are too long are skipped; this many in a row are an error. */
const mostTooLong = 1000;

export interface TaskPromptOptions {
  tasks: TaskRecipe;
  seed: number;
  testShare?: number;
  curriculum?: CurriculumOptions;
}

/** An endless stream of training problems; test problems never appear in it (a hash of the prompt decides). */
export class TaskPrompts implements PromptSource {
  readonly epoch = 0;
  readonly size = undefined;
  readonly #writer: PromptWriter;
  readonly #options: TaskPromptOptions;
  readonly #whole: Mixture;
  #mixture: Mixture;
  #next = 0;
  readonly #curriculum: Curriculum | undefined;

  constructor(writer: PromptWriter, options: TaskPromptOptions) {
    this.#writer = writer;
    this.#options = options;
    this.#whole = mixture(options.tasks);
    const parts = this.#whole.parts.map(({ task: { name }, lowest, highest }) => ({ name, lowest, highest }));
    if (options.curriculum) this.#curriculum = new Curriculum(parts, options.curriculum, recipeText(options.tasks));
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
    this.#curriculum?.learn(
      prompts.map(({ example }, i) => ({
        name: example?.task,
        difficulty: example?.difficulty,
        success: success[i] as number,
      })),
    );
    this.#mixture = this.#atLevels();
  }

  metrics(): Record<string, number> {
    return this.#curriculum?.metrics() ?? {};
  }

  state(): unknown {
    return { next: this.#next, levels: this.#curriculum?.state() ?? {} };
  }
  restore(state: unknown): void {
    const { next, levels } = state as { next: number; levels: unknown };
    this.#next = next;
    this.#curriculum?.restore(levels);
    this.#mixture = this.#atLevels();
  }

  #atLevels(): Mixture {
    const curriculum = this.#curriculum;
    if (curriculum === undefined) return this.#whole;
    return mixture(
      this.#whole.parts.map(({ task, weight }) => ({ task, weight, difficulty: curriculum.difficultyOf(task.name) })),
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
