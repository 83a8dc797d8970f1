/**
 * The problems of environments as prompts: an endless stream for training, with an optional curriculum, and held-out
 * problems.
 *
 *     const prompts = await EnvironmentPrompts.open(environments, new PromptWriter(tokenizer), { seed: 42 });
 *     await prompts.take(8);
 */
import type { OpenedEnvironments, Problem, ProblemOptions } from '../environments/index.ts';
import { UserError } from '../errors.ts';
import { Curriculum, type CurriculumOptions } from '../tasks/curriculum.ts';
import { checkTooLong, EndlessPrompts } from '../tasks/endless.ts';
import type { PolicyPrompt, ProblemWriter, PromptSource } from './prompts.ts';

export interface EnvironmentPromptOptions {
  seed: number;
  curriculum?: CurriculumOptions;
  /** The environments as requested, for messages. */
  recipe?: string;
}

/** An endless stream of training problems. Test problems never appear in it; a hash of the problem separates them. */
export class EnvironmentPrompts extends EndlessPrompts implements PromptSource {
  readonly fingerprint: string;
  readonly #environments: OpenedEnvironments;
  readonly #writer: ProblemWriter;
  readonly #seed: number;

  static async open(
    environments: OpenedEnvironments,
    writer: ProblemWriter,
    options: EnvironmentPromptOptions,
  ): Promise<EnvironmentPrompts> {
    // The fingerprint covers the wording of problems, because the run is trained on it.
    const { messages } = await environments.problem(0, 0);
    return new EnvironmentPrompts(environments, writer, options, writer.write(0, messages)?.text);
  }

  private constructor(
    environments: OpenedEnvironments,
    writer: ProblemWriter,
    { seed, curriculum, recipe = '' }: EnvironmentPromptOptions,
    written: string | undefined,
  ) {
    const parts = environments.parts.map(({ environment: { name }, ...part }) => ({ ...part, name }));
    super(curriculum && new Curriculum(parts, curriculum, recipe));
    this.#environments = environments;
    this.#writer = writer;
    this.#seed = seed;
    this.fingerprint = this.fingerprintOf(parts, written);
  }

  async take(count: number): Promise<PolicyPrompt[]> {
    const { curriculum } = this;
    const draw = {
      part: 'train',
      ...(curriculum && { difficultyOf: (name: string) => curriculum.difficultyOf(name) }),
    };
    const taken: PolicyPrompt[] = [];
    let tooLong = 0;
    while (taken.length < count) {
      const first = this.next;
      this.next += count - taken.length;
      const problems = await problemsAt(this.#environments, this.#seed, first, this.next, draw as ProblemOptions);
      for (const [i, problem] of problems.entries()) {
        const prompt = this.#writer.write(first + i, problem.messages);
        tooLong = prompt === undefined ? tooLong + 1 : 0;
        if (prompt !== undefined) taken.push({ ...prompt, problem });
      }
      checkTooLong(tooLong, this.#writer);
    }
    return taken;
  }

  learn(prompts: readonly PolicyPrompt[], success: readonly number[]): void {
    this.curriculum?.learn(
      prompts.map(({ problem }, i) => ({
        name: problem?.environment.name,
        difficulty: problem?.difficulty,
        success: success[i] as number,
      })),
    );
  }
}

/** The problems at these places of a seed's stream. */
function problemsAt(
  environments: OpenedEnvironments,
  seed: number,
  from: number,
  to: number,
  options: ProblemOptions,
): Promise<Problem[]> {
  return Promise.all(Array.from({ length: to - from }, (_, i) => environments.problem(seed, from + i, options)));
}

/** Held-out problems without repeats. Fewer than `count` if the environments have fewer. */
export async function environmentEvalPrompts(
  environments: OpenedEnvironments,
  writer: ProblemWriter,
  { seed, count, onTooLong }: { seed: number; count: number; onTooLong?: () => void },
): Promise<PolicyPrompt[]> {
  const seen = new Set<string>();
  const prompts: PolicyPrompt[] = [];
  let tooLong = 0;
  for (let place = 0; prompts.length < count && place < count * 20; ) {
    const to = place + count - prompts.length;
    for (const problem of await problemsAt(environments, seed, place, to, { part: 'test' })) {
      const key = `${problem.environment.name}\n${problem.difficulty}\n${problem.key}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const prompt = writer.write(prompts.length, problem.messages);
      if (prompt === undefined) {
        tooLong++;
        onTooLong?.();
      } else prompts.push({ ...prompt, problem });
    }
    place = to;
  }
  if (prompts.length === 0 && tooLong > 0)
    throw new UserError(
      `There are no prompts to evaluate on: the first messages of all ${tooLong} problems are longer than --prompt-max-length ${writer.maxLength}.`,
    );
  return prompts;
}
