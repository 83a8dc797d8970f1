/**
 * The problems of environments as prompts: an endless stream to train on, with an optional curriculum, and held-out ones.
 *
 *     const prompts = await EnvironmentPrompts.open(environments, new PromptWriter(tokenizer), { seed: 42 });
 *     await prompts.take(8);
 */
import { createHash } from 'node:crypto';
import type { OpenedEnvironments, Problem, ProblemOptions } from '../environments/index.ts';
import { UserError } from '../errors.ts';
import { counted } from '../spelling.ts';
import { Curriculum, type CurriculumOptions } from '../tasks/curriculum.ts';
import type { PolicyPrompt, ProblemWriter, PromptSource } from './prompts.ts';

/** Prompts that are too long are skipped; this many in a row are an error. */
const mostTooLong = 1000;

export interface EnvironmentPromptOptions {
  seed: number;
  curriculum?: CurriculumOptions;
  /** The environments as they were asked for, for messages. */
  recipe?: string;
}

const shareOf = (weight: number, whole: number) => Number((weight / whole).toPrecision(9));

/** An endless stream of training problems; test problems never appear in it (a hash of the problem decides). */
export class EnvironmentPrompts implements PromptSource {
  readonly epoch = 0;
  readonly size = undefined;
  readonly fingerprint: string;
  readonly #environments: OpenedEnvironments;
  readonly #writer: ProblemWriter;
  readonly #seed: number;
  readonly #curriculum: Curriculum | undefined;
  #next = 0;

  static async open(
    environments: OpenedEnvironments,
    writer: ProblemWriter,
    options: EnvironmentPromptOptions,
  ): Promise<EnvironmentPrompts> {
    // How a problem is written is part of what the run is trained on.
    const { messages } = await environments.problem(0, 0);
    return new EnvironmentPrompts(environments, writer, options, writer.write(0, messages)?.text);
  }

  private constructor(
    environments: OpenedEnvironments,
    writer: ProblemWriter,
    { seed, curriculum, recipe = '' }: EnvironmentPromptOptions,
    written: string | undefined,
  ) {
    this.#environments = environments;
    this.#writer = writer;
    this.#seed = seed;
    const used = environments.parts.filter(({ weight }) => weight > 0);
    const whole = used.reduce((sum, { weight }) => sum + weight, 0);
    const parts = used.map(({ environment: { name }, lowest, highest, weight }) =>
      JSON.stringify([name, lowest, highest, shareOf(weight, whole)]),
    );
    const facts = JSON.stringify([parts.sort(), written, curriculum !== undefined]);
    this.fingerprint = createHash('sha256').update(facts).digest('hex');
    const ranges = environments.parts.map(({ environment: { name }, lowest, highest }) => ({ name, lowest, highest }));
    if (curriculum) this.#curriculum = new Curriculum(ranges, curriculum, recipe);
  }

  async take(count: number): Promise<PolicyPrompt[]> {
    const curriculum = this.#curriculum;
    const draw = {
      part: 'train',
      ...(curriculum && { difficultyOf: (name: string) => curriculum.difficultyOf(name) }),
    };
    const taken: PolicyPrompt[] = [];
    let tooLong = 0;
    while (taken.length < count) {
      const first = this.#next;
      this.#next += count - taken.length;
      const problems = await problemsAt(this.#environments, this.#seed, first, this.#next, draw as ProblemOptions);
      for (const [i, problem] of problems.entries()) {
        const prompt = this.#writer.write(first + i, problem.messages);
        tooLong = prompt === undefined ? tooLong + 1 : 0;
        if (prompt !== undefined) taken.push({ ...prompt, problem });
      }
      if (tooLong > mostTooLong)
        throw new UserError(
          `${mostTooLong} prompts in a row were longer than ${counted(this.#writer.maxLength, 'token')} (--prompt-max-length, or the room that --max-new-tokens leaves).`,
        );
    }
    return taken;
  }

  learn(prompts: readonly PolicyPrompt[], success: readonly number[]): void {
    this.#curriculum?.learn(
      prompts.map(({ problem }, i) => ({
        name: problem?.environment.name,
        difficulty: problem?.difficulty,
        success: success[i] as number,
      })),
    );
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

/** Held-out problems, without repeats; fewer than `count` if the environments have fewer. */
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
