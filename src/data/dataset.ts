/**
 * A dataset: examples of one shape from files, folders, the hub, arrays or iterables, read as a stream.
 *
 *     const pairs = await openDataset('pairs.jsonl', { shape: 'preference', dropTies: true });
 *     const { train, validation } = pairs.split(0.1, 42);
 *     for await (const pair of train) …
 *     pairs.tally.summary()
 */
import { createHash } from 'node:crypto';
import { checkArgument, checkArguments, integer, limit, oneOf, type Rule, text, whole } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { Random, unitHash } from '../random.ts';
import { stripThinking } from '../text/chat/thinking.ts';
import type { ColumnNames } from './shapes/columns.ts';
import { knownSet } from './shapes/known.ts';
import { type Mapping, mapRows } from './shapes/mapping.ts';
import { RowProblem } from './shapes/messages.ts';
import { type Example, type ExampleOf, type PreferencePair, promptKey, type Shape, shapes } from './shapes/shapes.ts';
import { localFiles, missingPath } from './sources/files.ts';
import { type DatasetHub, hubFiles, parseHubName, repoNamed } from './sources/hub.ts';
import type { Row } from './sources/row.ts';
import { fileRows, memoryRows, type Rows, type RowsInMemory, sourceName } from './sources/rows.ts';
import { Tally } from './tally.ts';

/** A path, a hub name, or rows in memory. */
export type DatasetSpec = string | RowsInMemory;

/** How a dataset is read: its shape, columns, split, sampling, and which rows are left out. */
export interface DatasetOptions<S extends Shape = Shape> {
  /** The wanted shape; recognised from the columns unless given. */
  shape?: S;
  /** `train`, `test`, `validation`, another name that the files use, or `all`. */
  split?: string;
  subset?: string;
  revision?: string;
  columns?: ColumnNames;
  /** At most this many examples… */
  maxSamples?: number;
  /** …drawn at random under the seed (the default), or the first ones, which stops reading early. */
  sample?: 'random' | 'first';
  seed?: number;
  /** What happens at a broken row: stop and report its place (default), or skip and count it. */
  onBadRow?: 'skip' | 'fail';
  /** Leave out pairs whose responses are equal or were graded equal. */
  dropTies?: boolean;
  /**
   * Each pair must have a margin, or two scores to compute one from. A pair without one, or whose value is not a
   * number, is a broken row.
   */
  margins?: boolean;
  /** Prompts keep the row's other columns as `fields`: strings, numbers, booleans, lists and objects unchanged. */
  keepColumns?: boolean;
  /** Leave out responses shorter than this many characters. */
  minResponseChars?: number;
  /** Remove `<think>…</think>` from responses. */
  stripThinking?: boolean;
  /** The hub client; without it hub names cannot be opened. */
  hub?: DatasetHub;
}

const optionRules: Partial<Record<keyof DatasetOptions, Rule>> = {
  shape: oneOf(shapes),
  split: text,
  subset: text,
  revision: text,
  maxSamples: limit(1),
  sample: oneOf(['random', 'first']),
  seed: integer,
  onBadRow: oneOf(['skip', 'fail']),
  minResponseChars: whole(0),
};
const optionNames: Record<keyof DatasetOptions, true> = {
  ...{ shape: true, split: true, subset: true, revision: true, columns: true, maxSamples: true, sample: true },
  ...{ seed: true, onBadRow: true, dropTies: true, margins: true, keepColumns: true, minResponseChars: true },
  ...{ stripThinking: true, hub: true },
};
/** The options of `openDataset`. */
export const datasetOptionNames: readonly string[] = Object.keys(optionNames);
const isSpec = (spec: unknown) =>
  ['string', 'function'].includes(typeof spec) ||
  (typeof spec === 'object' && spec !== null && (Symbol.iterator in spec || Symbol.asyncIterator in spec));

/** Opens a file, a folder, a hub dataset or rows in memory as a stream of examples of one shape. */
export async function openDataset<S extends Shape>(
  spec: DatasetSpec,
  options: DatasetOptions<S> & { shape: S },
): Promise<Dataset<S>>;
export async function openDataset(spec: DatasetSpec, options?: DatasetOptions): Promise<Dataset>;
export async function openDataset(spec: DatasetSpec, options: DatasetOptions = {}): Promise<Dataset> {
  checkArgument('A dataset', spec, { fits: isSpec, wanted: 'a path, a hub name, or rows: a list or an iterable' });
  checkArguments('openDataset', options, optionRules);
  checkNames('openDataset', options, datasetOptionNames);
  if (typeof spec !== 'string') return new Dataset('the rows given', memoryRows(spec), options);
  const hubName = parseHubName(spec);
  const known = hubName === undefined ? undefined : knownSet(hubName.repo);
  const settings: Settings = { ...options, shape: options.shape ?? known?.shape };
  const local = localFiles(spec, options);
  let files = local?.files;
  if (files === undefined) {
    const { hub, revision, split, subset } = options;
    if (hub === undefined) throw missingPath(spec);
    files = await hubFiles(hub, { ...(await repoNamed(spec, hub, revision)), split, subset }, known);
    // A known set's column names apply only where the columns exist; variants of the set are recognised by their
    // columns.
    settings.knownColumns = known?.columns;
  }
  const dataset = new Dataset(spec, fileRows(files), settings);
  dataset.leftAside = local?.leftAside ?? [];
  return dataset;
}

interface Settings extends DatasetOptions {
  knownColumns?: ColumnNames;
}

/** One side of a split. Examples whose hash is below `cut` are held out; both sides share the cut. */
interface Side {
  seed: number;
  validation: boolean;
  cut(): Promise<number>;
}

/** Examples of one shape, read as a stream; each iteration is a new pass. */
export class Dataset<S extends Shape = Shape> implements AsyncIterable<ExampleOf[S]> {
  readonly name: string;
  /** What the last pass read and left out. */
  tally = new Tally();
  /** Data files of a folder that were not read: other splits and subsets. */
  leftAside: readonly string[] = [];
  readonly #rows: Rows;
  readonly #options: Settings;
  readonly #side: Side | undefined;
  #shape: S | undefined;

  /** @internal Use openDataset. */
  constructor(name: string, rows: Rows, options: Settings, side?: Side) {
    this.name = name;
    this.#rows = rows;
    this.#options = options;
    this.#shape = options.shape as S | undefined;
    this.#side = side;
  }

  /** The shape asked for, or that of the first row. */
  async shape(): Promise<S> {
    if (this.#shape === undefined) {
      const tally = new Tally();
      const first = await this.#rows.first((file, line, problem) => {
        tally.rows++;
        tally.bad(`${file}:${line}: ${problem}`);
      });
      if (first === undefined) throw this.#empty(tally);
      this.#shape = mapRows(first.row, { columns: this.#columnsFor(first.row), where: first.file }).shape as S;
    }
    return this.#shape;
  }

  /**
   * Two parts by the hash of the prompt: a row's side depends only on its prompt and the seed. So adding or removing
   * rows never moves another row, and rows with the same prompt stay together. The share is met on average. If one side
   * of a small set would be empty, it gets the prompt with the smallest (or largest) hash.
   */
  split(validation: number, seed = 42): { train: Dataset<S>; validation: Dataset<S> } {
    if (!(validation > 0 && validation < 1)) {
      throw new UserError(`The validation share must lie between 0 and 1, this is ${validation}.`);
    }
    if (this.#side !== undefined) throw new UserError('This dataset is already one side of a split.');
    let found: Promise<number> | undefined;
    const cut = () => {
      found ??= this.#rows.once ? Promise.resolve(validation) : this.#cutFor(validation, seed);
      return found;
    };
    const part = (side: boolean) =>
      new Dataset<S>(this.name, this.#rows, this.#options, { seed, cut, validation: side });
    return { train: part(false), validation: part(true) };
  }

  /** As `split`, but a set with fewer than two different prompts stays whole and has no validation part. */
  async holdOut(share: number, seed = 42): Promise<{ train: Dataset<S>; validation: Dataset<S> | undefined }> {
    const parts = this.split(share, seed);
    return (await parts.train.#side?.cut()) === 0 ? { train: this, validation: undefined } : parts;
  }

  /** Stops reading as soon as both sides have an example, so only small sets are read whole. */
  async #cutFor(share: number, seed: number): Promise<number> {
    const shape = await this.shape();
    const hashes = new Set<number>();
    for await (const example of this.#sampled(new Tally())) {
      hashes.add(unitHash(promptKey(shape, example), seed));
      const [low, high] = [Math.min(...hashes), Math.max(...hashes)];
      if (low < share && high >= share) return share;
      // Only the two smallest hashes and the largest are needed.
      if (hashes.size > 3) for (const hash of [...hashes].sort((a, b) => a - b).slice(2, -1)) hashes.delete(hash);
    }
    const [low = 0, second] = [...hashes].sort((a, b) => a - b);
    if (second === undefined) return 0;
    return low >= share ? second : Math.max(...hashes);
  }

  /** Examples in the order of the rows, also when sampled. A split divides the sample, not the whole set. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ExampleOf[S]> {
    const side = this.#side;
    const cut = await side?.cut();
    const tally = new Tally();
    this.tally = tally;
    for await (const example of this.#sampled(tally)) {
      if (side !== undefined && cut !== undefined) {
        const held = unitHash(promptKey(await this.shape(), example), side.seed) < cut;
        if (held !== side.validation) continue;
      }
      tally.examples++;
      yield example;
    }
    if (tally.examples === 0) throw this.#empty(tally);
    if (side?.validation) tally.keepExamplesOnly();
  }

  async toArray(): Promise<ExampleOf[S][]> {
    return Array.fromAsync(this);
  }

  /**
   * A hash of the content and of every option that changes the examples; undefined for rows that can be read only once.
   */
  async fingerprint(): Promise<string | undefined> {
    const content = await this.#rows.fingerprint();
    if (content === undefined) return undefined;
    const { hub: _hub, ...options } = this.#options;
    const side = this.#side && {
      seed: this.#side.seed,
      validation: this.#side.validation,
      cut: await this.#side.cut(),
    };
    return createHash('sha256')
      .update(JSON.stringify([content, options, side]))
      .digest('hex');
  }

  async *#sampled(tally: Tally): AsyncGenerator<ExampleOf[S]> {
    const { maxSamples, sample = 'random', seed = 42 } = this.#options;
    if (maxSamples !== undefined && sample === 'random')
      yield* await reservoir(this.#usable(tally), maxSamples, seed, tally);
    else {
      let taken = 0;
      for await (const example of this.#usable(tally)) {
        yield example;
        if (++taken === maxSamples) return;
      }
    }
  }

  async *#usable(tally: Tally): AsyncGenerator<ExampleOf[S]> {
    const wanted = await this.shape();
    const { margins, keepColumns } = this.#options;
    const mappings = new Map<string, Mapping>();
    const drop = (reason: string) => tally.drop(reason);
    const bad = (file: string, line: number, problem: string) => {
      const message = `${file}:${line}: ${problem}`;
      if (this.#options.onBadRow !== 'skip') {
        const end = message.endsWith('?') ? '' : '.';
        throw new UserError(`${message}${end} Mend the row, or skip such rows with --on-bad-row skip.`);
      }
      tally.rows++;
      tally.bad(message);
    };
    for await (const { row, file, line } of this.#rows.read(bad)) {
      let mapping = mappings.get(file);
      if (mapping === undefined) {
        mapping = mapRows(row, { shape: wanted, columns: this.#columnsFor(row), margins, keepColumns, where: file });
        mappings.set(file, mapping);
      }
      let examples: Example[];
      try {
        examples = mapping.read(row, tally.rows, drop);
      } catch (error) {
        if (!(error instanceof RowProblem)) throw error;
        bad(file, line, error.message);
        continue;
      }
      tally.rows++;
      for (const example of examples) {
        if (this.#rows.manyFiles) example.source ??= sourceName(file);
        if (this.#keep(wanted, example, drop)) yield example as ExampleOf[S];
      }
    }
  }

  #keep(shape: Shape, example: Example, drop: (reason: string) => void): boolean {
    const { dropTies, minResponseChars = 0, stripThinking: strip } = this.#options;
    const responses = responseFields[shape];
    const fields = example as unknown as Record<string, string>;
    if (strip) for (const name of responses) fields[name] = stripThinking(fields[name] as string);
    if (dropTies && shape === 'preference') {
      const { chosen, rejected, margin } = example as PreferencePair;
      if (chosen.trim() === rejected.trim() || margin === 0) {
        drop('ties');
        return false;
      }
    }
    if (responses.some((name) => (fields[name] as string).trim().length < minResponseChars)) {
      drop('tiny responses');
      return false;
    }
    return true;
  }

  #columnsFor(row: Row): ColumnNames {
    const { columns = {}, knownColumns = {} } = this.#options;
    const there = Object.entries(knownColumns).filter(([, name]) => Object.hasOwn(row, name));
    return { ...Object.fromEntries(there), ...columns };
  }

  #empty(tally: Tally): UserError {
    if (tally.rows === 0) return new UserError(`${this.name}: the dataset is empty.`);
    const { ties = 0 } = tally.dropped;
    if (ties > 0 && ties === tally.totalDropped && tally.badRows === 0 && this.#side === undefined) {
      return new UserError(
        `${this.name}: ${ties === 1 ? 'its one pair is a tie' : `all ${ties} pairs are ties`}, so there is nothing to learn from.`,
      );
    }
    const part = this.#side === undefined ? '' : ` in the ${this.#side.validation ? 'validation' : 'training'} part`;
    const fault = tally.faults[0] === undefined ? '' : ` The first broken row: ${tally.faults[0]}.`;
    return new UserError(`${this.name}: no usable examples${part}: ${tally.summary()}.${fault}`);
  }
}

const responseFields: Record<Shape, string[]> = {
  preference: ['chosen', 'rejected'],
  unpaired: ['completion'],
  graded: ['solution'],
  prompts: [],
  messages: [],
  text: [],
  steps: [],
};

/** Vitter's algorithm R, in the order of the rows: every example is equally likely, and only the kept ones are held. */
async function reservoir<T>(items: AsyncIterable<T>, size: number, seed: number, tally: Tally): Promise<T[]> {
  const random = new Random(seed);
  const kept: { item: T; place: number }[] = [];
  let seen = 0;
  for await (const item of items) {
    if (seen < size) kept.push({ item, place: seen });
    else {
      const slot = random.int(0, seen);
      if (slot < size) kept[slot] = { item, place: seen };
    }
    seen++;
  }
  if (seen > kept.length) tally.dropped['not sampled'] = seen - kept.length;
  return kept.sort((a, b) => a.place - b.place).map(({ item }) => item);
}
