/** `attune train policy`: online RL with any of the policy-gradient algorithms. */
import type { Command } from 'commander';
import type { MetricRow } from '../runs/index.ts';
import type { TrainStep } from '../trainers/loop/loop.ts';
import { policySchema } from '../trainers/policy/config.ts';
import { policyPlan } from '../trainers/policy/plan.ts';
import { policyJudged, startPolicy } from '../trainers/policy/policy.ts';
import { newSignals, type Signal } from '../trainers/policy/signals.ts';
import { evaluationLine, registerTrainVerb, type TrainVerb } from './options/training.ts';
import { hasConsole } from './terminal/console.ts';
import { print, tell } from './terminal/print.ts';

export const policyVerb: TrainVerb<typeof policySchema> = {
  name: 'policy',
  description:
    'online RL: grpo and its kin, ppo, rloo, reinforce, raft, against verifiers, reward models or your own function; opd, against a teacher',
  schema: policySchema,
  start: (resolved, options) =>
    startPolicy(resolved, {
      ...options,
      ...(hasConsole()
        ? { onStep: explainer(), onStart: (metrics: Record<string, number>) => print(evaluationLine(0, metrics)) }
        : {}),
      onRewardFailure: (error) => tell(error.message),
    }),
  judged: policyJudged,
  plan: ({ config, sources, resume }, { progress }, refuse) =>
    policyPlan(config, { progress, refuse, sources, resume }),
  examples: [
    'attune train policy --model models/tiny --task number_sorting:1 --algorithm grpo --lr 2e-4 --max-new-tokens 64',
    'attune train policy --model Qwen/Qwen3-0.6B --dataset openai/gsm8k --algorithm dapo --lora',
    'attune train policy --model models/tiny --task gcd:1 --reward-model-path checkpoints/rm/run/final --algorithm ppo',
    'attune train policy --model models/tiny --dataset prompts.jsonl --reward-module ./my-reward.ts',
    'attune train policy --model checkpoints/sft/run/final --env guess:1-2 --max-new-tokens 128 --max-turns 6',
    'attune train policy --model Qwen/Qwen3-0.6B --env ./my-env.ts --tool-timeout 20 --lora',
    'attune train policy --model Qwen/Qwen3-0.6B --agent ./my-agent.ts --max-turns 8 --lora',
    'attune train policy --algorithm opd --teacher Qwen/Qwen3-4B --model Qwen/Qwen3-0.6B --dataset prompts.jsonl',
  ],
};

export function registerTrainPolicy(train: Command): void {
  registerTrainVerb(train, policyVerb);
}

/** Prints each signal once: explanations of metrics that are often misread. */
export function explainer(print: (line: string) => void = (line) => tell(line)): (step: TrainStep) => void {
  const history: MetricRow[] = [];
  const told = new Set<Signal['kind']>();
  return ({ step, metrics }) => {
    history.push({ step, time: Date.now(), ...metrics } as MetricRow);
    for (const { level, message } of newSignals(history, told))
      print(`${level === 'warning' ? 'Attention' : 'Note'}, step ${step}: ${message}`);
  };
}
