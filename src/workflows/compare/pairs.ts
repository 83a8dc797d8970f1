/** Pairs for the preference losses of a comparison, from the starting model's own responses. */
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { type Model, Sampler } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { drawRollouts } from '../../rollouts/drawing.ts';
import { openPrompts } from '../../rollouts/opening.ts';
import { promptLabel } from '../../rollouts/records.ts';
import { type Rollout, rolloutSeeds } from '../../rollouts/rollout.ts';
import type { Tokenizer } from '../../text/index.ts';
import { type CompareConfig, pairing, policyConfig } from './config.ts';

export interface Pairs {
  rows: { prompt: string; chosen: string; rejected: string }[];
  samples: number;
  seconds: number;
}

/**
 * Pairs of the starting model's responses to the training prompts. In each group the best is paired with the worst, the
 * second best with the second worst, and so on.
 */
export async function writePairs(
  config: CompareConfig,
  seed: number,
  { model, tokenizer, scorer }: { model: Model; tokenizer: Tokenizer; scorer: RewardScorer },
): Promise<Pairs> {
  const started = performance.now();
  const own = policyConfig(config, pairing, seed);
  const { prompts } = await openPrompts(own, tokenizer);
  using sampler = new Sampler(model, { tokenizer });
  const world = await joinWorld();
  const perStep = config.batchSize * config.gradAccum;
  const rows: Pairs['rows'] = [];
  for (let step = 1; step <= config.steps; step++) {
    const seeds = rolloutSeeds(own.seed, step, 0);
    const { rollouts } = await drawRollouts(sampler, tokenizer, scorer, await prompts.take(perStep), {
      ...own,
      seeds,
      world,
    });
    for (const group of Map.groupBy(rollouts, (rollout) => rollout.group).values()) rows.push(...ranked(group));
    const late = config.maxSeconds !== undefined && performance.now() - started > 500 * config.maxSeconds;
    if (await world.any(late)) break;
  }
  if (rows.length === 0)
    throw new UserError(
      'The starting model gave no two responses that the judge tells apart, so there are no pairs for preference losses.',
    );
  return { rows, samples: config.steps * perStep * config.groupSize, seconds: (performance.now() - started) / 1000 };
}

function ranked(group: readonly Rollout[]): Pairs['rows'] {
  const sorted = [...group].sort((a, b) => b.score - a.score);
  const rows: Pairs['rows'] = [];
  for (let i = 0; i < Math.floor(sorted.length / 2); i++) {
    const [chosen, rejected] = [sorted[i] as Rollout, sorted[sorted.length - 1 - i] as Rollout];
    if (chosen.score <= rejected.score) break;
    rows.push({ prompt: promptLabel(chosen.prompt), chosen: chosen.response, rejected: rejected.response });
  }
  return rows;
}
