import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attune } from '../../../tests/support/command-line.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { compareMethods } from './compare.ts';
import { type CompareInput, compareSchema, methodsOf, policyConfig, preferenceFlags } from './config.ts';
import { checkMethodOptions, type Method, type MethodOptionValues, ownOptions } from './method-options.ts';
import { comparisonResults } from './results.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-compare-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('compare', () => {
  it('says what is left of one that is stopped before a method has ended', async () => {
    const stopped: CompareInput = {
      ...{ model: await tinyModel(join(folder, 'model')), methods: ['grpo'], task: 'gcd:1', promptFormat: 'raw' },
      ...{ steps: 2, judgements: 1, evalNumPrompts: 2, evalSamples: 2, groupSize: 2, maxNewTokens: 1 },
      outputDir: join(folder, 'stopped'),
    };
    await expect(compareMethods(stopped, { signal: AbortSignal.abort('SIGINT') })).rejects.toMatchObject({
      name: 'AbortError',
      message: expect.stringMatching(/before a method had ended: .* is in .*stopped\/run_/),
    });
  });

  it('keeps the methods that have ended where the next is stopped before its first step', async () => {
    writeFileSync(
      join(folder, 'even.mjs'),
      'export default (b) => b.map(({ response }) => (response.codePointAt(0) ?? 1) % 2);',
    );
    writeFileSync(
      join(folder, 'few.jsonl'),
      ['red', 'blue', 'yes', 'no', 'good'].map((prompt) => JSON.stringify({ prompt })).join('\n'),
    );
    const given: CompareInput = {
      ...{ model: await tinyModel(join(folder, 'model')), methods: ['grpo', 'dpo'], promptFormat: 'raw' },
      ...{ dataset: join(folder, 'few.jsonl'), rewardModule: join(folder, 'even.mjs'), steps: 2, judgements: 1 },
      ...{
        evalNumPrompts: 2,
        evalSamples: 2,
        groupSize: 4,
        batchSize: 2,
        gradAccum: 1,
        maxNewTokens: 1,
        eosPenalty: 0,
      },
      ...{ outputDir: join(folder, 'second-stopped'), topP: 1 },
    };
    const stop = new AbortController();
    const { runs, folder: place } = await compareMethods(given, {
      signal: stop.signal,
      onRun: () => stop.abort('SIGINT'),
    });
    expect(runs.map(({ method }) => method)).toEqual(['grpo']);
    expect(existsSync(join(place, 'comparison', 'comparison_report.txt'))).toBe(true);
  });

  it('runs policy and preference methods on one budget and judges them alike', async () => {
    const prompts = ['red', 'blue', 'yes', 'no', 'good', 'bad'].map((prompt) => JSON.stringify({ prompt }));
    writeFileSync(join(folder, 'prompts.jsonl'), prompts.join('\n'));
    const body =
      'export default (batch) => batch.map(({ response }) => (response.codePointAt(0) ?? 1) % 2 === 0 ? 1 : 0);';
    writeFileSync(join(folder, 'even.mjs'), body);
    const given: CompareInput = {
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
      outputDir: join(folder, 'out'),
    };
    const { results, runs, start, folder: outputDir } = await compareMethods(given);
    expect(outputDir).toMatch(/\/out\/run_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$/);
    expect(runs.map(({ method, samples, steps }) => [method, samples, steps])).toEqual(
      ['grpo', 'dpo', 'kto'].map((method) => [method, 320, 20]),
    );
    for (const run of runs) {
      expect(run.judgements.map(({ step }) => step)).toEqual([0, 10, 20]);
      expect(run.judgements.at(-1)?.kl).toBeGreaterThan(0);
      for (const name of ['training_stats.json', 'model/model.safetensors'])
        expect(existsSync(join(outputDir, run.method, name))).toBe(true);
      const info = readFileSync(join(outputDir, run.method, `seed-${run.seed}`, 'run.json'), 'utf8');
      expect(JSON.parse(info)).toMatchObject({ status: 'finished', step: 20 });
    }
    const online = runs[0]?.judgements.at(-1)?.metrics.sampled_reward;
    expect(online).toBeGreaterThan(start.metrics.sampled_reward as number);
    const saved = JSON.parse(readFileSync(join(outputDir, 'comparison', 'comparison_results.json'), 'utf8'));
    const { grpo, dpo, kto, relative, start: first, ...heading } = saved;
    expect([grpo, dpo, kto, relative, first]).not.toContain(undefined);
    expect(heading).toEqual({
      ...{ model: given.model, dataset: given.dataset, reward_module: given.rewardModule, prompts: 2 },
      ...{ sampling: { samples: 8, temperature: 1, top_p: 1 }, max_new_tokens: 1, steps: 20, seeds: [1] },
    });
    expect(Object.keys(saved.dpo)).toEqual(['stability', 'convergence', 'efficiency', 'quality']);
    expect(Math.min(...(Object.values(results.relative.time_ratios) as number[]))).toBe(1);
    expect(readFileSync(join(outputDir, 'comparison', 'comparison_report.txt'), 'utf8')).toContain('same judge');
    for (const name of ['comparison.png', 'report.html'])
      expect(existsSync(join(outputDir, 'comparison', name))).toBe(true);

    // A second comparison in the same place gets a folder of its own, or is refused.
    const again = { ...given, methods: ['dpo'], steps: 1, judgements: 1, evalSamples: 0, runName: 'named' };
    const second = await compareMethods(again);
    expect(second.folder).toBe(join(folder, 'out', 'named'));
    expect(readdirSync(second.folder).sort()).toEqual(['comparison', 'dpo']);
    await expect(compareMethods(again)).rejects.toThrow(/named exists/);
  });

  it('finds winners by what the judge measured', () => {
    const at = (step: number, accuracy: number) => ({ step, metrics: { reward: accuracy, accuracy }, kl: 0 });
    const run = (method: string, values: number[], seconds: number) => ({
      ...{ method, seed: 1, history: [], seconds, samples: 1, steps: 4, responses: [] },
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

  it('has no winner without a rival, nor without a gain', () => {
    const at = (step: number, accuracy: number) => ({ step, metrics: { reward: accuracy, accuracy }, kl: 0 });
    const run = (method: string, last: number) => ({
      ...{ method, seed: 1, history: [], seconds: 1, samples: 1, steps: 2, responses: [] },
      judgements: [at(0, 0.5), at(2, last)],
    });
    const winners = (...runs: ReturnType<typeof run>[]) =>
      Object.values(comparisonResults(at(0, 0.5), runs).relative.winners);
    expect(winners(run('alone', 0.5))).toEqual([null, null, null, null]);
    expect(winners(run('alone', 0.9))).toEqual([null, null, null, null]);
    expect(winners(run('a', 0.5), run('b', 0.4))).toEqual([null, null, null, null]);
    // All equal: a tie has no winner.
    expect(winners(run('a', 0.7), run('b', 0.7))).toEqual([null, null, null, null]);
    // A method that does not improve is stable, but does not win.
    expect(winners(run('still', 0.5), run('better', 0.9))).toEqual(['better', 'better', 'better', 'better']);
  });

  it('tells preference losses of every LoRA option, as it tells policy methods', () => {
    const options = { lora: true, useDora: true, useRslora: true, loraBias: 'all', loraR: 3 } as const;
    const config = compareSchema.parse({ ...options, task: 'gcd:1' });
    expect(policyConfig(config, { name: 'grpo', kind: 'policy' }, 1)).toMatchObject(options);
    expect(preferenceFlags(config, { name: 'dpo', kind: 'preference' }, 1, 8)).toMatchObject(options);
  });

  it('gives each method the options that it reads, and refuses those that none reads', () => {
    const of = (given: MethodOptionValues, name: string, kind: Method['kind']) => ownOptions(given, { name, kind });
    const all = { klCoef: 0.03, clipRatio: 0.1, entropyCoef: 0.01, ppoEpochs: 2, beta: 0.4 };
    expect(of(all, 'ppo', 'policy')).toEqual({ klCoef: 0.03, cliprange: 0.1, entropyCoef: 0.01, ppoEpochs: 2 });
    expect(of(all, 'reinforce', 'policy')).not.toHaveProperty('cliprange');
    expect(of(all, 'dpo', 'preference')).toEqual({ beta: 0.4 });
    const byName = { beta: 'dpo=0.1, ipo=0.5', klCoef: 'grpo=0.2' };
    expect(of(byName, 'ipo', 'preference')).toEqual({ beta: 0.5 });
    expect(of(byName, 'hinge', 'preference')).toEqual({});
    expect(of(byName, 'ppo', 'policy')).toEqual({});
    const check =
      (given: MethodOptionValues, ...names: string[]) =>
      () =>
        checkMethodOptions(given, methodsOf(names));
    expect(check(all, 'ppo', 'grpo', 'dpo')).not.toThrow();
    expect(check({ beta: 0.1 }, 'ppo', 'grpo')).toThrow('--beta 0.1 has no effect on ppo, grpo.');
    expect(check({ klCoef: 'dpo=1' }, 'ppo', 'dpo')).toThrow('has no effect on dpo. Of these methods ppo reads it.');
    expect(check({ clipRatio: 'gspo=0.1' }, 'ppo')).toThrow('which is not compared');
    expect(check({ clipRatio: 0.1 }, 'reinforce')).toThrow('has no effect on reinforce');
    expect(check({ klCoef: '0.1,0.2' }, 'ppo')).toThrow('--kl-coef 0.1,0.2: every method has two values');
    expect(check({ klCoef: 'ppo=0.1,PPO=0.2' }, 'ppo')).toThrow('ppo has two values');
    for (const wrong of [-1, 'much', 'ppo=', '1,x=']) expect(check({ klCoef: wrong }, 'ppo')).toThrow('is not a value');
  });

  it('knows every method by name', () => {
    expect(methodsOf(['GRPO', 'kto_pair'])).toEqual([
      { name: 'grpo', kind: 'policy' },
      { name: 'kto-pair', kind: 'preference' },
    ]);
    expect(methodsOf(['all']).length).toBe(23);
    expect(() => methodsOf(['gkd'])).toThrow(/opd learns from a teacher, not from the rewards/);
    expect(() => methodsOf(['grop'])).toThrow('Did you mean "grpo"');
  });

  it('refuses a method or a seed that is given twice: they would look like two that agree', async () => {
    for (const twice of [
      ['grpo', 'dpo', 'GRPO'],
      ['all', 'grpo'],
    ])
      expect(() => methodsOf(twice)).toThrow('--methods: grpo is given twice');
    const given = ['--model', join(folder, 'none'), '--task', 'gcd:1', '--output-dir', join(folder, 'none')];
    const { code, err } = await attune('compare', ...given, '--seeds', '1,2,1');
    expect([code, err]).toEqual([2, expect.stringContaining('--seeds: 1 is given twice')]);
  });
});
