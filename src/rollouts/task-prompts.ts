/**
 * Prompts from verifiable tasks: an endless stream for training, with an optional curriculum, and held-out problems.
 *
 *     const prompts = new TaskPrompts(new PromptWriter(tokenizer), { tasks: 'chain_sum:1*2,gcd', seed: 42 });
 *     prompts.take(8);
 */
import { Curriculum, type CurriculumOptions } from '../tasks/curriculum.ts';
import { checkTooLong, EndlessPrompts } from '../tasks/endless.ts';
import { type Mixture, mixture, recipeText, type TaskRecipe } from '../tasks/index.ts';
import type { PolicyPrompt, PromptSource, PromptWriter } from './prompts.ts';

export interface TaskPromptOptions {
  tasks: TaskRecipe;
  seed: number;
  testShare?: number;
  curriculum?: CurriculumOptions;
}

/** An endless stream of training problems. Test problems never appear in it; a hash of the prompt separates them. */
export class TaskPrompts extends EndlessPrompts implements PromptSource {
  readonly #writer: PromptWriter;
  readonly #options: TaskPromptOptions;
  readonly #whole: Mixture;
  #mixture: Mixture;

  constructor(writer: PromptWriter, options: TaskPromptOptions) {
    const whole = mixture(options.tasks);
    super(options.curriculum && new Curriculum(partsOf(whole), options.curriculum, recipeText(options.tasks)));
    this.#writer = writer;
    this.#options = options;
    this.#whole = whole;
    this.#mixture = this.#atLevels();
  }

  /** Covers the tasks, whatever their spelling and order, and the wording of one problem. */
  get fingerprint(): string {
    const used = this.#whole.parts
      .filter(({ weight }) => weight > 0)
      .toSorted((a, b) => compare(a.task.name, b.task.name) || a.lowest - b.lowest || a.weight - b.weight);
    const { task, lowest } = used[0] as (typeof used)[0];
    const { text } = this.#writer.write(0, task.generate(0, lowest).prompt) ?? {};
    return this.fingerprintOf(partsOf(this.#whole), text);
  }

  take(count: number): PolicyPrompt[] {
    const taken: PolicyPrompt[] = [];
    for (let tooLong = 0; taken.length < count; this.next++) {
      const { seed, testShare } = this.#options;
      const example = this.#mixture.example(seed, this.next, { part: 'train', testShare });
      const prompt = this.#writer.write(this.next, example.prompt);
      tooLong = prompt === undefined ? tooLong + 1 : 0;
      if (prompt !== undefined) taken.push({ ...prompt, example });
      else checkTooLong(tooLong, this.#writer);
    }
    return taken;
  }

  learn(prompts: readonly PolicyPrompt[], success: readonly number[]): void {
    this.curriculum?.learn(
      prompts.map(({ example }, i) => ({
        name: example?.task,
        difficulty: example?.difficulty,
        success: success[i] as number,
      })),
    );
    this.#mixture = this.#atLevels();
  }

  override restore(state: unknown): void {
    super.restore(state);
    this.#mixture = this.#atLevels();
  }

  #atLevels(): Mixture {
    const curriculum = this.curriculum;
    if (curriculum === undefined) return this.#whole;
    return mixture(
      this.#whole.parts.map(({ task, weight }) => ({ task, weight, difficulty: curriculum.difficultyOf(task.name) })),
    );
  }
}

const partsOf = (whole: Mixture) =>
  whole.parts.map(({ task: { name }, lowest, highest, weight }) => ({ name, lowest, highest, weight }));

/** Held-out problems of a mixture, without repeats. Fewer than `count` if the tasks have fewer. */
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
