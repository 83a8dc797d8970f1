/**
 * Ratings of a dataset's pairs, kept as lines of a file below the studio's folder: one per vote, one per undo, so that
 * nothing is lost and a restart goes on where it was. A rating belongs to its pair by a hash of the texts: rows may be
 * added, removed or sorted. A pair that a set holds twice has one rating. Lines of earlier versions have no hash, and
 * belong to their row unless a pair there has a rating of its own.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { appendLine } from '../../line-file.ts';
import { wilson } from '../../rewards/error-analysis.ts';
import { voter } from '../../rewards/votes.ts';
import type { DataExample, ExportRatingsAnswer, Rating, RatingTally } from '../api/data.ts';
import { shownHere } from '../http/shown.ts';

/** A line of the file. */
type Line = (Kept & { undone?: undefined }) | { index: number; pair?: string; undone: true; time: number };

interface Kept extends Rating {
  /** Whether the reward model that was loaded preferred the same. */
  modelAgrees?: boolean;
  voter: string;
  /** Hash of the pair. */
  pair?: string;
}

/** What the file says of the rows as they are now. */
export interface FittedRatings {
  /** By row, in the order in which they were rated; `index` is the row of now. */
  ratings: ReadonlyMap<number, Kept>;
  /** Ratings of pairs that are no longer there. */
  lost: number;
}

/** The hash of a pair's texts: what a rating refers to. */
export function pairHash(prompt: DataExample['prompt'], chosen: string, rejected: string): string {
  const texts = [prompt.map(({ role, content }) => [role, content]), chosen, rejected];
  return createHash('sha256').update(JSON.stringify(texts)).digest('hex').slice(0, 16);
}

const keyOf = ({ pair, index }: { pair?: string; index: number }) => pair ?? rowKey(index);
const rowKey = (index: number) => `row ${index}`;

export class RatingFile {
  readonly #path: string;
  readonly #exported: string;
  /** By the pair's hash, or the row of a line without one, in the order in which they were rated. */
  readonly #ratings = new Map<string, Kept>();

  constructor(root: string, dataset: string, split: string | undefined) {
    const folder = join(root, 'ratings');
    const hash = createHash('sha256')
      .update(JSON.stringify([dataset, split ?? '']))
      .digest('hex')
      .slice(0, 8);
    const name = `${basename(dataset)
      .replace(/[^\w.-]/g, '_')
      .replace(/\.(jsonl|json|csv|parquet)(\.gz)?$/, '')}-${hash}`;
    // A log of votes is no dataset: its ending keeps it out of the list.
    this.#path = join(folder, `${name}.log`);
    this.#exported = join(folder, `${name}-preferences.jsonl`);
    if (!existsSync(this.#path)) return;
    for (const line of readFileSync(this.#path, 'utf8').split('\n')) {
      try {
        if (line !== '') this.#take(JSON.parse(line) as Line);
      } catch {
        // A line that was cut off by a crash.
      }
    }
  }

  /** Finds the rows that the ratings are about. */
  fitted(rows: readonly DataExample[]): FittedRatings {
    const places = new Map<string, number>();
    for (const { index, pair } of rows) if (pair !== undefined && !places.has(pair)) places.set(pair, index);
    const hashed = new Set(
      [...this.#ratings.values()].flatMap(({ pair }) => (pair === undefined ? [] : (places.get(pair) ?? []))),
    );
    const ratings = new Map<number, Kept>();
    for (const kept of this.#ratings.values()) {
      const { pair, index: then } = kept;
      // Of equal pairs the one that was rated, where it is still in its place.
      const now = pair === undefined || rows[then]?.pair === pair ? then : places.get(pair);
      if (now === undefined || rows[now] === undefined || (pair === undefined && hashed.has(now))) continue;
      ratings.set(now, { ...kept, index: now });
    }
    return { ratings, lost: this.#ratings.size - ratings.size };
  }

  add(rating: Omit<Kept, 'time' | 'voter'>): Rating {
    const kept: Kept = { ...rating, voter: voter(), time: Date.now() };
    this.#append(kept);
    return kept;
  }

  /** Takes back the newest rating of a pair that is still there. */
  undo(rows: readonly DataExample[]): Rating | undefined {
    const rating = [...this.fitted(rows).ratings.values()].at(-1);
    if (rating === undefined) return undefined;
    const { index, pair } = rating;
    this.#append({ index, ...(pair === undefined ? {} : { pair }), undone: true, time: Date.now() });
    return rating;
  }

  tally(rows: readonly DataExample[]): RatingTally {
    const { ratings, lost } = this.fitted(rows);
    const all = [...ratings.values()];
    const decided = all.filter(({ agrees }) => agrees !== undefined);
    const judged = all.filter(({ modelAgrees }) => modelAgrees !== undefined);
    return {
      rated: decided.length,
      ties: all.filter(({ vote }) => vote === '=').length,
      skipped: all.filter(({ vote }) => vote === 'skip').length,
      ...(lost === 0 ? {} : { lost }),
      ...shareOf('agreement', decided.filter(({ agrees }) => agrees).length, decided.length),
      ...shareOf('modelAgreement', judged.filter(({ modelAgrees }) => modelAgrees).length, judged.length),
    };
  }

  /** Writes the rated pairs as preferences: the rater's choice is the chosen one; ties and skips are left out. */
  export(rows: readonly DataExample[]): ExportRatingsAnswer {
    const { ratings, lost } = this.fitted(rows);
    const pairs = [...ratings.values()].flatMap(({ index, agrees, voter, time, note }) => {
      const row = rows[index];
      const [chosen, rejected] = row?.responses ?? [];
      if (agrees === undefined || row === undefined || chosen === undefined || rejected === undefined) return [];
      const [better, worse] = agrees ? [chosen, rejected] : [rejected, chosen];
      const about = { index, voter, time: new Date(time).toISOString(), ...(note === undefined ? {} : { note }) };
      return [{ prompt: row.prompt, chosen: better.text, rejected: worse.text, ...about }];
    });
    writeFileSync(this.#exported, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(''));
    return { path: shownHere(this.#exported), pairs: pairs.length, ...(lost === 0 ? {} : { lost }) };
  }

  #append(line: Line): void {
    makeFolder(join(this.#path, '..'));
    appendLine(this.#path, line);
    this.#take(line);
  }

  #take(line: Line): void {
    // A rating of the pair replaces one of its row from an earlier version; the newest comes last.
    this.#ratings.delete(keyOf(line));
    if (line.undone) return;
    if (line.pair !== undefined) this.#ratings.delete(rowKey(line.index));
    this.#ratings.set(keyOf(line), line);
  }
}

function shareOf(name: 'agreement' | 'modelAgreement', agreed: number, all: number): Partial<RatingTally> {
  if (all === 0) return {};
  const [low, high] = wilson(agreed, all);
  return { [name]: { value: agreed / all, low, high } };
}
