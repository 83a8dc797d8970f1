/** Ranks that somebody else starts: Slurm's srun, an operator that starts one process per pod. The other tests use torchrun's variables. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../src/dist/meeting.ts';
import { readMetrics } from '../../src/runs/index.ts';
import { corpusRows } from '../../src/tasks/index.ts';
import { preferenceRows } from '../support/preference-rows.ts';
import { tinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-environments-'));
afterAll(() => rmSync(folder, { recursive: true }));
const attune = join(import.meta.dirname, '../../bin/attune.mjs');
const dataset = join(folder, 'chats.jsonl');
let model = '';

beforeAll(async () => {
  model = await tinyModel(join(folder, 'model'));
  const rows = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 12, seed: 3 })];
  writeFileSync(dataset, rows.map((row) => JSON.stringify(row)).join('\n'));
});

/** Runs attune once for each environment, all at a time. */
async function run(args: readonly string[], environments: readonly Record<string, string>[]): Promise<void> {
  const ends = environments.map((environment) => {
    const child = spawn(process.execPath, [attune, ...args], {
      env: {
        ...process.env,
        ATTUNE_THREADS: '1',
        ATTUNE_CACHE: join(folder, 'cache'),
        ATTUNE_DIST_HANG: '0',
        ...environment,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    return new Promise<{ code: number | null; said: string }>((resolve) =>
      child.on('close', (code) => resolve({ code, said })),
    );
  });
  for (const { code, said } of await Promise.all(ends)) expect(code, said).toBe(0);
}

/** `attune train sft` once for each environment; the final weights. */
async function trained(runName: string, environments: readonly Record<string, string>[]): Promise<Buffer> {
  const args = [
    ...['train', 'sft', '--model', model, '--dataset', dataset, '--output-dir', folder, '--run-name', runName],
    ...['--batch-size', '2', '--grad-accum', '2', '--max-steps', '2', '--eval-steps', '-1', '--validation-split', '0'],
    ...['--exact', '--shard', 'full', '--report-to', 'none', '--save-steps', '-1'],
  ];
  await run(args, environments);
  return readFileSync(join(folder, runName, 'final/model.safetensors'));
}

const ranks = [0, 1];

it('trains under the variables of srun and of a pod with two processes as alone', async () => {
  const alone = await trained('alone', [{}]);
  const slurm = ranks.map((rank) => ({
    ...{ SLURM_JOB_ID: '4711', SLURM_STEP_ID: '0', SLURM_NTASKS: '2', SLURM_PROCID: `${rank}` },
    ...{ SLURM_LOCALID: `${rank}`, SLURM_NODEID: '0', SLURM_STEP_TASKS_PER_NODE: '2', SLURM_STEP_NODELIST: hostname() },
  }));
  const port = async () => ({ MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(await freePort()) });
  // The port of a Slurm job follows from its number; a test may meet somebody there.
  const own = await port();
  expect(
    (
      await trained(
        'slurm',
        slurm.map((each) => ({ ...each, ...own })),
      )
    ).equals(alone),
  ).toBe(true);
  // A PyTorchJob's pod: the number of the pod, and how many processes it is to start.
  const pod = { RANK: '0', WORLD_SIZE: '1', PET_NNODES: '1', PET_NODE_RANK: '0', PET_NPROC_PER_NODE: '2' };
  expect((await trained('pod', [{ ...pod, ...(await port()) }])).equals(alone)).toBe(true);
}, 900_000);

it("trains a pipeline's model in as many processes as it has devices, as in one", async () => {
  writeFileSync(
    join(folder, 'pairs.jsonl'),
    preferenceRows(12)
      .map((row) => JSON.stringify(row))
      .join('\n'),
  );
  const losses = async (name: string, gpu: object) => {
    const training = {
      ...{ output_dir: join(folder, name), num_epochs: 1, per_device_train_batch_size: 2, learning_rate: 1e-3 },
      ...{ gradient_accumulation_steps: 2, logging_steps: 1, eval_steps: 100, save_steps: 100, warmup_steps: 0 },
    };
    const pipeline = {
      ...{ models: [{ name: 'tiny', huggingface_id: model }], dataset: { name: join(folder, 'pairs.jsonl') } },
      ...{ training, gpu, logging: { report_to: ['none'], logging_dir: join(folder, 'logs') } },
    };
    const path = join(folder, `${name}.yaml`);
    writeFileSync(path, JSON.stringify(pipeline));
    await run(['train', '--config', path], [{}]);
    return readMetrics(join(folder, name, 'tiny/metrics.jsonl')).map((row) => row['train/loss'] as number);
  };
  const alone = await losses('one', { device_ids: [0] });
  const together = await losses('two', { device_ids: [0, 1], use_ddp: true });
  expect(alone.length).toBeGreaterThan(1);
  expect(together).toHaveLength(alone.length);
  for (const [i, loss] of alone.entries()) expect(together[i]).toBeCloseTo(loss, 4);
});
