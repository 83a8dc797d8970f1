/** `attune evaluate reward|policy|benchmark`: each in its own file. */
import type { Command } from 'commander';
import { registerEvaluateBenchmark } from './evaluate-benchmark.ts';
import { registerEvaluatePolicy } from './evaluate-policy.ts';
import { registerEvaluateReward } from './evaluate-reward.ts';

export function register(program: Command): void {
  const evaluate = program.command('evaluate').description('evaluate a trained reward model or policy');
  registerEvaluateReward(evaluate);
  registerEvaluatePolicy(evaluate);
  registerEvaluateBenchmark(evaluate);
}
