/** Prompts from a dataset: some are held out for evaluation, the rest is used for training, epoch by epoch. */
import { type DatasetSpec, openDataset } from '../data/index.ts';
import { promptKey } from '../data/shapes/shapes.ts';
import { UserError } from '../errors.ts';
import { datasetHub } from '../hub/hub.ts';
import type { Progress } from '../progress.ts';
import { Random } from '../random.ts';
import { spelled } from '../spelling.ts';
import type { Message } from '../text/index.ts';
import { type PolicyPrompt, type PromptSource, type PromptWriter, promptsFingerprint } from './prompts.ts';

/** A fixed list whose order changes with every epoch. */
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

  get fingerprint(): string {
    return promptsFingerprint(this.#prompts);
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

export interface DatasetPromptOptions {
  dataset: DatasetSpec;
  subset?: string;
  /** The number of training prompts from the train and the test split. undefined = all of train, 0 = none. */
  trainPrompts?: number;
  testPrompts?: number;
  evalPrompts: number;
  seed: number;
  /** Shows the download of a hub dataset. */
  progress?: Progress;
  /** Number of retries of a failed hub request. */
  hubRetries?: number;
}

export interface DatasetPrompts {
  train: PolicyPrompt[];
  evaluation: PolicyPrompt[];
  tooLong: number;
  /** Rows that are left out of training because a held-out one has their text. */
  alike: number;
}

/**
 * Chooses evaluation prompts first, from the test split if there is one. Prompts with the same text are excluded from
 * training.
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
      return prompt === undefined
        ? []
        : [{ ...prompt, answer: row.answer, ...(row.fields === undefined ? {} : { fields: row.fields }) }];
    });
  const [train, evaluation] = [written(chosen), written(held)];
  if (tooLong > 0)
    options.progress
      ?.start('prompts')
      .done(
        spelled(
          `${tooLong} of ${chosen.length + held.length} are longer than --prompt-max-length or the room that --max-new-tokens leaves, ${writer.maxLength} tokens, and are left out`,
        ),
      );
  const alike = trainRows.filter((row) => heldKeys.has(key(row)) && !held.includes(row)).length;
  return { train, evaluation, tooLong, alike };
}

type Row = { prompt: Message[]; answer?: string; fields?: Record<string, unknown> };

/** In-memory rows, and sets without a test split, give no test rows. */
async function testRowsOf(options: DatasetPromptOptions): Promise<Row[]> {
  if (typeof options.dataset !== 'string') return [];
  try {
    return await rowsOf(options, 'test');
  } catch (error) {
    if ((options.testPrompts ?? 0) > 0 || !(error instanceof UserError)) throw error;
    return [];
  }
}

async function rowsOf(options: DatasetPromptOptions, split: string): Promise<Row[]> {
  const { dataset, subset, progress, hubRetries: retries } = options;
  const hub = datasetHub({ progress, retries });
  return (await openDataset(dataset, { shape: 'prompts', split, subset, keepColumns: true, hub })).toArray();
}
