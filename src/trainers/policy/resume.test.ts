/** Stopped and resumed policy runs: each evaluation happens once, and the prompts left decide the number of steps. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModelFolder, Sampler } from '../../models/index.ts';
import { AdamW } from '../../nn/index.ts';
import type { RewardFunction } from '../../rewards/index.ts';
import { findCheckpoint, openRun, resolveConfig } from '../../runs/index.ts';
import { checkpointConfig } from '../../runs/resume.ts';
import { RolloutStore } from '../../runs/store/rollouts.ts';
import { type PolicyInput, policySchema } from './config.ts';
import { policyPlan } from './plan.ts';
import { trainPolicy } from './policy.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-resume-'));
let model = '';
beforeAll(async () => {
  model = await tinyModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
});
afterAll(() => rmSync(folder, { recursive: true }));

const dataset = Array.from({ length: 12 }, (_, i) => ({ prompt: `What is ${i}?` }));
const byLength = (items: readonly { response: string }[]) => items.map(({ response }) => response.length);
const small = { batchSize: 2, gradAccum: 1, groupSize: 2, maxNewTokens: 3, lr: 0.01, eosPenalty: 0, reportTo: [] };

function start(options: Partial<PolicyInput>, signal?: AbortSignal) {
  const where = { outputDir: join(folder, 'runs'), ...(options.resumeFrom === undefined ? { model, ...small } : {}) };
  return trainPolicy({ dataset, ...where, ...options }, { rewards: [byLength], signal, run: { curves: false } });
}

function written(run: string) {
  using database = new DatabaseSync(join(run, 'rollouts.db'), { readOnly: true });
  const columns = 'step, prompt_index, prompt, completion, reward';
  const evaluated = database.prepare(`select ${columns} from eval_rollouts order by id`).all();
  const rows = openRun(run).metrics();
  const measured = rows.flatMap((row) => Object.keys(row).map((name) => `${row.step} ${name}`));
  return {
    evaluated,
    evaluations: rows.filter((row) => 'eval/reward' in row).map(({ step }) => step),
    // a late evaluation gets a row of its own, and no metric is logged twice for a step
    twice: measured.filter((name, i) => !/ (step|time)$/.test(name) && measured.indexOf(name) !== i),
  };
}

describe('an evaluation that Ctrl-C falls into', () => {
  const evaluating = { maxSteps: 4, evalSteps: 2, evalNumPrompts: 3, nMinibatches: 2, saveSteps: 10 };

  it.each([
    ['during the update before it', AdamW.prototype, 'step', 4],
    ['while it is stored', RolloutStore.prototype, 'addEval', 2],
    ['while the first one is sampled', Sampler.prototype, 'generate', 1],
    ['while it is sampled', Sampler.prototype, 'generate', 4],
  ] as const)('%s is in metrics and rollouts once after the resume', async (moment, prototype, name, call) => {
    const whole = await start({ ...evaluating, runName: `whole ${moment}` });
    const stop = new AbortController();
    using _ = abortAt(stop, prototype as never, name, call);
    const first = await start({ ...evaluating, runName: `stopped ${moment}` }, stop.signal);
    expect(first.ended).toBe('interrupted');
    const second = await start({ resumeFrom: first.folder });
    expect(second).toMatchObject({ ended: 'finished', step: 4, folder: first.folder });
    expect(written(second.folder)).toEqual(written(whole.folder));
    expect(written(second.folder)).toMatchObject({ evaluations: [0, 2, 4], twice: [] });
  });
});

/** Aborts when a method is called for the n-th time. */
function abortAt(
  stop: AbortController,
  prototype: Record<string, (...given: unknown[]) => unknown>,
  name: string,
  n: number,
) {
  const real = prototype[name] as (...given: unknown[]) => unknown;
  let calls = 0;
  const spy = vi.spyOn(prototype, name).mockImplementation(function (this: unknown, ...given) {
    if (++calls === n) stop.abort();
    return real.apply(this, given);
  });
  return { [Symbol.dispose]: () => spy.mockRestore() };
}

/** Removes fields from a checkpoint's state, as if an earlier version had written it. */
function forget(checkpoint: string, change: (state: Record<string, unknown>) => void): void {
  const file = join(checkpoint, 'trainer_state.json');
  const state = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  change(state);
  writeFileSync(file, JSON.stringify(state));
  const manifest = join(checkpoint, 'manifest.json');
  const { files, ...rest } = JSON.parse(readFileSync(manifest, 'utf8')) as { files: { path: string }[] };
  const others = files.filter(({ path }) => path !== 'trainer_state.json');
  writeFileSync(manifest, JSON.stringify({ ...rest, files: others }));
}

it('counts the steps that are left by the batch size of now', async () => {
  const stop = new AbortController();
  using first = await start({ runName: 'recount', evalSteps: -1 }, stop.signal).open();
  expect(first.totalSteps).toBe(6);
  for await (const { step } of first) if (step === 2) stop.abort();
  // 4 of 12 prompts are answered; 8 are left, four at a time
  using second = await start({ resumeFrom: first.folder, batchSize: 4 }).open();
  expect([second.totalSteps, openRun(first.folder).info?.totalSteps]).toEqual([4, 4]);
  const steps: number[] = [];
  for await (const { step } of second) steps.push(step);
  expect(steps).toEqual([3, 4]);
  await expect(start({ resumeFrom: first.folder, batchSize: 4 })).rejects.toThrow(/further, give more --epochs\.$/);
  await expect(start({ resumeFrom: first.folder, maxSteps: 4 })).rejects.toThrow(/give a larger --max-steps\.$/);
});

describe('other tasks', () => {
  // A dataset with a test split, which gives the held-out prompts.
  const sets = join(folder, 'sets');
  beforeAll(() => {
    mkdirSync(sets);
    for (const part of ['train', 'test'])
      writeFileSync(
        join(sets, `${part}.jsonl`),
        dataset.map((row) => `${JSON.stringify({ prompt: part + row.prompt })}\n`).join(''),
      );
  });
  const goOn = (resumeFrom: string, options: Partial<PolicyInput>, notes: string[] = []) => {
    const progress = { start: () => ({ advance() {}, done: (text?: string) => void notes.push(text ?? '') }) };
    return trainPolicy({ ...options, resumeFrom }, { rewards: [byLength], progress, run: { curves: false } });
  };
  const begin = (runName: string, options: Partial<PolicyInput>) =>
    trainPolicy(
      {
        model,
        ...small,
        evalSteps: -1,
        maxSteps: 1,
        saveSteps: 1,
        outputDir: join(folder, 'runs'),
        runName,
        ...options,
      },
      { rewards: [byLength], run: { curves: false } },
    );

  it('are refused, and another spelling of the same ones is not', async () => {
    const { folder: run } = await begin('tasks', { task: 'gcd,lcm:1-2*2' });
    for (const other of ['lcm:1-2', 'gcd,lcm:1-3*2', 'gcd,lcm:1-2', 'gcd:2,lcm:1-2*2', 'gcd,lcm:1-2*2,chain_sum'])
      await expect(goOn(run, { task: other, maxSteps: 2 }), other).rejects.toThrow(
        /the task has changed.*--allow-changed-data/,
      );
    for (const more of [{ curriculum: true }, { system: 'Be brief.' }])
      await expect(goOn(run, { ...more, maxSteps: 2 })).rejects.toThrow(/--allow-changed-data/);
    const same = await goOn(run, { task: 'lcm:1-2*4, gcd:1*2, chain_sum*0', maxSteps: 2 });
    expect(same).toMatchObject({ step: 2, folder: run });
    const notes: string[] = [];
    const allowed = await goOn(run, { task: 'gcd:2', maxSteps: 3, allowChangedData: true }, notes);
    expect([allowed.step, notes.join()]).toEqual([3, expect.stringContaining('It goes on with what is there now')]);
  });

  it('are refused where they are those of its evaluations', async () => {
    const evaluating = { evalSteps: 1, evalNumPrompts: 3, saveSteps: 1 };
    const { folder: run } = await begin('held out', { task: 'gcd', ...evaluating });
    const other = { evalNumPrompts: 4, maxSteps: 2 };
    const refused = /held-out examples are not those .*--eval-num-prompts.*--allow-changed-data/;
    await expect(goOn(run, other)).rejects.toThrow(refused);
    expect((await goOn(run, { maxSteps: 2 })).step).toBe(2);
    // A stretch without evaluations keeps the held-out fingerprint.
    expect((await goOn(run, { evalSteps: -1, maxSteps: 3 })).step).toBe(3);
    await expect(goOn(run, { ...other, evalSteps: 1, maxSteps: 4 })).rejects.toThrow(refused);
    expect((await goOn(run, { ...other, evalSteps: 1, maxSteps: 4, allowChangedData: true })).step).toBe(4);
    const { folder: listed } = await trainPolicy(
      {
        model,
        ...small,
        ...evaluating,
        dataset: sets,
        maxSteps: 1,
        outputDir: join(folder, 'runs'),
        runName: 'listed',
      },
      { rewards: [byLength], run: { curves: false } },
    );
    await expect(goOn(listed, other)).rejects.toThrow(refused);
  });

  it('are refused by the options of a checkpoint without fingerprints, which is noted otherwise', async () => {
    const { folder: run } = await begin('unmarked', { task: 'gcd:1-2', evalSteps: 1, evalNumPrompts: 3 });
    forget(join(run, 'step-1'), (state) => {
      delete state.data;
      delete state.heldOut;
    });
    const changed = /the task has changed.*--allow-changed-data/;
    await expect(goOn(run, { task: 'gcd:1-3', maxSteps: 2 })).rejects.toThrow(changed);
    await expect(goOn(run, { curriculum: true, maxSteps: 2 })).rejects.toThrow(changed);
    await expect(goOn(run, { evalNumPrompts: 4, maxSteps: 2 })).rejects.toThrow(/held-out examples are not/);
    const notes: string[] = [];
    expect((await goOn(run, { task: 'gcd:1-2*3', maxSteps: 2 }, notes)).step).toBe(2);
    expect(notes.join()).toMatch(/does not say what it was trained on; its options name the same data as now/);
    await expect(goOn(run, { task: 'lcm', maxSteps: 3 })).rejects.toThrow(changed);
    const later: string[] = [];
    expect((await goOn(run, { maxSteps: 3 }, later)).step).toBe(3);
    expect(later.join()).not.toMatch(/does not say/);
  });

  it('begin at their easiest in a curriculum that goes on', async () => {
    const { folder: run } = await begin('levels', { task: 'gcd:1-2', curriculum: true });
    const other = { task: 'lcm:2-3', maxSteps: 2, allowChangedData: true };
    const second = await goOn(run, other);
    expect(openRun(second.folder).metrics().at(-1)).toMatchObject({ 'train/level_lcm': 2 });
  });
});

it('goes on with the rewards that the program handed over, and with no others', async () => {
  const begun = {
    model,
    ...small,
    task: 'gcd',
    evalSteps: -1,
    maxSteps: 1,
    saveSteps: 1,
    outputDir: join(folder, 'runs'),
  };
  const goOn = (run: string, rewards: readonly RewardFunction[], maxSteps = 2) =>
    trainPolicy({ resumeFrom: run, maxSteps }, { rewards, run: { curves: false } });
  const { folder: run } = await trainPolicy({ ...begun, runName: 'given' }, { rewards: [byLength] });
  const lost =
    /trained on rewards of a program.*byLength.*None is given now.*trainPolicy\(\{ resumeFrom \}, \{ rewards \}\)/;
  await expect(goOn(run, [])).rejects.toThrow(lost);
  await expect(goOn(run, [(items) => items.map(() => 0)])).rejects.toThrow(/byLength\. Given now: function_0\./);
  const resume = await findCheckpoint(run);
  const { config } = resolveConfig(policySchema, { checkpoint: checkpointConfig(resume) });
  await expect(policyPlan({ ...config, maxSteps: 2 }, { resume })).rejects.toThrow(lost);
  expect((await goOn(run, [byLength])).step).toBe(2);
  const { folder: plain } = await trainPolicy({ ...begun, runName: 'not given' });
  await expect(goOn(plain, [byLength])).rejects.toThrow(/byLength are no part of what this run was trained on/);
  // Checkpoints of earlier versions do not store this.
  forget(join(run, 'step-2'), ({ task }) => delete (task as Record<string, unknown>).given);
  expect((await goOn(run, [], 3)).step).toBe(3);
});

it('goes on with a critic beside adapters, and the checkpoint loads as a model without it', async () => {
  const ppo = {
    algorithm: 'ppo',
    lora: true,
    loraR: 2,
    groupSize: 1,
    maxSteps: 4,
    saveSteps: 2,
    evalSteps: -1,
  } as const;
  const whole = await start({ ...ppo, runName: 'critic whole' });
  const stop = new AbortController();
  using first = await start({ ...ppo, runName: 'critic stopped' }, stop.signal).open();
  for await (const { step } of first) if (step === 2) stop.abort();
  const second = await start({ resumeFrom: first.folder });
  const weights = (run: string) => readFileSync(join(run, 'final', 'adapter_model.safetensors'));
  expect(weights(second.folder).equals(weights(whole.folder))).toBe(true);
  using loaded = loadModelFolder(join(whole.folder, 'step-2'));
  expect(loaded.head).toBeNull();
});

it('refuses a checkpoint that does not say how many prompts were answered', async () => {
  const { folder: run } = await start({ runName: 'older', maxSteps: 1, saveSteps: 1, evalSteps: -1 });
  forget(join(run, 'step-1'), ({ task }) => delete (task as Record<string, unknown>).taken);
  await expect(start({ resumeFrom: join(run, 'step-1'), maxSteps: 2 })).rejects.toThrow(
    /earlier version or damaged.*model/s,
  );
});

it('writes its measures under the names of earlier programs too', async () => {
  const { folder: run } = await start({
    runName: 'names',
    maxSteps: 1,
    evalSteps: 1,
    evalNumPrompts: 3,
    saveSteps: -1,
  });
  const row = openRun(run)
    .metrics()
    .find(({ step }) => step === 1) as Record<string, number>;
  for (const prefix of ['train/', 'eval/']) {
    expect(row[`${prefix}kl_div`]).toBe(row[`${prefix}kl`]);
    expect(row[`${prefix}reward_mean`]).toBe(row[`${prefix}reward`]);
    expect(row[`${prefix}completion_length_avg`]).toBe(row[`${prefix}length_mean`]);
    expect(row[`${prefix}completion_length_max`]).toBe(row[`${prefix}length_max`]);
    expect(row[`${prefix}proper_ending_rate`]).toBe(row[`${prefix}ended`]);
  }
  expect(row['eval/kl_div']).toBeGreaterThanOrEqual(0);
});
