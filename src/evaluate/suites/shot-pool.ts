/** The source of few-shot examples: the train split of a set, or the set itself without the question being asked. */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { DatasetSpec } from '../../data/index.ts';
import { UserError } from '../../errors.ts';
import type { Progress } from '../../progress.ts';
import { type RowsWanted, readSuite, suiteRows } from '../suite-rows.ts';
import type { Suite } from './open.ts';
import type { Question } from './question.ts';

/** Questions usable as examples, and a description of their source. */
export interface ShotPool {
  questions: readonly Question[];
  from: string;
}

/** Opens the examples of a suite. `shotsFrom` names another file or set. */
export async function openShotPool(
  { format, known, source, subset, all }: Suite,
  { shotsFrom, progress }: { shotsFrom?: DatasetSpec; progress?: Progress } = {},
): Promise<ShotPool> {
  const itself = { questions: all, from: 'the set itself, without the question' };
  const read = async (spec: DatasetSpec, from: string, part: Omit<RowsWanted, 'progress'> = {}) => {
    const rows = await suiteRows(spec, { ...part, progress });
    return {
      questions: await readSuite(
        rows,
        from,
        (row, subject): Question => ({ ...(subject !== undefined && { subject }), ...format.read(row) }),
      ),
      from,
    };
  };
  if (shotsFrom !== undefined) return read(shotsFrom, typeof shotsFrom === 'string' ? shotsFrom : 'the rows given');
  if (known !== undefined) {
    const { shotsSplit: split, shotsWithout: without } = known;
    return split === undefined ? itself : read(source, `the ${split} part`, { split, subset, without, isKnown: true });
  }
  if (typeof source !== 'string') return itself;
  const beside = join(dirname(source), basename(source).replace(/(?<![a-z])(test|validation|dev)(?![a-z])/i, 'train'));
  if (basename(beside) !== basename(source) && existsSync(beside)) return read(beside, beside);
  if (existsSync(source) && statSync(source).isFile()) return itself;
  try {
    const pool = await read(source, 'the train part', { split: 'train', subset });
    // A folder whose file names tell no splits counts as one split.
    return pool.questions.length === all.length && pool.questions[0]?.text === all[0]?.text ? itself : pool;
  } catch (error) {
    if (!(error instanceof UserError) || !/: no split "/.test(error.message)) throw error;
    return itself;
  }
}
