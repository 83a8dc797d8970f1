/**
 * Where a policy's prompts come from: an endless stream of task problems, or a dataset gone through epoch by epoch. Both
 * give the prompt at any place of the stream from the seed alone, so that a resumed run goes on with the very next one.
 *
 *     const prompts = new TaskPrompts(format, { tasks: 'chain_sum:1*2,gcd', seed: 42 });
 *     prompts.take(8);
 */
import { type DatasetSpec, openDataset, promptKey } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { datasetHub } from '../hub/hub.ts';
import { Random } from '../random.ts';
import { type Example, type Mixture, mixture } from '../tasks/index.ts';
import { ChatFormat, type FormatOptions, type Message, type Tokenizer } from '../text/index.ts';

export interface PolicyPrompt {
  /** Its place in the stream (tasks) or in the set (datasets). */
  index: number;
  messages: readonly Message[];
  /** As the model reads it. */
  text: string;
  ids: Int32Array;
  /** The problem behind it, for the verifier. */
  example?: Example;
  /** The known final answer of a dataset's prompt. */
  answer?: string;
}

export interface PromptSource {
  /** The next prompts of the stream. */
  take(count: number): PolicyPrompt[];
  /** Passes over the prompts; 0 for ever where they are endless. */
  readonly epoch: number;
  /** Prompts of one pass; undefined where they are endless. */
  readonly size: number | undefined;
  /** Tells the source how often its prompts were solved, 0 to 1 each; a curriculum listens. */
  learn?(prompts: readonly PolicyPrompt[], success: readonly number[]): void;
  /** Numbers worth logging, such as a curriculum's levels. */
  metrics?(): Record<string, number>;
  state(): unknown;
  restore(state: unknown): void;
}

export interface PromptOptions extends FormatOptions {
  /** Longer prompts are left out and counted. */
  maxLength?: number;
  system?: string;
}

/** Messages to prompts. */
export class PromptWriter {
  readonly #tokenizer: Tokenizer;
  readonly #format: ChatFormat;
  readonly #options: PromptOptions;

  constructor(tokenizer: Tokenizer, options: PromptOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#format = new ChatFormat(tokenizer, options);
    this.#options = options;
  }

  /** Undefined where the prompt is too long. */
  write(index: number, prompt: string | readonly Message[]): PolicyPrompt | undefined {
    const { maxLength = Number.POSITIVE_INFINITY, system } = this.#options;
    const asked: readonly Message[] = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
    const messages: readonly Message[] =
      system !== undefined && asked[0]?.role !== 'system' ? [{ role: 'system', content: system }, ...asked] : asked;
    const text = this.#format.prompt(messages);
    const ids = Int32Array.from([...this.#format.bos, ...this.#tokenizer.encode(text)]);
    return ids.length > maxLength ? undefined : { index, messages, text, ids };
  }
}

/** Rows of problems are endless, so one that is too long is simply passed over; this many in a row are not. */
const mostTooLong = 1000;

export interface CurriculumOptions {
  /** Share of right answers at which a task gets harder, and below which it gets easier again. */
  up: number;
  down: number;
  /** Weight of the newest group in the running success rate. */
  momentum?: number;
}

export interface TaskPromptOptions {
  tasks: string;
  seed: number;
  testShare?: number;
  curriculum?: CurriculumOptions;
}

interface Level {
  difficulty: number;
  success: number;
  /** Groups seen at this difficulty: a level is judged on several. */
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
      for (const part of this.#whole.parts)
        this.#levels[part.task.name] = { difficulty: part.lowest, success: 0, groups: 0 };
    }
    this.#mixture = this.#atLevels();
  }

  take(count: number): PolicyPrompt[] {
    const taken: PolicyPrompt[] = [];
    for (let tooLong = 0; taken.length < count; this.#next++) {
      const { seed, testShare } = this.#options;
      const example = this.#mixture.example(seed, this.#next, { part: 'train', testShare });
      const prompt = this.#writer.write(this.#next, example.prompt);
      if (prompt !== undefined) taken.push({ ...prompt, example });
      else if (++tooLong > mostTooLong)
        throw new UserError(`${mostTooLong} prompts in a row were longer than --prompt-max-length allows.`);
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
    this.#levels = levels;
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

/** A fixed set in an order that changes with every epoch. */
export class ListPrompts implements PromptSource {
  readonly #prompts: readonly PolicyPrompt[];
  readonly #seed: number;
  #taken = 0;
  #order: Uint32Array = new Uint32Array();
  #orderOf = -1;

  constructor(prompts: readonly PolicyPrompt[], seed: number) {
    if (prompts.length === 0) throw new UserError('There are no prompts to train on.');
    this.#prompts = prompts;
    this.#seed = seed;
  }

  get size(): number {
    return this.#prompts.length;
  }
  get epoch(): number {
    return Math.floor(Math.max(0, this.#taken - 1) / this.size);
  }

  take(count: number): PolicyPrompt[] {
    return Array.from({ length: count }, () => {
      const epoch = Math.floor(this.#taken / this.size);
      if (epoch !== this.#orderOf) {
        this.#order = new Random(this.#seed + epoch).permutation(this.size);
        this.#orderOf = epoch;
      }
      return this.#prompts[this.#order[this.#taken++ % this.size] as number] as PolicyPrompt;
    });
  }

  state(): unknown {
    return { taken: this.#taken };
  }
  restore(state: unknown): void {
    this.#taken = (state as { taken: number }).taken;
  }
}

/** Held-out problems of a mixture, each once; fewer than asked for where the tasks have fewer. */
export function taskEvalPrompts(
  writer: PromptWriter,
  options: { tasks: string; seed: number; count: number; testShare?: number },
): PolicyPrompt[] {
  const { tasks, seed, count, testShare } = options;
  const mix = mixture(tasks);
  const seen = new Set<string>();
  const prompts: PolicyPrompt[] = [];
  for (let place = 0; prompts.length < count && place < count * 20; place++) {
    const example = mix.example(seed, place, { part: 'test', testShare });
    if (seen.has(example.prompt)) continue;
    seen.add(example.prompt);
    const prompt = writer.write(prompts.length, example.prompt);
    if (prompt !== undefined) prompts.push({ ...prompt, example });
  }
  return prompts;
}

export interface DatasetPromptOptions {
  dataset: DatasetSpec;
  subset?: string;
  /** How many prompts of the train and of the test part go into training; undefined = all of train, 0 = none. */
  trainPrompts?: number;
  testPrompts?: number;
  evalPrompts: number;
  seed: number;
}

export interface DatasetPrompts {
  train: PolicyPrompt[];
  evaluation: PolicyPrompt[];
  tooLong: number;
}

/**
 * Evaluation prompts are chosen first, from the test part where the set has one, and whatever has the same words is kept
 * out of training.
 */
export async function datasetPrompts(writer: PromptWriter, options: DatasetPromptOptions): Promise<DatasetPrompts> {
  const { seed, evalPrompts, trainPrompts, testPrompts = 0 } = options;
  const trainRows = await rowsOf(options, 'train');
  const testRows = await testRowsOf(options);
  const random = new Random(seed);
  const key = (row: Row) => promptKey('prompts', row);
  const held: Row[] = [];
  const heldKeys = new Set<string>();
  for (const row of random.shuffle([...(testRows.length > 0 ? testRows : trainRows)])) {
    if (held.length >= evalPrompts) break;
    if (heldKeys.has(key(row))) continue;
    heldKeys.add(key(row));
    held.push(row);
  }
  const open = (rows: readonly Row[], count: number) =>
    random.shuffle(rows.filter((row) => !heldKeys.has(key(row)))).slice(0, count);
  const chosen = [...open(trainRows, trainPrompts ?? trainRows.length), ...open(testRows, testPrompts)];
  let tooLong = 0;
  const written = (rows: readonly Row[]) =>
    rows.flatMap((row, index) => {
      const prompt = writer.write(index, row.prompt);
      if (prompt === undefined) tooLong++;
      return prompt === undefined ? [] : [{ ...prompt, answer: row.answer }];
    });
  return { train: written(chosen), evaluation: written(held), tooLong };
}

type Row = { prompt: Message[]; answer?: string };

/** Rows that a program holds may come only once, and a set may have no test part: neither has one then. */
async function testRowsOf(options: DatasetPromptOptions): Promise<Row[]> {
  if (typeof options.dataset !== 'string') return [];
  try {
    return await rowsOf(options, 'test');
  } catch (error) {
    if ((options.testPrompts ?? 0) > 0 || !(error instanceof UserError)) throw error;
    return [];
  }
}

async function rowsOf({ dataset, subset }: DatasetPromptOptions, split: string): Promise<Row[]> {
  const options = { shape: 'prompts' as const, split, subset, hub: datasetHub() };
  return (await openDataset(dataset, options)).toArray();
}
