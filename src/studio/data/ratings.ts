/**
 * Ratings of a dataset's pairs, kept as lines of a file below the studio's folder: one per vote, one per undo, so that
 * nothing is lost and a restart goes on where it was.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { basename, join } from 'node:path';
import { appendLine } from '../../line-file.ts';
import { wilson } from '../../rewards/error-analysis.ts';
import type { ExportRatingsAnswer, Rating, RatingTally } from '../api/data.ts';
import { shownHere } from '../http/shown.ts';
import type { Examples } from './examples.ts';

/** A line of the file. */
type Line = (Kept & { undone?: undefined }) | { index: number; undone: true; time: number };

interface Kept extends Rating {
  /** Whether the reward model that was loaded preferred the same. */
  modelAgrees?: boolean;
  voter: string;
}

export class RatingFile {
  readonly #path: string;
  readonly #exported: string;
  readonly #ratings = new Map<number, Kept>();
  /** Indexes in the order in which they were rated. */
  readonly #order: number[] = [];

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

  get ratings(): ReadonlyMap<number, Rating> {
    return this.#ratings;
  }

  add(rating: Omit<Kept, 'time' | 'voter'>): Rating {
    const kept: Kept = { ...rating, voter: userInfo().username, time: Date.now() };
    this.#append(kept);
    return kept;
  }

  undo(): Rating | undefined {
    const index = this.#order.at(-1);
    if (index === undefined) return undefined;
    const rating = this.#ratings.get(index);
    this.#append({ index, undone: true, time: Date.now() });
    return rating;
  }

  tally(): RatingTally {
    const all = [...this.#ratings.values()];
    const decided = all.filter(({ agrees }) => agrees !== undefined);
    const judged = all.filter(({ modelAgrees }) => modelAgrees !== undefined);
    return {
      rated: decided.length,
      ties: all.filter(({ vote }) => vote === '=').length,
      skipped: all.filter(({ vote }) => vote === 'skip').length,
      ...shareOf('agreement', decided.filter(({ agrees }) => agrees).length, decided.length),
      ...shareOf('modelAgreement', judged.filter(({ modelAgrees }) => modelAgrees).length, judged.length),
    };
  }

  /** Writes the rated pairs as preferences: the rater's choice is the chosen one; ties and skips are left out. */
  export({ rows }: Examples): ExportRatingsAnswer {
    const pairs = [...this.#ratings.values()].flatMap(({ index, agrees, voter, time, note }) => {
      const row = rows[index];
      const [chosen, rejected] = row?.responses ?? [];
      if (agrees === undefined || row === undefined || chosen === undefined || rejected === undefined) return [];
      const [better, worse] = agrees ? [chosen, rejected] : [rejected, chosen];
      const about = { index, voter, time: new Date(time).toISOString(), ...(note === undefined ? {} : { note }) };
      return [{ prompt: row.prompt, chosen: better.text, rejected: worse.text, ...about }];
    });
    writeFileSync(this.#exported, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(''));
    return { path: shownHere(this.#exported), pairs: pairs.length };
  }

  #append(line: Line): void {
    mkdirSync(join(this.#path, '..'), { recursive: true });
    appendLine(this.#path, line);
    this.#take(line);
  }

  #take(line: Line): void {
    const at = this.#order.lastIndexOf(line.index);
    if (at >= 0) this.#order.splice(at, 1);
    if (line.undone) this.#ratings.delete(line.index);
    else {
      this.#ratings.set(line.index, line);
      this.#order.push(line.index);
    }
  }
}

function shareOf(name: 'agreement' | 'modelAgreement', agreed: number, all: number): Partial<RatingTally> {
  if (all === 0) return {};
  const [low, high] = wilson(agreed, all);
  return { [name]: { value: agreed / all, low, high } };
}
