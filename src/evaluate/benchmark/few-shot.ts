/** Few-shot examples, drawn for each question from the set's train split, the same for every model. */
import { Random } from '../../random.ts';
import type { Question } from '../suites/question.ts';

/**
 * `count` examples for a question. They depend only on the seed and the question's text, so neither `--limit` nor
 * another model changes them. The question itself is never among them. If the set has subjects, examples have the
 * question's subject.
 */
export function shotsFor(question: Question, pool: readonly Question[], count: number, seed: number): Question[] {
  if (count === 0) return [];
  const others = pool.filter(({ text }) => text !== question.text);
  const own = others.filter(({ subject }) => subject === question.subject);
  const usable = question.subject !== undefined && own.length >= count ? own : others;
  return new Random('few-shot', seed, question.text).sample(usable, count);
}
