/**
 * The rows of ranked sets: pairs as in RewardBench (prompt, chosen, rejected, subset), several of each (RewardBench 2),
 * and best-of-k sets (prompt, responses, and the index of the best or a score for each).
 */
import type { ColumnNames, PreferencePair, Row } from '../../data/index.ts';
import { type Mapping, mapRows } from '../../data/shapes/mapping.ts';
import { RowProblem, toMessages, toText } from '../../data/shapes/messages.ts';
import type { Message } from '../../text/index.ts';
import { type TiePlace, tiePlace } from './ties.ts';

/** A prompt with responses, some of which are right to prefer. */
export interface RankedItem {
  prompt: Message[];
  responses: string[];
  /** For each response, whether preferring it is right. */
  right: boolean[];
  subset?: string;
  /** In RewardBench 2's subset "Ties": which of two linked questions this is. */
  tie?: TiePlace;
}

/**
 * A reader for one set's rows. The first row decides whether they are pairs. Rows without a subset get the file's name
 * as theirs.
 */
export function itemReader(where: string, columns?: ColumnNames): (row: Row, file?: string) => RankedItem {
  let pairs: Mapping | undefined;
  return (row, file) => {
    const named = ['subset', 'category', 'source'].map((name) => row[name]).find((value) => typeof value === 'string');
    const subset = (named as string | undefined) ?? file;
    const tie = subset === 'Ties' ? tiePlace(row.id) : undefined;
    const part = { ...(subset === undefined ? {} : { subset }), ...(tie === undefined ? {} : { tie }) };
    if ('responses' in row) return { ...bestOfK(row), ...part };
    if (isTexts(row.chosen) && isTexts(row.rejected)) return { ...listed(row, row.chosen, row.rejected), ...part };
    pairs ??= mapRows(row, { shape: 'preference', where, columns });
    const [pair] = pairs.read(row, 0, () => {}) as PreferencePair[];
    if (pair === undefined) throw new RowProblem('the two responses cannot be told apart');
    const { prompt, chosen, rejected } = pair;
    return { prompt: [...prompt], responses: [chosen, rejected], right: [true, false], ...part };
  };
}

const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string');

const listed = (row: Row, chosen: readonly string[], rejected: readonly string[]): RankedItem => ({
  prompt: toMessages(row.prompt, 'prompt'),
  responses: [...chosen, ...rejected],
  right: [...chosen.map(() => true), ...rejected.map(() => false)],
});

/** The best response by index (`best`, `best_index`, `label`), or by the highest of `scores` (ties: all right). */
function bestOfK(row: Row): RankedItem {
  const { responses: given, scores } = row;
  if (!Array.isArray(given) || given.length < 2) throw new RowProblem('"responses" must be a list of two or more');
  const responses = given.map((response) => toText(response, 'responses'));
  const prompt = toMessages(row.prompt ?? row.question, 'prompt');
  const column = ['best', 'best_index', 'label'].find((name) => row[name] !== undefined && row[name] !== null);
  if (column !== undefined) {
    const best = Number(row[column]);
    if (!(Number.isInteger(best) && best >= 0 && best < responses.length))
      throw new RowProblem(`"${column}" must be the place of one of ${responses.length} responses, from 0`);
    return { prompt, responses, right: responses.map((_, i) => i === best) };
  }
  if (!Array.isArray(scores) || scores.length !== responses.length || !scores.every(Number.isFinite))
    throw new RowProblem('a best-of-k row needs "best" (a place from 0), or "scores" with a number for each response');
  const top = Math.max(...(scores as number[]));
  if (scores.every((score) => score === top))
    throw new RowProblem('all responses have the same score: none is the best');
  return { prompt, responses, right: scores.map((score) => score === top) };
}
