/**
 * Measures what quantisation costs a policy: its KL from the original on the original's responses.
 *
 *     const { results } = await quantizePolicy({ model: 'models/tiny', task: 'number_sorting:1', quantType: 'int4' });
 *     results.kl_evaluation.kl_exact;
 */
import { setImmediate as turn } from 'node:timers/promises';
import type { z } from 'zod';
import { UserError } from '../../errors.ts';
import {
  deviceOf,
  dtypeOf,
  loadModel,
  loadTokenizer,
  type Model,
  type PromptedResponse,
  Sampler,
  withoutDropout,
} from '../../models/index.ts';
import { heldOutPrompts } from '../../rollouts/opening.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import { resolveConfig, resolveInput } from '../../runs/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { checkPromptSource, policySchema } from '../../trainers/policy/config.ts';
import { rewardModelAsPolicy } from '../../trainers/policy-model.ts';
import { type QuantizePolicyConfig, quantizePolicySchema } from './config.ts';
import { divergences, meanPerToken, predictingRows, type TokenDivergence } from './divergence.ts';
import { outputFolder, trainedWith, writeOutput } from './folder.ts';
import { layerLosses } from './layers.ts';
import { policyCharts, policyReport } from './report.ts';
import {
  type KlEvaluation,
  namedByType,
  type PolicyMeasurement,
  type QuantizeOptions,
  type QuantizePolicyResults,
} from './results.ts';
import { sizeOf, stopwatch } from './size.ts';
import { quantisedTwin } from './twin.ts';

/** Quantises a policy to 8 or 4 bits, measures its divergence from the original, and saves it. */
export async function quantizePolicy(
  input: z.input<typeof quantizePolicySchema>,
  options: QuantizeOptions = {},
): Promise<{ results: QuantizePolicyResults; folder: string; report: string }> {
  const config = resolveInput(quantizePolicySchema, input);
  const { progress } = options;
  const folder = outputFolder(config.model, config.quantType, config.outputDir);
  const device = deviceOf(config.device);
  const tokenizer = await loadTokenizer(config.model, progress);
  using original = await loadModel(config.model, { device, dtype: dtypeOf(config.dtype, device), progress });
  if (original.head !== null) throw await rewardModelAsPolicy(config.model);
  const prompts = await promptsOf(config, tokenizer, options);
  using twin = quantisedTwin(original, config.quantType, progress);
  const { quantised } = twin;
  const responses = await sampleResponses(config, original, tokenizer, prompts, options);
  const compared = await compare(config, [original, quantised], responses, options);
  const speed = {
    original: await writingSpeed(config, original, tokenizer, prompts, options),
    quantized: await writingSpeed(config, quantised, tokenizer, prompts, options),
  };
  const tokens = responses.reduce((sum, { ids }) => sum + ids.length, 0);
  const measured = (model: Model, seconds: number, written: number): PolicyMeasurement => ({
    ...sizeOf(model),
    eval_seconds: seconds,
    eval_tokens_per_second: tokens / seconds,
    generated_tokens_per_second: written,
  });
  const own = measured(original, compared.seconds[0], speed.original);
  const quantized = measured(quantised, compared.seconds[1], speed.quantized);
  const results: QuantizePolicyResults = {
    model: config.model,
    quant_type: config.quantType,
    original: own,
    quantized,
    kl_evaluation: klEvaluation(compared.tokens),
    comparison: {
      size_reduction_pct: 100 * (1 - quantized.size_bytes / own.size_bytes),
      speedup_eval: own.eval_seconds / quantized.eval_seconds,
      speedup_generation: speed.quantized / speed.original,
    },
    layers: layerLosses(
      original,
      quantised,
      responses.slice(0, 8).map(({ ids }) => ids),
    ),
    model_saved: !config.skipSave,
  };
  const report = policyReport(results);
  await writeOutput(folder, {
    results: namedByType(results),
    report,
    charts: policyCharts(results, compared.tokens),
    title: `${config.model} in ${config.quantType}`,
    model: config.skipSave ? null : { model: quantised, tokenizer },
  });
  return { results, folder, report };
}

/** Held-out prompts of the given data, or of the data that the checkpoint was trained on. */
async function promptsOf(
  config: QuantizePolicyConfig,
  tokenizer: Tokenizer,
  { progress }: QuantizeOptions,
): Promise<PolicyPrompt[]> {
  const { dataset, subset, task, promptFormat, system, promptMaxLength, seed, numPrompts } = config;
  const asked = { dataset, subset, task, promptFormat, system, promptMaxLength, seed };
  const trained = await trainedWith(config.model);
  const data =
    dataset === undefined && task === undefined ? { ...asked, ...pick(trained, ['dataset', 'subset', 'task']) } : asked;
  if (data.dataset === undefined && data.task === undefined)
    throw new UserError(`${config.model} does not say what it was trained on: name prompts with --dataset, or --task.`);
  checkPromptSource(data);
  const given = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined));
  const { config: policy } = resolveConfig(policySchema, {
    flags: { ...given, evalNumPrompts: numPrompts, evalSteps: 1 },
  });
  const prompts = (await heldOutPrompts(policy, tokenizer, { progress })).slice(0, numPrompts);
  if (prompts.length === 0) throw new UserError('There are no prompts to answer.');
  return prompts;
}

const pick = (record: Record<string, unknown>, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, record[name]]));

/** One response of the original to each prompt. Prompts with an empty response are left out. */
async function sampleResponses(
  { maxNewTokens, temperature, seed }: QuantizePolicyConfig,
  model: Model,
  tokenizer: Tokenizer,
  prompts: readonly PolicyPrompt[],
  { signal, progress }: QuantizeOptions,
): Promise<PromptedResponse[]> {
  using sampler = new Sampler(model, { tokenizer });
  const requests = prompts.map(({ ids }, i) => ({
    prompt: ids,
    maxNewTokens,
    temperature,
    stopIds: tokenizer.eosIds,
    seed: seed + i,
  }));
  const written = await sampler.generate(requests, { signal, progress });
  signal?.throwIfAborted();
  return written.flatMap((group, i) => {
    const prompt = prompts[i] as PolicyPrompt;
    return group
      .filter(({ ids }) => ids.length > 0)
      .map(({ ids }) => ({ ids: Int32Array.from([...prompt.ids, ...ids]), promptLength: prompt.ids.length }));
  });
}

async function compare(
  { temperature }: QuantizePolicyConfig,
  pair: readonly [Model, Model],
  responses: readonly PromptedResponse[],
  { signal, progress }: QuantizeOptions,
): Promise<{ tokens: TokenDivergence[]; seconds: [number, number] }> {
  const perPass = 8;
  const bar = progress?.start('comparing', responses.length, 'responses');
  const tokens: TokenDivergence[] = [];
  const seconds: [number, number] = [0, 0];
  // warm-up: the first pass includes one-time costs
  for (const model of pair)
    scope(() => {
      noGrad(() => predictingRows(model, responses.slice(0, 1)));
    });
  for (let start = 0; start < responses.length; start += perPass) {
    signal?.throwIfAborted();
    const part = responses.slice(start, start + perPass);
    scope(() =>
      noGrad(() => {
        const rows = pair.map((model, i) => {
          const watch = stopwatch();
          const found = withoutDropout(model.decoder, () => predictingRows(model, part));
          found.targets.select(0, 0).item(); // waits for the device
          seconds[i as 0 | 1] += watch();
          return found;
        }) as [ReturnType<typeof predictingRows>, ReturnType<typeof predictingRows>];
        const lengths = part.map(({ ids, promptLength }) => ids.length - Math.max(1, promptLength));
        const both = [rows[0].rows, rows[1].rows] as const;
        tokens.push(...divergences(pair, both, rows[0].targets, lengths, temperature));
      }),
    );
    bar?.advance(part.length);
    await turn();
  }
  bar?.done();
  return { tokens, seconds };
}

function klEvaluation(responses: readonly TokenDivergence[]): KlEvaluation {
  const sampled = meanPerToken(
    responses.map(({ original, quantised }) => original.map((p, i) => p - (quantised[i] as number))),
  );
  const exact = meanPerToken(responses.map(({ kl }) => kl));
  const total = responses.reduce((sum, { kl }) => sum + kl.length, 0);
  return {
    kl_divergence: sampled.mean,
    kl_standard_error: sampled.error,
    kl_exact: exact.mean,
    kl_exact_standard_error: exact.error,
    mean_original_logprob: meanPerToken(responses.map(({ original }) => original)).mean,
    mean_quantized_logprob: meanPerToken(responses.map(({ quantised }) => quantised)).mean,
    same_top_token: responses.reduce((sum, { sameTop }) => sum + sameTop, 0) / total,
    total_tokens: total,
    num_completions: responses.length,
  };
}

/** Tokens per second over a few responses, without stop tokens so that both models write equally many. */
async function writingSpeed(
  { maxNewTokens, temperature, seed }: QuantizePolicyConfig,
  model: Model,
  tokenizer: Tokenizer,
  prompts: readonly PolicyPrompt[],
  { signal }: QuantizeOptions,
): Promise<number> {
  using sampler = new Sampler(model, { tokenizer });
  const most = Math.min(64, maxNewTokens);
  const requests = (count: number) =>
    prompts.slice(0, count).map(({ ids }, i) => ({ prompt: ids, maxNewTokens: most, temperature, seed: seed + i }));
  await sampler.generate(requests(1), { signal }); // warm-up: the first response includes one-time costs
  const watch = stopwatch();
  const written = await sampler.generate(requests(8), { signal });
  return written.flat().reduce((sum, { ids }) => sum + ids.length, 0) / watch();
}
