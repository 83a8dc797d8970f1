import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModel, saveModel } from '../../models/index.ts';
import { Random } from '../../random.ts';
import { errorAnalysis } from '../../rewards/error-analysis.ts';
import { loadRewardModel, RewardModelScorer, type RewardNotes } from '../../rewards/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { errorCharts, errorReport } from './report.ts';
import { trainReward } from './reward.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-reward-'));
afterAll(() => rmSync(folder, { recursive: true }));
let base: string;
beforeAll(async () => {
  base = await tinyModel(join(folder, 'model'));
});

/** The answer that contains "good" is the better one. */
function easyPairs(count: number) {
  const random = new Random(7);
  const words = ['red', 'blue', 'yes', 'no', '1', '2', '3'];
  const sentence = (word: string) => {
    const parts = Array.from({ length: 4 }, () => words[random.int(0, words.length - 1)] as string);
    parts[random.int(0, 3)] = word;
    return parts.join(' ');
  };
  return Array.from({ length: count }, (_, i) => ({
    prompt: `What is ${i}?`,
    chosen: sentence('good'),
    rejected: sentence('bad'),
    source: i % 2 === 0 ? 'even' : 'odd',
  }));
}

const shared = { logDir: join(folder, 'logs'), reportTo: ['none' as const], gradAccum: 1 };

it('the report of pairs says by how much the chosen response is longer, and nothing of no cases', () => {
  const decision = (margin: number, length: number) => ({ margin, length, prompt: 'p', responses: [] });
  const line = (decisions: ReturnType<typeof decision>[], type: 'preference' | 'outcome') => {
    const report = errorReport(errorAnalysis(decisions, { pairs: type === 'preference' }), type);
    return report.split('\n').find((text) => text.endsWith('characters'));
  };
  const decisions = [decision(1, 4), decision(2, 8), decision(-1, -7)];
  expect(line(decisions, 'preference')).toBe('  chosen longer by, where right, wrong    6.0, -7.0 characters');
  expect(line(decisions.slice(0, 2), 'outcome')).toBe('  mean length where right, where wrong    6.0, none characters');
});

it('the pictures of errors show right decisions in one colour, also where the first one is wrong', () => {
  const decisions = [-1, 2, 3].map((margin) => ({ margin, length: 4 * margin, prompt: 'p', responses: [] }));
  const charts = errorCharts(decisions, errorAnalysis(decisions, { pairs: true }), 'preference');
  const legends = charts.flatMap(({ legend }) => (legend === undefined ? [] : [legend.map(({ name }) => name)]));
  expect(legends).toEqual(Array.from({ length: 4 }, () => ['right', 'wrong']));
});

describe('a preference model', () => {
  it('learns an easy preference in seconds and leaves behind what is promised', async () => {
    const run = await trainReward(
      {
        ...shared,
        ...{ model: base, dataset: easyPairs(240), outputDir: join(folder, 'easy'), runName: 'r' },
        ...{ epochs: 2, batchSize: 16, lr: 1e-2, evalSteps: 10, evalBatchSize: 8, evalNumBatches: 4 },
        ...{ validationSplit: 0.2, centring: 0.01 },
      },
      { cache: false },
    ).open();
    const result = await run.finish();
    const results = JSON.parse(readFileSync(join(run.folder, 'final_results.json'), 'utf8'));
    expect(results.held_out.accuracy).toBeGreaterThan(0.95);
    expect(result.best?.metric).toBe('eval/accuracy');
    for (const file of [
      'config.json',
      'metrics.jsonl',
      'training_history.json',
      'training_curves.png',
      'best_model/model.safetensors',
      'final/tokenizer.json',
      'evaluation/error_analysis.json',
      'evaluation/error_analysis_report.txt',
      'evaluation/error_analysis_plots.png',
    ])
      expect(existsSync(join(run.folder, file)), file).toBe(true);
    const analysis = JSON.parse(readFileSync(join(run.folder, 'evaluation', 'error_analysis.json'), 'utf8'));
    expect(Object.keys(analysis.by_source)).toEqual(['even', 'odd']);

    // The saved model, with only its notes to go by, scores text as the trained model does.
    const items = easyPairs(6).map(({ prompt, chosen }) => ({ prompt, response: chosen }));
    const trained = await new RewardModelScorer(run.model, run.tokenizer).score(items);
    using saved = await loadRewardModel(join(run.folder, 'final'));
    expect(await saved.score(items)).toEqual(trained);
    const { mean, std, count } = saved.notes;
    expect([Number.isFinite(mean), std > 0, count > 0]).toEqual([true, true, true]);
    using normalised = await loadRewardModel(join(run.folder, 'final'), { normalise: true });
    const expected = trained.map((score) => (score - mean) / std);
    expect(await normalised.score(items)).toEqual(expected);
    run.dispose();
  });

  it('with LoRA saves adapter and head, which together give the same scores', async () => {
    const run = await trainReward(
      {
        ...shared,
        ...{
          model: base,
          dataset: easyPairs(40),
          outputDir: join(folder, 'lora'),
          maxSteps: 3,
          batchSize: 8,
          lr: 1e-2,
        },
        ...{ lora: true, loraR: 4, loraAlpha: 8, evalSteps: -1, analysisSamples: 0, validationSplit: 0 },
      },
      { cache: false, run: { curves: false } },
    ).open();
    await run.finish();
    const final = join(run.folder, 'final');
    expect(existsSync(join(final, 'adapter_model.safetensors'))).toBe(true);
    expect(existsSync(join(final, 'model.safetensors'))).toBe(false);
    const items = easyPairs(6).map(({ prompt, rejected }) => ({ prompt, response: rejected }));
    const trained = await new RewardModelScorer(run.model, run.tokenizer).score(items);
    using saved = await loadRewardModel(final);
    expect(await saved.score(items)).toEqual(trained);
    run.dispose();
  });
});

describe('a checkpoint that is no trained reward model', () => {
  it('is refused, with the reason', async () => {
    await expect(loadRewardModel(base)).rejects.toThrow(/language model: it has no reward head/);
    const fresh = join(folder, 'fresh');
    const model = await loadModel(base);
    model.addHead('reward', 1);
    model.notes.reward = { type: 'preference', step: 0 } as RewardNotes;
    saveModel(model, fresh);
    await (await Tokenizer.load(base)).save(fresh);
    await expect(loadRewardModel(fresh)).rejects.toThrow(/never trained/);
    model.notes.reward = { type: 'process', step: 3 } as RewardNotes;
    saveModel(model, fresh);
    await expect(loadRewardModel(fresh)).rejects.toThrow(/type "process", but its head has 1 output/);
    model.dispose();
  });
});
