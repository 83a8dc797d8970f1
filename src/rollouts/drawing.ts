/**
 * A step's rollouts with their scores. Prompts are dealt over the ranks by the expected length of their responses,
 * every rank samples and scores its share, and all ranks get all rollouts. A prompt's seed is that of its place in the
 * step, so samples do not depend on the rank that draws them.
 *
 * A rank that finishes early measures its rollouts piece by piece while it waits (`Measuring`). Once all rollouts are
 * there, unmeasured pieces are dealt over all ranks. A piece's numbers do not depend on the rank that measures it.
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
  /** Lengths of earlier responses, by prompt. */
  lengths?: ExpectedLengths;
  measuring?: Measuring;
  /** Plays episodes instead of sampling single responses. */
  player?: RolloutPlayer;
  /**
   * Called with this rank's rollouts as soon as their ids are known, so that the device can compute while texts and
   * scores are made.
   */
  onSampled?: (rollouts: readonly Rollout[]) => void;
}

/** Plays episodes. Their rollouts come with texts and scores. */
export interface RolloutPlayer {
  /** `longestPrompt`: tokens of the step's longest prompt on any rank. */
  play(
    sampler: RolloutSampler,
    prompts: readonly PolicyPrompt[],
    options: RolloutOptions & { longestPrompt: number },
  ): Promise<Rollout[]>;
}

/** Numbers computed for rollouts without knowing those of other ranks, such as log-probs under a reference. */
export interface Measuring {
  /** A rank's rollouts in pieces, the same on every rank. */
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
  started += performance.now() - sampled; // not part of the sampling time
  if (player === undefined) decodeResponses(own, tokenizer);
  const seconds = (performance.now() - started) / 1000;
  if (own.length > 0 && player === undefined) await scoreRollouts(scorer, own, signal);
  const rollouts = await exchanged(own, prompts, options);
  rollouts.sort((a, b) => a.group - b.group || a.rolloutIndex - b.rolloutIndex);
  if (player !== undefined) judgeEpisodes(rollouts);
  for (const rollout of rollouts) lengths?.saw(rollout);
  return { rollouts, seconds };
}

/** All ranks' rollouts, on every rank, all measured. */
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
  // Response lengths vary: a rank may finish minutes before another, longer than a collective operation waits.
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

/** Adds the measured fields to each rollout. */
export function assignEach(rollouts: readonly Rollout[], fields: readonly Partial<Rollout>[]): void {
  for (const [i, rollout] of rollouts.entries()) Object.assign(rollout, fields[i]);
}

/**
 * The fields to send to other ranks, which already have the prompt. In an episode `ids` holds more than prompt and
 * response.
 */
const carried = ({ prompt, ids, ...rest }: Rollout) => (rest.spans === undefined ? rest : { ...rest, ids });

function restored(rest: ReturnType<typeof carried>, prompts: readonly PolicyPrompt[]): Rollout {
  const prompt = prompts[rest.group] as PolicyPrompt;
  return { ids: Int32Array.from([...prompt.ids, ...rest.responseIds]), ...rest, prompt };
}

/** The mean response length of each prompt so far. New prompts get the mean over all. */
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
