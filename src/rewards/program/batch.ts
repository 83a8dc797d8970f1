/**
 * One call of a user's reward function. It gets frozen samples, its numbers are checked, and an error names the sample
 * that caused it. Used for functions in this process (function.ts) and for modules in their own thread
 * (module-thread.ts).
 */
import { AttuneError } from '../../errors.ts';
import { counted } from '../../spelling.ts';
import { messageOf } from '../../threads/messages.ts';
import { isReward, type RewardItem, type RewardParts } from '../scorer.ts';

/** One number per item, one list per named part, or the named parts of each item. The total is the sum of the parts. */
export type RewardOutput = ArrayLike<number> | Record<string, ArrayLike<number>> | readonly Record<string, number>[];

/** Your own reward function: takes a batch and returns numbers or named parts. */
export type RewardFunction = (
  items: readonly RewardItem[],
  options: { signal: AbortSignal },
) => RewardOutput | Promise<RewardOutput>;

/**
 * What failed. `sample`: some samples; others can still be scored. `batch`: the whole batch (time limit, thread ended).
 * `contract`: the function itself, for example by returning too few numbers.
 */
export type RewardFault = 'sample' | 'batch' | 'contract';

/** A reward function failed, or returned an invalid reward. */
export class RewardError extends AttuneError {
  override name = 'RewardError';
  readonly fault: RewardFault;

  constructor(message: string, fault: RewardFault, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}

export interface BatchOptions {
  name: string;
  signal: AbortSignal;
}

export async function scoreBatch(
  body: RewardFunction,
  items: readonly RewardItem[],
  options: BatchOptions,
): Promise<RewardParts> {
  const frozen = items.map(frozenCopy);
  const call = async (some: readonly RewardItem[]) =>
    toParts(await body(some, { signal: options.signal }), some.length, options.name);
  try {
    return await call(frozen);
  } catch (error) {
    if (options.signal.aborted || error instanceof RewardError) throw error;
    throw await culprit(frozen, error, (item) => call([item]), options.name);
  }
}

/**
 * A deep, frozen copy. A reward function must not change its samples, because verifiers and stored rollouts use them
 * afterwards.
 */
export function frozenCopy<T>(value: T): T {
  if (Array.isArray(value)) return Object.freeze(value.map(frozenCopy)) as T;
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.freeze(
    Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, frozenCopy(inner)])),
  ) as T;
}

/** After a failed batch, scores its items one by one to find the failing one. */
async function culprit(
  items: readonly RewardItem[],
  error: unknown,
  callOne: (item: RewardItem) => Promise<unknown>,
  name: string,
): Promise<RewardError> {
  for (const [index, item] of items.entries()) {
    try {
      await callOne(item);
    } catch (own) {
      const { prompt, response } = item;
      const shown = typeof prompt === 'string' ? prompt : (prompt.at(-1)?.content ?? '');
      return new RewardError(
        `The reward "${name}" failed on sample ${index} of ${items.length} (prompt ${short(shown)}, response ${short(response)}): ${messageOf(own)}`,
        'sample',
        { cause: own },
      );
    }
  }
  return new RewardError(
    `The reward "${name}" failed on a batch of ${items.length} samples: ${messageOf(error)}`,
    'sample',
    { cause: error },
  );
}

function short(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return JSON.stringify(line.length > 60 ? `${line.slice(0, 57)}…` : line);
}

function toParts(output: RewardOutput, count: number, name: string): RewardParts {
  const named = namedLists(output, count, name);
  const lists = Object.entries(named);
  if (lists.length === 0) throw new RewardError(`The reward "${name}" gave no parts for ${count} samples.`, 'contract');
  for (const [part, values] of lists) checkList(values, part, count, name);
  const total = Array.from({ length: count }, (_, i) =>
    lists.reduce((sum, [, values]) => sum + (values[i] as number), 0),
  );
  return { total, parts: named };
}

function checkList(values: readonly unknown[], part: string, count: number, name: string): void {
  const of = part === name ? '' : ` ("${part}")`;
  if (values.length !== count)
    throw new RewardError(
      `The reward "${name}" gave ${counted(values.length, 'number')}${of} for ${counted(count, 'sample')}; it must give one for each.`,
      'contract',
    );
  const odd = values.findIndex((value) => typeof value !== 'number');
  if (odd >= 0)
    throw new RewardError(
      `The reward "${name}" gave ${shown(values[odd])}${of} for sample ${odd}, which is ${kindOf(values[odd])}: a reward is a number.`,
      'contract',
    );
  const bad = values.findIndex((value) => !isReward(value as number));
  if (bad >= 0)
    throw new RewardError(
      `The reward "${name}" gave ${String(values[bad])}${of} for sample ${bad}: ${Number.isFinite(values[bad]) ? 'too large to compute with' : 'not a finite number'}.`,
      'sample',
    );
}

const shown = (value: unknown) => (typeof value === 'string' ? short(value) : String(value));
const kindOf = (value: unknown) =>
  value === null ? 'null' : value === undefined ? 'no value' : `of type ${typeof value}`;

function namedLists(output: RewardOutput, count: number, name: string): Record<string, number[]> {
  if (output === null || typeof output !== 'object')
    throw new RewardError(
      `The reward "${name}" gave ${shown(output)}; it must give one number per sample, or named parts.`,
      'contract',
    );
  if (typeof output.length === 'number') {
    const list = Array.from(output as ArrayLike<number | Record<string, number>>);
    if (typeof list[0] !== 'object' || list[0] === null) return { [name]: list as number[] };
    if (list.length !== count)
      throw new RewardError(`The reward "${name}" gave ${list.length} results for ${count} samples.`, 'contract');
    const rows = list as Record<string, number>[];
    const parts = [...new Set(rows.flatMap((row) => Object.keys(row ?? {})))];
    return Object.fromEntries(parts.map((part) => [part, rows.map((row) => row?.[part] as number)]));
  }
  return Object.fromEntries(
    Object.entries(output).map(([part, values]) => [part, listOf(values as ArrayLike<number>, part, name)]),
  );
}

function listOf(values: ArrayLike<number>, part: string, name: string): number[] {
  if (typeof values !== 'object' || values === null || typeof values.length !== 'number')
    throw new RewardError(
      `The reward "${name}" gave ${shown(values)} for its part "${part}"; it must give a list with one number per sample.`,
      'contract',
    );
  return Array.from(values);
}
