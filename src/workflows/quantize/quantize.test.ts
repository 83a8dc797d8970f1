/** Both commands on models/tiny: what they measure, what they write, what they refuse. */
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { tinyRewardModel } from '../../../tests/support/tiny-reward-model.ts';
import { loadModelFolder, packSequences } from '../../models/index.ts';
import { loadRewardModel, rewardTypes } from '../../rewards/index.ts';
import { liveTensors, noGrad, scope } from '../../tensor/index.ts';
import { meanPerToken } from './divergence.ts';
import { quantizePolicy } from './policy.ts';
import { quantizeReward } from './reward.ts';

const temporary = mkdtempSync(join(tmpdir(), 'attune-quantize-'));
afterAll(() => rmSync(temporary, { recursive: true }));
const tiny = fileURLToPath(new URL('../../../models/tiny', import.meta.url));
const json = (folder: string) => JSON.parse(readFileSync(join(folder, 'evaluation_results.json'), 'utf8'));

const onTask = { task: 'chain_sum:1', evalNumBatches: 6, evalBatchSize: 4 } as const;

describe('quantize reward', () => {
  it.each(rewardTypes)('of type %s: the same examples by both, and a model that scores as measured', async (type) => {
    const checkpoint = await tinyRewardModel(temporary, type);
    const before = liveTensors();
    const { results, folder } = await quantizeReward({ checkpoint, quantType: 'int8', ...onTask });
    expect(liveTensors()).toBeLessThanOrEqual(before);
    expect(folder).toBe(join(checkpoint, 'quantized_int8'));
    const { original, quantized, comparison, layers } = results;
    expect(original.examples).toBe(quantized.examples);
    expect(original.examples).toBeGreaterThan(10);
    expect(Math.abs(comparison.loss_increase)).toBeLessThan(0.1 * original.loss);
    expect(comparison.accuracy_drop).toBeCloseTo(original.accuracy - quantized.accuracy, 12);
    expect(comparison.score_correlation).toBeGreaterThan(0.99);
    expect(comparison.size_reduction_pct).toBeGreaterThan(60);
    expect(layers).toHaveLength(4);
    for (const { error } of layers) expect(error).toBeLessThan(0.02);

    const written = json(folder);
    expect(Object.keys(written)).toEqual(
      expect.arrayContaining(['original', 'quantized_int8', 'comparison', 'model_saved']),
    );
    expect(written.model_saved).toBe(true);
    for (const file of ['quantization.png', 'quantization_report.txt', 'tokenizer.json', 'model.safetensors'])
      expect(existsSync(join(folder, file)), file).toBe(true);

    // The saved folder is a reward model, and its scores equal those of the original when quantised on loading.
    const items = [{ prompt: 'What is 2 + 2?', response: 'It is 4.' }];
    using saved = await loadRewardModel(folder);
    using again = await loadRewardModel(checkpoint, { quantType: 'int8' });
    expect(saved.model.decoder.quantType).toBe('int8');
    expect(await saved.score(items)).toEqual(await again.score(items));
  });

  it('takes what the checkpoint was trained on where nothing is said, and writes no model when told so', async () => {
    const checkpoint = join(temporary, 'trained');
    cpSync(await tinyRewardModel(temporary, 'preference'), checkpoint, { recursive: true });
    rmSync(join(checkpoint, 'quantized_int8'), { recursive: true, force: true });
    const pairs = join(temporary, 'pairs.jsonl');
    const row = (i: number) => ({ prompt: `What is ${i} + 1?`, chosen: `It is ${i + 1}.`, rejected: 'I do not know.' });
    writeFileSync(pairs, Array.from({ length: 20 }, (_, i) => JSON.stringify(row(i))).join('\n'));
    await expect(quantizeReward({ checkpoint })).rejects.toThrow(/does not say what it was trained on/);
    const trained = { type: 'preference', dataset: pairs, validationSplit: 0.5, model: tiny };
    writeFileSync(join(checkpoint, 'train_config.json'), JSON.stringify(trained));
    const { results, folder } = await quantizeReward({ checkpoint, quantType: 'int4', skipSave: true });
    // about half is held out
    expect(results.original.examples).toBeGreaterThan(3);
    expect(results.original.examples).toBeLessThan(17);
    expect(json(folder).model_saved).toBe(false);
    expect(readdirSync(folder).sort()).toEqual([
      'evaluation_results.json',
      'quantization.png',
      'quantization_report.txt',
    ]);
  });

  it('leaves a model that was saved before where it only measures', async () => {
    const checkpoint = await tinyRewardModel(temporary, 'preference');
    const { folder } = await quantizeReward({ checkpoint, quantType: 'int4', ...onTask });
    const model = () => statSync(join(folder, 'model.safetensors')).mtimeMs;
    const before = model();
    const { results } = await quantizeReward({ checkpoint, quantType: 'int4', skipSave: true, ...onTask });
    expect(results.model_saved).toBe(false);
    expect(json(folder).model_saved).toBe(false);
    expect(model()).toBe(before);
    expect(readdirSync(join(folder, '..')).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('writes over nothing that it did not write itself', async () => {
    const checkpoint = await tinyRewardModel(temporary, 'preference');
    await expect(quantizeReward({ checkpoint, outputDir: checkpoint, ...onTask })).rejects.toThrow(/the model itself/);
    const other = join(temporary, 'other');
    mkdirSync(other);
    await expect(quantizeReward({ checkpoint, outputDir: other, ...onTask })).rejects.toThrow(/is not a result/);
  });
});

describe('quantize policy', () => {
  it('reports the divergence on what the original wrote, and saves a model that has it', async () => {
    const model = join(temporary, 'policy');
    cpSync(tiny, model, { recursive: true });
    const before = liveTensors();
    const { results, folder, report } = await quantizePolicy({
      ...{ model, quantType: 'int4', task: 'number_sorting:1', numPrompts: 6, maxNewTokens: 16 },
    });
    expect(liveTensors()).toBeLessThanOrEqual(before);
    expect(folder).toBe(join(model, 'quantized_int4'));
    const { kl_evaluation: kl } = json(folder);
    expect(kl.num_completions).toBe(6);
    expect(kl.total_tokens).toBeGreaterThan(12);
    expect(kl.kl_divergence).toBeCloseTo(kl.mean_original_logprob - kl.mean_quantized_logprob, 6);
    expect(kl.kl_exact).toBeGreaterThan(0);
    expect(kl.kl_exact).toBeLessThan(0.1);
    expect(kl.kl_standard_error).toBeGreaterThan(0);
    // both estimate the same number
    expect(Math.abs(kl.kl_divergence - kl.kl_exact)).toBeLessThan(4 * kl.kl_standard_error + 1e-3);
    expect(report).toContain('KL(original‖int4)');
    expect(results.comparison.size_reduction_pct).toBeGreaterThan(75);

    using saved = loadModelFolder(folder);
    using again = loadModelFolder(tiny, { quantType: 'int4', dtype: saved.decoder.dtype });
    const logits = [saved, again].map((each) =>
      scope(() => noGrad(() => each.decoder.logits(each.decoder.forward(packSequences([[5, 9, 33, 12]]))).numbers())),
    );
    expect(logits[0]).toEqual(logits[1]);
    await expect(quantizePolicy({ model: folder, task: 'number_sorting:1', numPrompts: 2 })).rejects.toThrow(
      /is int4 already/,
    );
  });

  it('counts responses, not tokens, as independent', () => {
    // Equal values at all tokens of a response carry as much information as one token.
    const { mean, error } = meanPerToken([
      [1, 1, 1, 1],
      [3, 3, 3, 3],
    ]);
    expect(mean).toBe(2);
    expect(error).toBeCloseTo(1, 12);
    expect(meanPerToken([[2, 4]])).toEqual({ mean: 3, error: Number.NaN });
  });
});
