/** Every option of `attune compare` reaches the trainers that it is for, is read by the comparison or is refused; see handed-on.ts. */
import { expect } from 'vitest';
import { resolveInput } from '../../src/runs/index.ts';
import { compareSchema, methodsOf, policyConfig, preferenceFlags } from '../../src/workflows/compare/config.ts';
import { checkMethodOptions } from '../../src/workflows/compare/method-options.ts';
import { reaches, refused, seen, type Tree, walkHandedOn } from './handed-on.ts';

const read = (options: Tree) => resolveInput(compareSchema, options);

/** What PPO and DPO are given; an option that all trainers have must reach both. */
const given = (options: Tree) => {
  const config = read(options);
  const [ppo, dpo] = methodsOf(['ppo', 'dpo']) as [ReturnType<typeof methodsOf>[0], ReturnType<typeof methodsOf>[0]];
  checkMethodOptions(config, methodsOf(config.methods));
  return { policy: policyConfig(config, ppo, 0), preference: preferenceFlags(config, dpo, 0, 100) };
};
const reachesBoth = (value: unknown, other: Tree = {}) => [
  reaches(value, other),
  seen((name) => {
    const [without, with_] = [given(other), given({ ...other, [name]: value })];
    expect(JSON.stringify(with_.policy)).not.toBe(JSON.stringify(without.policy));
    expect(JSON.stringify(with_.preference)).not.toBe(JSON.stringify(without.preference));
  }),
];
/** Read by the comparison itself; src/workflows/compare/compare.test.ts has runs of it. */
const parsed = (value: unknown) => seen((name) => expect(read({ [name]: value })).toMatchObject({ [name]: value }));

const adapters = { lora: true };

walkHandedOn('compare', {
  schema: compareSchema,
  derive: given,
  put: (path, value) => ({ [path]: value }),
  proofs: {
    methods: refused(['nope'], /no method "nope"/),
    steps: reachesBoth(7),
    maxSeconds: parsed(3),
    seeds: parsed([1, 2]),
    judgements: parsed(2),
    evalNumPrompts: reaches(9),
    evalSamples: parsed(2),
    outputDir: reachesBoth('./x'),
    runName: parsed('mine'),
    groupSize: reachesBoth(6),
    preferenceLr: [reaches(0.1), refused(0.1, /trains on pairs/, { methods: ['grpo'] })],
    klCoef: reaches(0.3),
    clipRatio: reaches(0.3),
    entropyCoef: reaches(0.3),
    ppoEpochs: reaches(2),
    beta: [reaches(0.3), refused(0.3, /no effect on grpo/, { methods: ['grpo'] })],
    model: reachesBoth('./x'),
    tokenizer: reachesBoth('./x'),
    dtype: reachesBoth('bfloat16'),
    device: reachesBoth('cpu'),
    task: reaches('gcd:1'),
    dataset: reaches('./x.jsonl'),
    subset: [reaches('x'), refused('x', /--task/, { task: 'gcd:1' })],
    promptFormat: reachesBoth('raw'),
    promptMaxLength: reachesBoth(99),
    system: reaches('Be good.'),
    rewardModelPath: reaches('./rm'),
    rewardModule: reaches('./r.ts'),
    rewardWeights: reaches(['verifier=2']),
    verifierReward: reaches(true),
    formatReward: [reaches(true, { task: 'gcd:1' }), refused(true, /not used/)],
    eosPenalty: reaches(2),
    maxNewTokens: reachesBoth(33),
    temperature: reaches(0.5),
    topP: reaches(0.5),
    microBatchTokens: reaches(99),
    batchSize: reachesBoth(3),
    gradAccum: reaches(5),
    lr: reachesBoth(0.1),
    lrSchedule: reachesBoth('cosine'),
    warmupRatio: reachesBoth(0.3),
    warmupSteps: reachesBoth(3),
    weightDecay: reachesBoth(0.3),
    maxGradNorm: reachesBoth(0.3),
    gradientCheckpointing: reachesBoth(true),
    exact: reachesBoth(true),
    shard: reachesBoth('optimizer'),
    lora: reachesBoth(true),
    quantType: reachesBoth('int4'),
    loraR: [...reachesBoth(3, adapters), refused(3, /--lora/)],
    loraAlpha: reachesBoth(3, adapters),
    loraDropout: [...reachesBoth(0.3, adapters), refused(0.3, /trains on pairs/, { ...adapters, methods: ['grpo'] })],
    loraTargetModules: reachesBoth(['v_proj'], adapters),
    loraBias: reachesBoth('all', adapters),
    useRslora: reachesBoth(true, adapters),
    useDora: reachesBoth(true, adapters),
  },
});
