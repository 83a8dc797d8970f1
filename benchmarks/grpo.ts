/**
 * One GRPO step as `attune train policy` takes it — rollouts, reference, advantages, loss, AdamW — beside the same in plain
 * transformers: 2 prompts with 8 answers each. Rollout and training are given apart.
 *
 *     npm run bench -- grpo [--device cuda] [--steps 3] [--no-peer]
 */
import { initModel, type Model, Sampler } from '../src/models/index.ts';
import { AdamW } from '../src/nn/index.ts';
import { rewardFunction } from '../src/rewards/index.ts';
import { resolveConfig } from '../src/runs/index.ts';
import { threads } from '../src/tensor/index.ts';
import type { Tokenizer } from '../src/text/index.ts';
import { trainLoop } from '../src/trainers/loop.ts';
import { algorithmOf, policySchema } from '../src/trainers/policy-config.ts';
import { ListPrompts } from '../src/trainers/policy-prompts.ts';
import { PolicyTask } from '../src/trainers/policy-task.ts';
import { runPeer } from './peer.ts';
import type { Reading } from './run.ts';
import { LLAMA_15M, QWEN3_06B, randomIds } from './shapes.ts';

const GROUP = 8;
const PROMPTS = 2;

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const at = args.indexOf('--steps');
  const steps = at < 0 ? 3 : Number(args[at + 1]);
  const cuda = args.includes('--device') && (args[args.indexOf('--device') + 1] ?? '').startsWith('cuda');
  const [promptLength, answer] = cuda ? [128, 512] : [32, 64];
  const { seconds, rollout, prepare, train } = await grpoSteps({ cuda, steps, promptLength, answer });
  const tokens = PROMPTS * GROUP * answer;
  const share = (part: number) => `${Math.round((100 * part) / seconds)} %`;
  const reading: Reading = {
    ...{ name: 'grpo', stepSeconds: round(seconds), tokensPerSecond: Math.round(tokens / seconds) },
    ...{ rolloutTokensPerSecond: Math.round(tokens / rollout), rollout: share(rollout) },
    ...{ reference: share(prepare), training: share(train) },
  };
  const shape = JSON.stringify(cuda ? QWEN3_06B : LLAMA_15M);
  const peerArgs = ['--device', cuda ? 'cuda' : 'cpu', '--cases', 'grpo', '--shape', shape];
  const more = cuda ? [] : ['--threads', String(threads())];
  const peer = args.includes('--no-peer') ? undefined : runPeer('models_peer.py', [...peerArgs, ...more]).get('grpo');
  if (peer?.tokens_per_s !== undefined) {
    reading.peerTokensPerSecond = peer.tokens_per_s;
    reading.ratio = round(tokens / seconds / peer.tokens_per_s);
  }
  yield reading;
}

interface Times {
  seconds: number;
  rollout: number;
  prepare: number;
  train: number;
}

/** The fastest step but the first. */
async function grpoSteps(work: { cuda: boolean; steps: number; promptLength: number; answer: number }): Promise<Times> {
  const shape = work.cuda ? QWEN3_06B : LLAMA_15M;
  const device = work.cuda ? 'cuda:0' : 'cpu';
  using model = initModel(shape, { seed: 0, device });
  using frozen = initModel(shape, { seed: 0, device });
  model.decoder.requiresGrad_();
  using sampler = new Sampler(model);
  const { config } = resolveConfig(policySchema, {
    flags: {
      algorithm: 'grpo',
      groupSize: GROUP,
      batchSize: PROMPTS,
      gradAccum: 1,
      maxNewTokens: work.answer,
      topP: 0.9,
    },
  });
  const optimizer = new AdamW(model.trainable(), { lr: 1e-6 });
  const prompts = Array.from({ length: 64 }, (_, index) => ({
    ...{ index, messages: [], text: '' },
    ids: Int32Array.from(randomIds(work.promptLength, shape.vocab_size, index)),
  }));
  // random weights write no text: nothing ends an answer before its last token, and the reward is any number
  const tokenizer = { eosIds: [] as number[], decode: () => '' } as unknown as Tokenizer;
  let drawn = 0;
  const task = new PolicyTask({
    ...{ config, ...algorithmOf({ ...config, klCoef: 0.01 }), model, tokenizer, sampler, optimizer },
    reference: <T>(body: (reference: Model) => T) => body(frozen),
    critic: null,
    prompts: new ListPrompts(prompts, 1),
    scorer: rewardFunction((items) => items.map(() => Math.sin(++drawn))),
    totalSteps: work.steps + 1,
  });
  let best: Times = { seconds: Number.POSITIVE_INFINITY, rollout: 0, prepare: 0, train: 0 };
  for await (const { step, metrics } of trainLoop(task, { lr: 1e-6, maxGradNorm: 1 })) {
    const seconds = metrics['train/step_time'] as number;
    if (step === 1 || seconds >= best.seconds) continue;
    best = {
      ...{ seconds, rollout: metrics['train/rollout_seconds'] as number },
      ...{ prepare: metrics['train/prepare_seconds'] as number, train: metrics['train/train_seconds'] as number },
    };
  }
  optimizer.dispose();
  return best;
}

const round = (value: number) => Math.round(value * 100) / 100;
