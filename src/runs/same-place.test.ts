import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { saveCheckpoint, trainerStateName } from './checkpoints.ts';
import { runFields } from './config/training-fields.ts';
import { resolveRun } from './resume.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-same-place-'));
afterAll(() => rmSync(folder, { recursive: true }));
const run = join(folder, 'runs', 'a');
const schema = z.object({ ...runFields({ outputDir: './checkpoints' }), rolloutsDir: z.string().optional() });
const resume = (flags: Record<string, unknown>, command: string | undefined = 'train sft') =>
  resolveRun(schema, { resumeFrom: run, ...flags }, command);

beforeAll(async () => {
  const config = { output_dir: join(folder, 'runs'), run_name: 'a' };
  await saveCheckpoint(run, 'step-5', { step: 5, json: { 'train_config.json': config, [trainerStateName]: {} } });
  symlinkSync(join(folder, 'runs'), join(folder, 'link'));
  mkdirSync(join(folder, 'other'));
});

it('refuses another place and another name, all at once, and says where the run goes on', async () => {
  const outputDir = join(folder, 'other');
  await expect(resume({ outputDir, runName: 'b' })).rejects.toThrow(
    new RegExp(
      `2 faults:\n  --output-dir: .*goes on in its own folder, ${run}, and this says ${outputDir}\\. Leave it out, or .*--model ${run}/step-5 .*\n  --run-name: .* says b\\.`,
    ),
  );
  await expect(resume({ outputDir: join(folder, 'not-there') })).rejects.toThrow('--output-dir');
});

it('names a field of a file as files spell it', async () => {
  const config = join(folder, 'a.yaml');
  writeFileSync(config, `output_dir: ${join(folder, 'other')}\n`);
  await expect(resume({ config })).rejects.toThrow(/ {2}output_dir: .*\(in .*a\.yaml\)/);
});

it("takes the run's own place, however it is written", async () => {
  for (const outputDir of [join(folder, 'runs'), `${folder}/other/../runs/`, join(folder, 'link'), run])
    await expect(resume({ outputDir, runName: 'a' })).resolves.toMatchObject({ resume: { step: 5 } });
  const latest = { resumeFrom: 'latest', outputDir: join(folder, 'runs') };
  await expect(resume(latest)).resolves.toMatchObject({ resume: { step: 5 } });
});

it('leaves a run that was moved, and a workflow that names its own places, alone', async () => {
  const moved = join(folder, 'moved', 'b');
  const config = { output_dir: join(folder, 'runs'), run_name: 'a' };
  await saveCheckpoint(moved, 'step-5', { step: 5, json: { 'train_config.json': config, [trainerStateName]: {} } });
  await expect(resume({ resumeFrom: moved })).resolves.toMatchObject({ resume: { step: 5 } });
  await expect(
    resolveRun(schema, { resumeFrom: moved, outputDir: folder, runName: 'c' }, undefined),
  ).resolves.toMatchObject({ resume: { step: 5 } });
});

it('refuses to begin a second database of rollouts, and takes the first one', async () => {
  const rollouts = join(folder, 'rollouts');
  mkdirSync(join(rollouts, 'a'), { recursive: true });
  writeFileSync(join(rollouts, 'a', 'rollouts.db'), '');
  const rolloutsDir = join(folder, 'other');
  // Before there is a database, any place is allowed.
  await expect(resume({ rolloutsDir })).resolves.toMatchObject({ resume: { step: 5 } });
  writeFileSync(join(run, 'run.json'), JSON.stringify({ rollouts: join(rollouts, 'a', 'rollouts.db') }));
  await expect(resume({ rolloutsDir })).rejects.toThrow(
    `--rollouts-dir: would begin a second database: the run's rollouts are in ${rollouts}/a/rollouts.db, and this says ${rolloutsDir}/a/rollouts.db.`,
  );
  await expect(resume({ rolloutsDir: `${rollouts}/../rollouts` })).resolves.toMatchObject({ resume: { step: 5 } });
  writeFileSync(join(run, 'run.json'), '{}');
  writeFileSync(join(run, 'rollouts.db'), '');
  await expect(resume({ rolloutsDir })).rejects.toThrow(`are in ${run}/rollouts.db`);
  await expect(resume({ rolloutsDir: join(folder, 'runs') })).resolves.toMatchObject({ resume: { step: 5 } });
});

it('refuses to split the TensorBoard files of a run, and takes any folder where there are none', async () => {
  const logs = join(folder, 'logs', 'a');
  mkdirSync(logs, { recursive: true });
  writeFileSync(join(run, 'run.json'), JSON.stringify({ logDir: logs }));
  const logDir = join(folder, 'other');
  await expect(resume({ logDir })).resolves.toMatchObject({ resume: { step: 5 } });
  writeFileSync(join(logs, 'events.out.tfevents.1'), '');
  await expect(resume({ logDir })).rejects.toThrow(
    `--log-dir: would split the run's curves: its TensorBoard files are in ${logs}, and this says ${logDir}/a. Leave it out.`,
  );
  await expect(resume({ logDir: join(folder, 'logs') })).resolves.toMatchObject({ resume: { step: 5 } });
});

it('takes the old --log-dir of a run that was renamed, which writes where it would without', async () => {
  const renamed = join(folder, 'runs', 'renamed');
  const logs = join(folder, 'kept');
  mkdirSync(join(logs, 'a'), { recursive: true });
  writeFileSync(join(logs, 'a', 'events.out.tfevents.1'), '');
  const json = { 'train_config.json': { log_dir: logs }, [trainerStateName]: {} };
  await saveCheckpoint(renamed, 'step-5', { step: 5, json });
  writeFileSync(join(renamed, 'run.json'), JSON.stringify({ logDir: join(logs, 'a') }));
  for (const logDir of [logs, `${folder}/other/../kept`])
    await expect(resume({ resumeFrom: renamed, logDir })).resolves.toMatchObject({ resume: { step: 5 } });
  const elsewhere = resume({ resumeFrom: renamed, logDir: join(folder, 'other') });
  await expect(elsewhere).rejects.toThrow("--log-dir: would split the run's curves");
});
