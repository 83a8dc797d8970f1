/**
 * One rollout to the token. Log-probs, reference and advantages are stored; entropy and ratio need a model, so they come
 * with a checkpoint, whose weights then score the same tokens.
 */
import { join, resolve } from 'node:path';
import { policyAlgorithm, policyOptions } from '../../algorithms/index.ts';
import { loadModel, type Model, packResponses, tokenLogprobs, withoutDropout } from '../../models/index.ts';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { openRun, type RolloutTokens, readJson } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import type { RolloutDetail, RolloutToken } from '../api/rollouts.ts';
import { k3 } from './mean-kl.ts';

/** Log-probs and entropies of a response under a checkpoint. */
interface Scored {
  logprobs: ArrayLike<number>;
  entropies: ArrayLike<number>;
}

export class TokenView implements Disposable {
  #tokenizers = new Map<string, Tokenizer | undefined>();
  #loaded: { path: string; model: Model } | undefined;
  #last: Promise<unknown> = Promise.resolve();

  async tokens(
    run: RunEntry,
    stored: RolloutTokens,
    checkpoint: string | undefined,
  ): Promise<Pick<RolloutDetail, 'tokens' | 'promptTokens' | 'scoredUnder' | 'clip'>> {
    const tokenizer = await this.#tokenizer(run);
    const clip = clipOf(run);
    const scored = checkpoint === undefined ? undefined : await this.#score(run, stored, checkpoint);
    const texts = pieces(tokenizer, stored.completionIds);
    return {
      tokens: texts.map((text, t) => tokenOf(stored, t, text, scored, clip)),
      promptTokens: pieces(tokenizer, stored.promptIds).map((text, t) => ({ id: stored.promptIds[t] as number, text })),
      ...(clip === undefined ? {} : { clip }),
      ...(checkpoint === undefined ? {} : { scoredUnder: checkpoint }),
    };
  }

  [Symbol.dispose](): void {
    this.#loaded?.model.dispose();
    this.#loaded = undefined;
  }

  /** Of one of the run's checkpoints, else of the model that it began from; undefined where none can be read. */
  async #tokenizer({ path, snapshots, model }: RunEntry): Promise<Tokenizer | undefined> {
    if (this.#tokenizers.has(path)) return this.#tokenizers.get(path);
    const from = openRun(path).info?.cwd ?? '.';
    const folders = [
      ...snapshots.map((snapshot) => snapshot.path),
      ...(model === undefined ? [] : [resolve(from, model)]),
    ];
    let found: Tokenizer | undefined;
    for (const folder of folders) {
      found = await Tokenizer.load(folder).catch(() => undefined);
      if (found !== undefined) break;
    }
    if (found !== undefined) this.#tokenizers.set(path, found);
    return found;
  }

  /** One after another: there is one model, and a second request may want another one. */
  #score(run: RunEntry, stored: RolloutTokens, name: string): Promise<Scored> {
    const scored = this.#last.then(() => this.#scoreNow(run, stored, name));
    this.#last = scored.catch(() => {});
    return scored;
  }

  /** The checkpoint stays loaded for the next rollout; another one takes its place. */
  async #scoreNow(run: RunEntry, { promptIds, completionIds, sequence }: RolloutTokens, name: string): Promise<Scored> {
    const snapshot = run.snapshots.find((each) => each.name === name);
    if (snapshot === undefined)
      throw new ApiError(404, `This run has no checkpoint "${name.slice(0, 100)}".`, { code: 'not_found' });
    if (this.#loaded?.path !== snapshot.path) {
      this.#loaded?.model.dispose();
      this.#loaded = undefined;
      this.#loaded = { path: snapshot.path, model: await loadModel(snapshot.path) };
    }
    const { decoder } = this.#loaded.model;
    const { temperature = 1 } = openRun(run.path).config as { temperature?: number };
    const ids = Int32Array.from([...promptIds, ...(sequence?.ids ?? completionIds)]);
    const asked = {
      ids,
      promptLength: promptIds.length,
      ...(sequence && { spans: sequence.spans }),
      starts: sequence?.starts,
    };
    return withoutDropout(decoder, () =>
      scope(() =>
        noGrad(() => {
          const { batch, tokens } = packResponses([asked], decoder);
          const { logp, entropy } = tokenLogprobs(decoder, decoder.forward(batch), batch, tokens, temperature);
          return { logprobs: logp.numbers(), entropies: entropy.numbers() };
        }),
      ),
    );
  }
}

function tokenOf(
  stored: RolloutTokens,
  t: number,
  text: string,
  scored: Scored | undefined,
  clip: RolloutDetail['clip'],
): RolloutToken {
  const logprob = stored.logprobs[t] as number;
  const advantage = stored.advantages?.[t] ?? 0;
  const refLogprob = stored.refLogprobs?.[t];
  const value = stored.values?.[t];
  const token: RolloutToken = { id: stored.completionIds[t] as number, text, logprob, advantage };
  if (refLogprob !== undefined) {
    token.refLogprob = refLogprob;
    token.kl = k3(logprob, refLogprob);
  }
  if (value !== undefined) token.value = value;
  if (scored !== undefined) {
    token.entropy = scored.entropies[t];
    const ratio = Math.exp((scored.logprobs[t] as number) - logprob);
    token.ratio = ratio;
    if (clip !== undefined) token.clipped = advantage > 0 ? ratio > clip.high : advantage < 0 && ratio < clip.low;
  }
  return token;
}

/** The text that each token adds; a character of several tokens comes with its last. */
function pieces(tokenizer: Tokenizer | undefined, ids: Int32Array): string[] {
  if (tokenizer === undefined) return Array.from(ids, (id) => `⟨${id}⟩`);
  const stream = tokenizer.stream({ skipSpecialTokens: false });
  const texts = Array.from(ids, (id) => stream.push(id));
  const rest = stream.flush();
  if (rest !== '' && texts.length > 0) texts[texts.length - 1] += rest;
  return texts;
}

interface ClipConfig {
  algorithm?: string;
  cliprange?: number;
  clip_low?: number;
  clip_high?: number;
}

/** The clip range of the run's algorithm, where it has one. */
function clipOf({ path }: RunEntry): RolloutDetail['clip'] {
  const config = readJson<ClipConfig>(join(path, 'config.json')) ?? {};
  if (config.algorithm === undefined) return undefined;
  try {
    const { clip_low: clipLow = config.cliprange, clip_high: clipHigh = config.cliprange } = config;
    const options = policyOptions(policyAlgorithm(config.algorithm), { clipLow, clipHigh });
    return { low: 1 - options.clipLow, high: 1 + options.clipHigh };
  } catch {
    return undefined;
  }
}
