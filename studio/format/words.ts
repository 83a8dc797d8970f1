/**
 * What changed between two texts, word by word: the longest common subsequence of their words (Hunt and McIlroy 1976),
 * after the common beginning and end have been taken off.
 */
export interface Piece {
  kind: 'same' | 'gone' | 'new';
  text: string;
}

/** Beyond this many cells the table would take too long: the middle is then shown as replaced. */
const mostCells = 4_000_000;

/** Words with the white space that follows them, so that the pieces join to the text again. */
export function wordsOf(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

export function wordDifference(before: string, after: string): Piece[] {
  const [a, b] = [wordsOf(before), wordsOf(after)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const pieces: Piece[] = [{ kind: 'same', text: a.slice(0, head).join('') }];
  pieces.push(...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)));
  pieces.push({ kind: 'same', text: a.slice(a.length - tail).join('') });
  return joined(pieces);
}

function middle(a: readonly string[], b: readonly string[]): Piece[] {
  const width = b.length + 1;
  if ((a.length + 1) * width > mostCells)
    return [
      { kind: 'gone', text: a.join('') },
      { kind: 'new', text: b.join('') },
    ];
  // common[i, j]: the length of the longest common subsequence of a from i and b from j.
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] as number;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const pieces: Piece[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pieces.push({ kind: 'same', text: a[i] as string });
      i++;
      j++;
    } else if (i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1)))
      pieces.push({ kind: 'gone', text: a[i++] as string });
    else pieces.push({ kind: 'new', text: b[j++] as string });
  }
  return pieces;
}

/** Neighbours of one kind become one piece; what is gone stands before what is new. */
function joined(pieces: readonly Piece[]): Piece[] {
  const result: Piece[] = [];
  for (const { kind, text } of pieces) {
    if (text === '') continue;
    const last = result.at(-1);
    const beforeLast = result.at(-2);
    if (last?.kind === kind) last.text += text;
    else if (kind === 'gone' && last?.kind === 'new' && beforeLast?.kind === 'gone') beforeLast.text += text;
    else if (kind === 'gone' && last?.kind === 'new') result.splice(-1, 0, { kind, text });
    else result.push({ kind, text });
  }
  return result;
}
