/** Truncated sampling is off by default and reported when on. Tests the denominator of `--truncated-ratio`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { resolveConfig } from '../../runs/index.ts';
import { type PolicyInput, policySchema } from './config.ts';
import { trainPolicy } from './policy.ts';
import { signals } from './signals.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-truncated-'));
afterAll(() => rmSync(folder, { recursive: true }));

it('samples from the whole distribution unless told otherwise', () => {
  const { config } = resolveConfig(policySchema, { flags: {} });
  expect(config).toMatchObject({ topP: 1, topK: 0, minP: 0, truncatedRatio: false });
});

it('measures the mass that was cut, warns of it, and takes ratios against the truncated distribution when asked', async () => {
  const model = await tinyModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
  const small = { batchSize: 2, gradAccum: 1, groupSize: 4, maxNewTokens: 5, maxSteps: 1, lr: 0.01, eosPenalty: 0 };
  const quiet = { evalSteps: -1, saveSteps: -1, saveModel: false, reportTo: [], saveRollouts: false };
  const step = async (options: Partial<PolicyInput>) => {
    const config = { model, dataset: [{ prompt: 'red' }, { prompt: 'blue' }], outputDir: join(folder, 'runs') };
    const training = trainPolicy(
      { ...config, ...small, ...quiet, ...options, runName: JSON.stringify(options).replaceAll(/\W/g, '') || 'plain' },
      { rewards: [(items) => items.map(({ response }) => response.length)], run: { curves: false } },
    );
    for await (const { metrics } of training) return metrics;
    throw new Error('no step');
  };
  const whole = await step({});
  expect(whole['train/cut_mass']).toBeUndefined();
  expect(whole['train/ratio_mean']).toBeCloseTo(1, 4);

  const cut = await step({ topK: 2 });
  expect(cut['train/cut_mass']).toBeGreaterThan(0.5); // an untrained model spreads its mass over the vocabulary
  expect(cut['train/ratio_mean']).toBeCloseTo(1, 4);
  const told = signals([{ step: 1, ...cut } as never]).find(({ kind }) => kind === 'truncated');
  expect(told?.message).toMatch(/--truncated-ratio/);

  // The truncated distribution gives a token π/(1 − cut), so at the start the ratio is 1 − cut.
  const against = await step({ topK: 2, truncatedRatio: true });
  expect(against['train/ratio_mean']).toBeCloseTo(1 - (against['train/cut_mass'] as number), 4);
  const noted = signals([{ step: 1, ...against } as never]).find(({ kind }) => kind === 'truncated');
  expect([noted?.level, noted?.message]).toEqual(['note', expect.stringMatching(/Ratios are taken against/)]);
  expect(noted?.message).not.toMatch(/or take ratios/);
});
