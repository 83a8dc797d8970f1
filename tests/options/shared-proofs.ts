/** Proofs for the options that all trainers share; each trainer proves them in runs of its own. */
import { dirname } from 'node:path';
import { expect } from 'vitest';
import { changes, fails, mends, type Options, type Proof, refused, seen } from './trainer-walk.ts';

/** Files of the test that calls: `options.yaml` sets lr 0.5; `other` is another model. */
type At = (name: string) => string;

/** The base of the runs neither evaluates nor saves on the way: most options need neither. */
export const evaluating = { evalSteps: 1 };
const saving = { saveSteps: 2 };

/** `train` is the trainer as a program calls it. */
export const runProofs = (
  at: At,
  otherData: () => Options,
  train: (options: { dryRun: true }) => PromiseLike<unknown>,
) => ({
  config: changes('weights', () => at('options.yaml'), { lr: undefined }),
  resumeFrom: seen(async (run) => {
    const first = await run({ runName: 'to-resume', ...saving });
    const second = await run({ resumeFrom: first.folder, maxSteps: 3 });
    expect(second.folder).toBe(first.folder);
    expect(second.steps).toEqual([1, 2, 3]);
  }),
  allowChangedData: [
    refused(true, /nothing is resumed/),
    seen(async (run) => {
      const { folder } = await run({ runName: 'to-change', ...saving });
      const changed = { resumeFrom: folder, maxSteps: 3, ...otherData() };
      await expect(run(changed)).rejects.toThrow(/--allow-changed-data/);
      await run({ ...changed, allowChangedData: true });
    }),
  ],
  // The command line plans and stops; a program is told to ask for the plan.
  dryRun: seen(() => expect(train({ dryRun: true })).rejects.toThrow(/dry-run.*command line/)),
  outputDir: seen(async (run) => {
    expect(dirname((await run({ outputDir: at('placed') })).folder)).toBe(at('placed'));
  }),
  logDir: seen(async (run) => {
    const { logs } = await run({ logDir: at('placed-logs'), reportTo: ['tensorboard'] });
    expect(logs.join()).toMatch(/tfevents/);
  }),
  runName: seen(async (run) => expect((await run({ runName: 'mine' })).folder).toMatch(/mine$/)),
  seed: changes('weights', 7),
  reportTo: seen(async (run) => {
    expect((await run({ reportTo: ['none'], logDir: at('no-logs') })).logs).toEqual([]);
  }),
  wandbProject: refused('x', /--report-to wandb/),
});

export const modelProofs = (at: At) => ({
  model: changes('weights', () => at('other')),
  tokenizer: mends(
    () => at('model'),
    () => ({ model: at('bare') }),
  ),
  dtype: changes('weights', 'bfloat16'),
  device: fails('cuda:99', /cuda/i),
});

/** `data.jsonl` is what runs train on, `others.jsonl` other rows of its kind, `parts/` has a test part, `broken.jsonl` a broken row. */
export const dataProofs = (at: At) => ({
  dataset: changes('weights', () => at('others.jsonl')),
  split: [changes('weights', 'test', () => ({ dataset: at('parts') })), refused('test', /file/)],
  subset: refused('x', /file/),
  evalDataset: changes('evaluations', () => at('others.jsonl'), { ...evaluating, validationSplit: undefined }),
  evalSplit: [
    changes('evaluations', 'test', () => ({ ...evaluating, evalDataset: at('parts'), validationSplit: undefined })),
    refused('test', /there is none/),
  ],
  validationSplit: [
    changes('evaluations', 0.75, evaluating),
    refused(0.5, /--eval-dataset/, () => ({ evalDataset: at('others.jsonl') })),
  ],
  subsetSize: changes('weights', 9),
  maxLength: changes('metrics', 30),
  promptFormat: changes('metrics', 'raw'),
  onBadRow: mends('skip', () => ({ dataset: at('broken.jsonl') })),
  tokenBudget: changes('metrics', 60, { batchSize: undefined }),
  maxSteps: changes('metrics', 1),
});

/** Of trainers that read a dataset in micro-batches of examples. */
export const batchSizeProof = [changes('weights', 3), refused(3, /--token-budget/, { tokenBudget: 60 })];

/** Nothing is held out. */
export const noneHeldOut: [Options, RegExp] = [{ validationSplit: 0 }, /--validation-split 0/];

/** An option that is read by evaluations only. */
export const evaluatedOnly = (value: unknown) => [
  refused(value, /--eval-steps -1/, { evalSteps: -1 }),
  refused(value, noneHeldOut[1], { ...evaluating, ...noneHeldOut[0] }),
];

/** Of trainers that choose a best model only where they are asked to. */
export const noBestChosen = refused(true, /no best model is chosen/, evaluating);

export const optimizerProofs = {
  epochs: changes('metrics', 2, { maxSteps: undefined }),
  batchSize: changes('weights', 3),
  gradAccum: changes('weights', 3),
  lr: changes('weights', 0.02),
  lrSchedule: changes('weights', 'constant'),
  warmupRatio: [changes('weights', 0.7), refused(0.5, /--warmup-steps decides/, { warmupSteps: 1 })],
  warmupSteps: changes('weights', 2),
  weightDecay: changes('weights', 0.5),
  maxGradNorm: changes('metrics', 1e-4),
  gradientCheckpointing: changes('blocks', true),
  exact: changes('ordered', true),
  shard: changes('notes', 'optimizer'),
};

interface Evaluated {
  /** A measure that changes from step to step, and which way round each step is worse than the one before. */
  metric: string;
  greaterIsBetter: boolean;
  /** Other ways in which a trainer has nothing to evaluate. */
  unevaluated: readonly [Options, RegExp][];
  /** What makes a run evaluate. */
  evaluating?: Options;
}

export const cadenceProofs = ({ metric, greaterIsBetter, unevaluated, evaluating: on = evaluating }: Evaluated) => {
  const worsening = { ...on, metricForBestModel: metric, greaterIsBetter };
  const evaluated = (value: unknown): Proof[] => [
    refused(value, /--eval-steps -1/, { evalSteps: -1 }),
    ...unevaluated.map(([given, because]) => refused(value, because, { ...on, ...given })),
  ];
  return {
    evalSteps: changes('evaluations', 2, on),
    saveSteps: changes('files', 1),
    logSteps: changes('metrics', 2),
    saveTotalLimit: [changes('files', 1, { saveSteps: 1 }), refused(1, /--save-steps -1/)],
    saveModel: changes('files', false),
    metricForBestModel: [fails('eval/nothing', /It gives:/, on), ...evaluated(metric)],
    greaterIsBetter: [
      changes('weights', !greaterIsBetter, { ...worsening, loadBestModelAtEnd: true }),
      refused(true, /--eval-steps -1/, { evalSteps: -1, metricForBestModel: metric }),
    ],
    earlyStoppingPatience: [
      changes('metrics', 1, { ...worsening, maxSteps: 4 }),
      changes('metrics', 1, { ...on, lr: 0, maxSteps: 4 }), // by the metric that the trainer names
      ...evaluated(1),
    ],
    loadBestModelAtEnd: [changes('weights', true, worsening), ...evaluated(true)],
  };
};

const adapters = { lora: true };
/** `biased` is a model with biases, `adapted` one that has an adapter. */
export const loraProofs = (at: At) => {
  const onAdapter = (value: unknown) =>
    refused(value, /has an adapter already/, () => ({ ...adapters, model: at('adapted') }));
  return {
    lora: changes('files', true),
    quantType: [changes('weights', 'int4', adapters), fails('int4', /train adapters on them with --lora/)],
    loraR: [changes('weights', 3, adapters), refused(3, /--lora/), onAdapter(3)],
    loraAlpha: [changes('weights', 5, adapters), refused(5, /--lora/), onAdapter(5)],
    loraTargetModules: [changes('weights', ['v_proj'], adapters), refused(['v_proj'], /--lora/), onAdapter(['v_proj'])],
    loraBias: [
      changes('weights', 'all', () => ({ ...adapters, model: at('biased') })),
      refused('all', /--lora/),
      refused('all', /biases/, adapters),
      onAdapter('all'),
    ],
    useRslora: [changes('weights', true, adapters), refused(true, /--lora/), onAdapter(true)],
    useDora: [changes('weights', true, adapters), refused(true, /--lora/), onAdapter(true)],
  };
};
export const loraDropoutProof = (at: At) => [
  changes('weights', 0.5, adapters),
  refused(0.5, /--lora/),
  refused(0.5, /has an adapter already/, () => ({ ...adapters, model: at('adapted') })),
];
