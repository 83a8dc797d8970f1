import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { compareMethods } from './compare.ts';
import { methodsOf } from './config.ts';
import { comparisonResults } from './results.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-compare-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('compare', () => {
  it('runs policy and preference methods on one budget and judges them alike', async () => {
    const prompts = ['red', 'blue', 'yes', 'no', 'good', 'bad'].map((prompt) => JSON.stringify({ prompt }));
    writeFileSync(join(folder, 'prompts.jsonl'), prompts.join('\n'));
    const body =
      'export default (batch) => batch.map(({ response }) => (response.codePointAt(0) ?? 1) % 2 === 0 ? 1 : 0);';
    writeFileSync(join(folder, 'even.mjs'), body);
    const outputDir = join(folder, 'out');
    const { results, runs, start } = await compareMethods({
      model: await tinyModel(join(folder, 'model')),
      methods: ['grpo', 'dpo', 'kto'],
      dataset: join(folder, 'prompts.jsonl'),
      promptFormat: 'raw',
      rewardModule: join(folder, 'even.mjs'),
      steps: 20,
      judgements: 2,
      evalNumPrompts: 2,
      evalSamples: 8,
      seeds: [1],
      groupSize: 4,
      batchSize: 4,
      gradAccum: 1,
      maxNewTokens: 1,
      lr: 0.01,
      lrSchedule: 'constant',
      eosPenalty: 0,
      topP: 1,
      outputDir,
    });
    expect(runs.map(({ method, samples, steps }) => [method, samples, steps])).toEqual(
      ['grpo', 'dpo', 'kto'].map((method) => [method, 320, 20]),
    );
    for (const run of runs) {
      expect(run.judgements.map(({ step }) => step)).toEqual([0, 10, 20]);
      expect(run.judgements.at(-1)?.kl).toBeGreaterThan(0);
      for (const name of ['training_stats.json', 'model/model.safetensors'])
        expect(existsSync(join(outputDir, run.method, name))).toBe(true);
    }
    const online = runs[0]?.judgements.at(-1)?.metrics.sampled_reward;
    expect(online).toBeGreaterThan(start.metrics.sampled_reward as number);
    const saved = JSON.parse(readFileSync(join(outputDir, 'comparison', 'comparison_results.json'), 'utf8'));
    expect(Object.keys(saved)).toEqual(['grpo', 'dpo', 'kto', 'relative', 'start']);
    expect(Object.keys(saved.dpo)).toEqual(['stability', 'convergence', 'efficiency', 'quality']);
    expect(Math.min(...(Object.values(results.relative.time_ratios) as number[]))).toBe(1);
    expect(readFileSync(join(outputDir, 'comparison', 'comparison_report.txt'), 'utf8')).toContain('same judge');
    for (const name of ['comparison.png', 'report.html'])
      expect(existsSync(join(outputDir, 'comparison', name))).toBe(true);
  });

  it('finds winners by what the judge measured', () => {
    const at = (step: number, accuracy: number) => ({ step, metrics: { reward: accuracy, accuracy }, kl: 0 });
    const run = (method: string, values: number[], seconds: number) => ({
      ...{ method, seed: 1, history: [], seconds, samples: 1, steps: 4, answers: [] },
      judgements: values.map((value, i) => at(2 * i, value)),
    });
    const { relative, methods } = comparisonResults(at(0, 0.2), [
      run('quick', [0.2, 0.5, 0.5], 10),
      run('slow', [0.2, 0.4, 0.9], 40),
    ]);
    expect(relative.winners).toEqual({
      quality: 'slow',
      stability: 'quick',
      convergence: 'quick',
      efficiency: 'quick',
    });
    expect(relative.time_ratios).toEqual({ quick: 1, slow: 4 });
    expect(methods.slow?.convergence).toMatchObject({
      improvement: { mean: 0.9 - 0.2 },
      steps_to_90_percent: { mean: 4 },
    });
  });

  it('knows every method by name', () => {
    expect(methodsOf(['GRPO', 'kto_pair', 'grpo'])).toEqual([
      { name: 'grpo', kind: 'policy' },
      { name: 'kto-pair', kind: 'preference' },
    ]);
    expect(methodsOf(['all']).length).toBe(22);
    expect(() => methodsOf(['grop'])).toThrow('Did you mean "grpo"');
  });
});
