/**
 * Checks tokenizer.json before it reaches the native package. A panic there ends the whole process, and a chain of
 * replacements can turn one letter into gigabytes. Both are found here without running anything.
 */
import { patternRisk } from '../../pattern.ts';

const MOST_STEPS = 200;
const DEEPEST = 20;
/** The factor by which all replacements together may lengthen a text. */
const MOST_GROWTH = 1_000;
const MOST_TOKENS = 2 ** 24;

/** A message about what is wrong, or undefined. */
export function tokenizerProblem(json: Record<string, unknown>): string | undefined {
  const model = json.model as Record<string, unknown>;
  return (
    vocabularyProblem(model.vocab) ??
    mergesProblem(model.merges as unknown[]) ??
    addedProblem(json.added_tokens) ??
    ['normalizer', 'pre_tokenizer', 'post_processor', 'decoder']
      .map((name) => pipelineProblem(json, name))
      .find(Boolean)
  );
}

function vocabularyProblem(vocab: unknown): string | undefined {
  if (!isRecord(vocab)) return 'model.vocab must map tokens to ids';
  for (const token in vocab)
    if (!isId(vocab[token])) return `model.vocab gives ${JSON.stringify(token)} the id ${JSON.stringify(vocab[token])}`;
  return undefined;
}

function mergesProblem(merges: readonly unknown[]): string | undefined {
  const sound = (merge: unknown) =>
    typeof merge === 'string'
      ? merge.indexOf(' ', 1) > 0
      : Array.isArray(merge) && merge.length === 2 && merge.every((part) => typeof part === 'string');
  const place = merges.findIndex((merge) => !sound(merge));
  return place < 0 ? undefined : `model.merges[${place}] is not a pair of tokens`;
}

function addedProblem(tokens: unknown): string | undefined {
  if (!Array.isArray(tokens)) return 'added_tokens must be a list';
  const place = tokens.findIndex((token) => !isRecord(token) || typeof token.content !== 'string' || !isId(token.id));
  return place < 0 ? undefined : `added_tokens[${place}] must have a content and an id`;
}

/** Steps may contain steps (`normalizers`, `pretokenizers`, `processors`, `decoders`). */
function pipelineProblem(json: Record<string, unknown>, name: string): string | undefined {
  let steps = 0;
  let growth = 1;
  const look = (value: unknown, depth: number): string | undefined => {
    if (!isRecord(value)) return value == null ? undefined : 'a step is not an object';
    if (++steps > MOST_STEPS || depth > DEEPEST) return `more than ${MOST_STEPS} steps, or ${DEEPEST} inside another`;
    const { pattern, content } = value;
    const regex = isRecord(pattern) ? pattern.Regex : undefined;
    const risk = typeof regex === 'string' ? patternRisk(regex) : undefined;
    if (risk !== undefined)
      return `the regular expression ${JSON.stringify(regex).slice(0, 80)} could run for ever (${risk})`;
    if (value.type === 'Replace' && typeof content === 'string') {
      const literal = isRecord(pattern) && typeof pattern.String === 'string' ? pattern.String : '';
      growth *= Math.max(1, content.length / Math.max(1, literal.length));
      if (growth > MOST_GROWTH) return `replacements make a text more than ${MOST_GROWTH} times as long`;
    }
    for (const inner of Object.values(value)) {
      for (const step of Array.isArray(inner) ? inner : [inner]) {
        const problem = isRecord(step) && typeof step.type === 'string' ? look(step, depth + 1) : undefined;
        if (problem !== undefined) return problem;
      }
    }
    return undefined;
  };
  const problem = look(json[name], 0);
  return problem === undefined ? undefined : `${name}: ${problem}`;
}

function isId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < MOST_TOKENS;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
