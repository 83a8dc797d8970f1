/**
 * Turns a tokenizer.json that was made from a SentencePiece model back into one. SentencePiece merges the neighbours
 * whose union has the best score. tokenizer.json lists the pairs in the order of these scores, so a pair's rank in the
 * list gives its score.
 */
import type { BpeModel } from '../../../text/tokenizer/bpe.ts';

/** The score of tokens that no merge produces: below that of every merge. */
const NEVER = -1e9;

export interface PieceScores {
  scores: number[];
  /** Whether the list has every pair of tokens whose union is a token: only then do both ways of merging agree. */
  complete: boolean;
}

export function sentencePieceScores(model: BpeModel, vocabSize: number): PieceScores {
  const scores = new Array<number>(vocabSize).fill(0);
  const merged = new Set<string>();
  const pairs = new Set<string>();
  model.merges.forEach((merge, rank) => {
    const [left, right] = typeof merge === 'string' ? (merge.split(' ') as [string, string]) : merge;
    const whole = left + right;
    pairs.add(`${left} ${right}`);
    if (merged.has(whole)) return;
    merged.add(whole);
    scores[model.vocab[whole] as number] = -rank;
  });
  let complete = true;
  for (const [token, id] of Object.entries(model.vocab)) {
    if (isByte(token)) continue;
    const cuts = unionsOf(token, model.vocab);
    if (cuts.length > 0 && !merged.has(token)) scores[id] = NEVER;
    if (cuts.some((cut) => !pairs.has(cut))) complete = false;
  }
  return { scores, complete };
}

const isByte = (token: string) => /^<0x[0-9A-F]{2}>$/.test(token);

/** The pairs of tokens whose union is this token. */
function unionsOf(token: string, vocab: Record<string, number>): string[] {
  const characters = Array.from(token);
  const found: string[] = [];
  for (let i = 1; i < characters.length; i++) {
    const left = characters.slice(0, i).join('');
    const right = characters.slice(i).join('');
    if (Object.hasOwn(vocab, left) && Object.hasOwn(vocab, right)) found.push(`${left} ${right}`);
  }
  return found;
}
