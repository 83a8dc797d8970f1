/**
 * Evaluates a policy on a question set, with error bars: written answers (GSM8K, MATH), multiple choice by log-prob
 * (ARC, HellaSwag, MMLU), or instructions that code can check (IFEval). Two models are compared question by question.
 *
 *     const results = await evaluateBenchmark({ model: 'checkpoints/grpo/run', against: 'models/tiny', suite: 'gsm8k', limit: 200 });
 *     results.models[0].metrics.strict;        // { value: 0.42, interval: [0.35, 0.49], by: 'wilson', questions: 200 }
 *     results.comparison?.strict.mcnemar?.p;
 */
import { anything, checkArguments, integer, type Rule, whole } from '../../arguments.ts';
import type { DatasetSpec } from '../../data/index.ts';
import { checkNames, UserError } from '../../errors.ts';
import { checkVocabulary } from '../../models/files/tokenizer.ts';
import { type CacheDtype, type LoadOptions, loadModel, loadTokenizer } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { kebabCase } from '../../spelling.ts';
import type { Tokenizer } from '../../text/index.ts';
import { describeUndecidable, isCheckable } from '../instructions/follow.ts';
import { openSuite, type Suite, type SuiteOptions } from '../suites/open.ts';
import type { InstructionQuestion } from '../suites/question.ts';
import { openShotPool, type ShotPool } from '../suites/shot-pool.ts';
import type { Answered, AskingOptions, Outcome, Player } from './asking.ts';
import { askChoices } from './choices.ts';
import { askByWriting } from './responses.ts';
import { type BenchmarkResults, comparisonOf, figuresOf } from './results.ts';

/** The models, the questions, and how they are asked. */
export interface BenchmarkOptions extends SuiteOptions, Pick<LoadOptions, 'device' | 'dtype' | 'quantType'> {
  /** A folder or hub name, or a loaded model. */
  model: string | Player;
  /** Another model, which is asked the same questions with the same examples. */
  against?: string | Player;
  /** A known name (`gsm8k`, `mmlu`, …), a file, a folder, a hub name, or rows. */
  suite: DatasetSpec;
  /**
   * In the model's chat template, or as plain text. Default: plain for choices, chat for written answers if the
   * tokenizer has a template.
   */
  prompt?: 'chat' | 'raw';
  /** Added to the question in a chat. Default: the format's own; empty for none. */
  instruction?: string;
  system?: string;
  templateVariables?: Record<string, unknown>;
  /** Number of few-shot examples. Default: the known suite's usual number (GSM8K: 5) in raw prompts, otherwise none. */
  shots?: number;
  /** The source of few-shot examples. Default: the set's own train split. */
  shotsFrom?: DatasetSpec;
  /** Reports pass@1 … pass@k and maj@k of sampled responses, besides the greedy response. */
  k?: number;
  /** Number of responses to sample for each question. Default: k. */
  samples?: number;
  maxNewTokens?: number;
  temperature?: number;
  topP?: number;
  /** Additional strings that end a response. */
  stop?: readonly string[];
  /** As in `SamplerOptions`. */
  cacheDtype?: CacheDtype;
  progress?: Progress;
  signal?: AbortSignal;
}

/** The results, and each model's outcomes by question. */
export type BenchmarkEvaluation = BenchmarkResults & { readonly outcomes: readonly (readonly Outcome[])[] };

const player: Rule = {
  fits: (value) => typeof value === 'string' || typeof (value as Player | null)?.model === 'object',
  wanted: 'a folder, a name on the hub, or a model with its tokenizer',
};
const rules: Partial<Record<keyof BenchmarkOptions, Rule>> = {
  ...{ model: player, against: player, suite: anything },
  ...{ shots: whole(0), k: whole(0), samples: whole(0), maxNewTokens: whole(1), seed: integer },
};

const optionNames: Record<keyof BenchmarkOptions, true> = {
  ...{
    model: true,
    against: true,
    suite: true,
    prompt: true,
    instruction: true,
    system: true,
    templateVariables: true,
  },
  ...{ shots: true, shotsFrom: true, k: true, samples: true, maxNewTokens: true, temperature: true, topP: true },
  ...{ stop: true, cacheDtype: true, progress: true, signal: true, device: true, dtype: true, quantType: true },
  ...{ format: true, mode: true, choices: true, split: true, subset: true, limit: true, seed: true },
};

/** Evaluates one model, or two on the same questions. */
export async function evaluateBenchmark(options: BenchmarkOptions): Promise<BenchmarkEvaluation> {
  checkArguments('evaluateBenchmark', options, rules, ['model', 'suite']);
  checkNames('evaluateBenchmark', options, Object.keys(optionNames));
  const { k = 0, samples = k, seed = 42 } = options;
  if (samples < k) throw new UserError(`--k ${k} wants at least ${k} samples; --samples is ${samples}.`);
  const players = [options.model, ...(options.against === undefined ? [] : [options.against])];
  const tokenizers = await Promise.all(
    players.map((player) => (typeof player === 'string' ? loadTokenizer(player, options.progress) : player.tokenizer)),
  );
  const { suite, leftOut } = withoutUndecidable(await openSuite(options.suite, options));
  const prompt = options.prompt ?? promptOf(suite, tokenizers);
  // A known suite's usual number of examples is for plain prompts. Chat models are mostly asked without examples.
  const { shots = prompt === 'chat' ? 0 : (suite.known?.shots ?? 0) } = options;
  const pool = shots === 0 ? undefined : await openShotPool(suite, options);
  checkSettings(suite, shots, pool, k);
  checkRead(options, suite, { prompt, shots, samples });
  const {
    maxNewTokens = suite.format.kind === 'instructions' ? 1024 : 512,
    temperature = 1,
    topP = 1,
    stop = [],
    cacheDtype = 'model',
  } = options;
  const { instruction, system, templateVariables, progress, signal } = options;
  const asking: AskingOptions = {
    style: { chat: prompt === 'chat', instruction, system, templateVariables },
    shots,
    shotPool: pool?.questions ?? [],
    samples,
    k,
    maxNewTokens,
    temperature,
    topP,
    stop,
    cacheDtype,
    seed,
    progress,
    signal,
  };
  const answered: Answered[] = [];
  for (const [i, player] of players.entries())
    answered.push(
      await withPlayer(player, tokenizers[i] as Tokenizer, options, (loaded) => ask(suite, loaded, asking)),
    );
  const [first, second] = answered as [Answered, Answered?];
  const results: BenchmarkResults = {
    suite: suite.name,
    format: suite.format.name,
    mode: suite.mode,
    questions: suite.questions.length,
    left_out: leftOut,
    prompt,
    shots,
    shots_from: pool?.from ?? null,
    ...(samples > 0 && { sampling: { samples, temperature, top_p: topP } }),
    ...(suite.mode === 'generate' && { max_new_tokens: maxNewTokens }),
    ...(cacheDtype !== 'model' && { cache_dtype: cacheDtype }),
    seed,
    models: players.map((player, i) => figuresOf(nameOf(player), suite, answered[i] as Answered, seed)),
    ...(second && { comparison: comparisonOf(first.outcomes, second.outcomes, seed) }),
  };
  const outcomes = answered.map((each) => each.outcomes.map((outcome, i) => placed(outcome, suite, i)));
  return Object.defineProperty(results, 'outcomes', { value: outcomes }) as BenchmarkEvaluation;
}

const ask = (suite: Suite, player: Player, options: AskingOptions) =>
  suite.mode === 'choice' ? askChoices(suite, player, options) : askByWriting(suite, player, options);

/** The outcome with the question's index in the set, for the samples file. */
const placed = (outcome: Outcome, { places, questions }: Suite, i: number): Outcome => ({
  ...outcome,
  sample: { index: places[i], question: questions[i]?.text, ...outcome.sample },
});

const nameOf = (player: string | Player) =>
  typeof player === 'string' ? player : (player.model.folder ?? 'the model given');

function promptOf(suite: Suite, tokenizers: readonly Tokenizer[]): 'chat' | 'raw' {
  if (suite.mode === 'choice') return 'raw';
  return tokenizers.every(({ chatTemplate }) => chatTemplate !== undefined) ? 'chat' : 'raw';
}

/** Models given by name are loaded one after the other, so that two need no more memory than the larger. */
async function withPlayer<T>(
  player: string | Player,
  tokenizer: Tokenizer,
  { device, dtype, quantType, progress }: BenchmarkOptions,
  body: (player: Player) => Promise<T>,
): Promise<T> {
  if (typeof player !== 'string') return body(player);
  using model = await loadModel(player, { device, dtype, quantType, progress });
  if (model.head !== null)
    throw new UserError(`${player} is a reward model, not a policy; evaluate it with attune evaluate reward --suite.`);
  checkVocabulary(model, tokenizer);
  return await body({ model, tokenizer });
}

/** IFEval: removes instructions that code cannot check, and prompts that have no others. */
function withoutUndecidable(suite: Suite): { suite: Suite; leftOut: Record<string, number> } {
  if (suite.format.kind !== 'instructions') return { suite, leftOut: {} };
  const asked = suite.questions as InstructionQuestion[];
  const kept = asked.flatMap(({ instructions }, i) => (instructions.some(isCheckable) ? [i] : []));
  const undecided = asked.flatMap(({ instructions }) =>
    instructions.filter((instruction) => !isCheckable(instruction)),
  );
  const counts = Map.groupBy(undecided, describeUndecidable);
  if (kept.length === 0) throw new UserError(`${suite.name}: none of its instructions can be checked by code.`);
  return {
    suite: {
      ...suite,
      questions: kept.map((i) => asked[i] as InstructionQuestion),
      places: kept.map((i) => suite.places[i] as number),
    },
    leftOut: {
      ...Object.fromEntries([...counts].map(([id, list]) => [`instruction ${id}`, list.length])),
      ...(kept.length < asked.length && { 'prompts without another instruction': asked.length - kept.length }),
    },
  };
}

/** Refuses options that have no effect on these questions, asked in this way. */
function checkRead(
  options: BenchmarkOptions,
  suite: Suite,
  { prompt, shots, samples }: { prompt: 'chat' | 'raw'; shots: number; samples: number },
): void {
  const isChoice = suite.mode === 'choice';
  const unread: [boolean, (keyof BenchmarkOptions)[], string][] = [
    [isChoice, ['maxNewTokens', 'stop', 'samples', 'cacheDtype'], 'choices are compared, and nothing is written'],
    [samples === 0, ['temperature', 'topP'], 'no responses are sampled; ask for some with --k or --samples'],
    [prompt === 'raw', ['instruction', 'system', 'templateVariables'], 'prompts are plain text; it is for chats'],
    [shots === 0, ['shotsFrom'], 'no examples are shown; ask for some with --shots'],
    [!isChoice, ['choices'], 'the model writes its answers; it is for --mode choice'],
  ];
  for (const [holds, names, because] of unread) {
    const given = names.filter((name) => holds && options[name] !== undefined);
    if (given.length > 0)
      throw new UserError(`${given.map((name) => `--${kebabCase(name)}`).join(', ')}: has no effect here: ${because}.`);
  }
}

function checkSettings(suite: Suite, shots: number, pool: ShotPool | undefined, k: number): void {
  const { kind } = suite.format;
  if (shots > 0 && kind === 'instructions')
    throw new UserError('--shots: prompts with instructions to follow have no worked examples.');
  if (pool !== undefined && pool.questions.length <= shots)
    throw new UserError(`--shots ${shots}: there are only ${pool.questions.length} examples (${pool.from}).`);
  if (k > 0 && kind !== 'answer')
    throw new UserError('--k is for answers that are written and compared: choices and instructions are decided once.');
}
