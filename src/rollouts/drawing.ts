/**
 * Rollouts of a step, with their scores: prompts are dealt over the ranks by the length that their responses are expected to
 * have, every rank samples and scores its own, and all ranks get all rollouts. A prompt's seed is that of its place in the
 * step, so that the samples do not depend on who draws them.
 *
 * A rank that is done before others measures its rollouts meanwhile (`Measuring`), in pieces; those that nobody came to are dealt
 * over all ranks when all rollouts are there. What is measured of a piece does not depend on who does it.
 */
import { computeDealt, dealByCost } from '../dist/deal.ts';
import { traced } from '../dist/trace.ts';
import type { World } from '../dist/world.ts';
import type { RewardScorer } from '../rewards/index.ts';
import type { Tokenizer } from '../text/index.ts';
import type { PolicyPrompt } from './prompts.ts';
import { decodeResponses, type Rollout, type RolloutOptions, type RolloutSampler, sampleIds } from './rollout.ts';
import { judgeEpisodes, scoreRollouts } from './scoring.ts';

export interface DrawOptions extends RolloutOptions {
  world: World;
  /** Samples each prompt by itself, so that a response's log-probs do not depend on its neighbours in the batch. */
  exact?: boolean;
  /** How long responses to a prompt were before. */
  lengths?: ExpectedLengths;
  measuring?: Measuring;
  /** Plays episodes in place of sampling single responses. */
  player?: RolloutPlayer;
  /** Called with this rank's rollouts as soon as their ids are known: a device may compute while texts and scores are made. */
  onSampled?: (rollouts: readonly Rollout[]) => void;
}

/** Plays episodes: their rollouts come with texts and scores. */
export interface RolloutPlayer {
  /** `longestPrompt`: tokens of the longest prompt of the step, on all ranks. */
  play(
    sampler: RolloutSampler,
    prompts: readonly PolicyPrompt[],
    options: RolloutOptions & { longestPrompt: number },
  ): Promise<Rollout[]>;
}

/** What is computed for rollouts one by one, without those of other ranks: their log-probs under a reference, say. */
export interface Measuring {
  /** The rollouts of a rank in pieces, the same on every rank. */
  pieces(rollouts: readonly Rollout[]): Rollout[][];
  cost(piece: readonly Rollout[]): number;
  /** Fields to add to each rollout of a piece. */
  measure(piece: readonly Rollout[]): Partial<Rollout>[];
}

export async function drawRollouts(
  sampler: RolloutSampler,
  tokenizer: Tokenizer,
  scorer: RewardScorer,
  prompts: readonly PolicyPrompt[],
  options: DrawOptions,
): Promise<{ rollouts: Rollout[]; seconds: number }> {
  const { world, lengths, exact = false, signal, onSampled, player } = options;
  const longestPrompt = Math.max(...prompts.map(({ ids }) => ids.length));
  const cost = (prompt: PolicyPrompt) => prompt.ids.length + (lengths?.of(prompt) ?? options.maxNewTokens);
  const places = dealByCost(prompts.map(cost), world.size)[world.rank] as number[];
  let started = performance.now();
  const own: Rollout[] = [];
  for (const part of exact ? places.map((place) => [place]) : places.length > 0 ? [places] : []) {
    const asked = part.map((place) => prompts[place] as PolicyPrompt);
    const seeds = (k: number) => options.seeds(part[k] as number);
    const sample = () =>
      player === undefined
        ? sampleIds(sampler, tokenizer, asked, { ...options, seeds })
        : player.play(sampler, asked, { ...options, seeds, longestPrompt });
    for (const rollout of await traced('sample', sample)) {
      rollout.group = part[rollout.group] as number;
      own.push(rollout);
    }
  }
  const sampled = performance.now();
  onSampled?.(own);
  started += performance.now() - sampled; // not a part of sampling
  if (player === undefined) decodeResponses(own, tokenizer);
  const seconds = (performance.now() - started) / 1000;
  if (own.length > 0 && player === undefined) await scoreRollouts(scorer, own, signal);
  const rollouts = await exchanged(own, prompts, options);
  rollouts.sort((a, b) => a.group - b.group || a.rolloutIndex - b.rolloutIndex);
  if (player !== undefined) judgeEpisodes(rollouts);
  for (const rollout of rollouts) lengths?.saw(rollout);
  return { rollouts, seconds };
}

/** Every rank's rollouts, on every rank, all of them measured. */
async function exchanged(
  own: readonly Rollout[],
  prompts: readonly PolicyPrompt[],
  { world, measuring }: Pick<DrawOptions, 'world' | 'measuring'>,
): Promise<Rollout[]> {
  const pieces = measuring?.pieces(own) ?? [];
  let measured = 0;
  const work = () => {
    const piece = pieces[measured];
    if (piece === undefined) return false;
    measured++;
    assignEach(
      piece,
      traced('measure', () => (measuring as Measuring).measure(piece)),
    );
    return true;
  };
  // Lengths differ: a rank may be done minutes before another, longer than a collective waits.
  await world.meet('rollouts', measuring && work);
  if (world.size === 1) return [...own];
  const all = (await world.gather({ rollouts: own.map(carried), measured })).map((each) => ({
    ...each,
    rollouts: each.rollouts.map((one) => restored(one, prompts)),
  }));
  if (measuring) {
    const left = all.flatMap((each) => measuring.pieces(each.rollouts).slice(each.measured));
    const found = left.length === 0 ? [] : await computeDealt(world, left, measuring.cost, measuring.measure);
    for (const [i, piece] of left.entries()) assignEach(piece, found[i] as Partial<Rollout>[]);
  }
  return all.flatMap((each) => each.rollouts);
}

/** Adds its fields to each rollout. */
export function assignEach(rollouts: readonly Rollout[], fields: readonly Partial<Rollout>[]): void {
  for (const [i, rollout] of rollouts.entries()) Object.assign(rollout, fields[i]);
}

/** What the others do not know of a rollout; the prompt they do. An episode has ids besides those of its responses. */
const carried = ({ prompt, ids, ...rest }: Rollout) => (rest.spans === undefined ? rest : { ...rest, ids });

function restored(rest: ReturnType<typeof carried>, prompts: readonly PolicyPrompt[]): Rollout {
  const prompt = prompts[rest.group] as PolicyPrompt;
  return { ids: Int32Array.from([...prompt.ids, ...rest.responseIds]), ...rest, prompt };
}

/** The mean length of the responses to each prompt so far, and of all where a prompt is new. */
export class ExpectedLengths {
  readonly #byPrompt = new Map<number, number>();
  #count = 0;
  #mean = 0;

  of({ index }: PolicyPrompt): number | undefined {
    return this.#byPrompt.get(index) ?? (this.#count > 0 ? this.#mean : undefined);
  }

  saw({ prompt: { index }, responseIds: { length } }: Rollout): void {
    const before = this.#byPrompt.get(index) ?? length;
    this.#byPrompt.set(index, before + (length - before) / 2);
    this.#count++;
    this.#mean += (length - this.#mean) / this.#count;
  }
}
