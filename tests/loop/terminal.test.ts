/** Ctrl-C under npm, an interrupt that reaches npm alone, and a terminal that is closed: each saves the run, once. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasScript } from '../../src/cli/terminal/pty.test-support.ts';
import { checkpointFault } from '../../src/runs/checkpoints.ts';
import { openRun } from '../../src/runs/open-run.ts';
import { packageRoot } from '../../src/tensor/engine/native.ts';
import { tinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-terminal-'));
const children = new Set<ChildProcess>();
beforeAll(async () => {
  await tinyModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
  const rows = Array.from({ length: 16 }, (_, i) => ({ prompt: `What is ${i}?`, completion: `The answer is ${i}` }));
  writeFileSync(join(folder, 'rows.jsonl'), rows.map((row) => JSON.stringify(row)).join('\n'));
});
afterAll(() => {
  for (const { pid } of children) if (pid !== undefined) spawnSync('kill', ['-KILL', '--', `-${pid}`]);
  rmSync(folder, { recursive: true });
});

/** A training that would go on for hours. */
const train = (name: string) => [
  ...['train', 'sft', '--model', join(folder, 'model'), '--dataset', join(folder, 'rows.jsonl'), '--run-name', name],
  ...['--max-steps', '1000000', '--log-steps', '1', '--epochs', '1000000', '--eval-steps', '-1', '--save-steps', '-1'],
  ...['--batch-size', '2', '--grad-accum', '1', '--report-to', 'none', '--output-dir', folder],
];

async function until(what: string, test: () => boolean): Promise<void> {
  for (let i = 0; i < 4800 && !test(); i++) await new Promise((resolve) => setTimeout(resolve, 50));
  expect(test(), what).toBe(true);
}

/** A run that has taken steps. */
async function begun(name: string): Promise<void> {
  const metrics = join(folder, name, 'metrics.jsonl');
  await until(`${name} trains`, () => existsSync(metrics) && readFileSync(metrics, 'utf8').includes('train/loss'));
}

/** A process group of its own, as a shell makes one. */
function start(command: string, args: readonly string[]) {
  const child = spawn(command, args, { cwd: packageRoot, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
  children.add(child);
  let said = '';
  child.stderr.on('data', (text) => {
    said += text;
  });
  return { pid: child.pid as number, said: () => said, code: new Promise((resolve) => child.on('close', resolve)) };
}

async function expectSaved(name: string): Promise<void> {
  const run = openRun(join(folder, name));
  expect(run.status).toBe('interrupted');
  const { step } = JSON.parse(readFileSync(join(folder, name, 'run.json'), 'utf8'));
  expect(await checkpointFault(join(folder, name, `step-${step}`))).toBeUndefined();
}

describe('under npm run attune', () => {
  it('a launch whose npm is killed saves and ends, with its ranks', async () => {
    const launch = ['launch', '--nproc', '2', '--hang-timeout', '0', '--', ...train('orphan')];
    const npm = start('npm', ['run', '--silent', 'attune', '--', ...launch]);
    await begun('orphan');
    process.kill(npm.pid, 'SIGKILL');
    // When all that can write there have ended.
    await npm.code;
    expect(npm.said()).toContain('SIGTERM: the ranks finish their step and save');
    await expectSaved('orphan');
  });

  it.each([
    ['an interrupt that npm alone is sent', 'alone', 1],
    ["a terminal's Ctrl-C, which all processes of the group are sent", 'all', -1],
  ])('%s saves once and ends', async (_, name, sign) => {
    const npm = start('npm', ['run', '--silent', 'attune', '--', ...train(name)]);
    await begun(name);
    process.kill(sign * npm.pid, 'SIGINT');
    expect(await npm.code).toBe(130);
    expect(npm.said().match(/SIGINT/g)).toHaveLength(1);
    await expectSaved(name);
  });
});

it('SIGTERM saves the run and ends with the exit code of SIGTERM', async () => {
  const attune = start(process.execPath, ['bin/attune.mjs', ...train('terminated')]);
  await begun('terminated');
  process.kill(attune.pid, 'SIGTERM');
  expect(await attune.code).toBe(143);
  expect(attune.said().match(/SIGTERM/g)).toHaveLength(1);
  await expectSaved('terminated');
});

it('a closed terminal saves the run', async () => {
  expect(hasScript).toBe(true);
  const command = [process.execPath, 'bin/attune.mjs', ...train('closed')].map((word) => `'${word}'`).join(' ');
  const terminal = start('script', ['-qfec', command, '/dev/null']);
  await begun('closed');
  process.kill(terminal.pid, 'SIGKILL'); // whoever held the terminal's other end is gone
  await until('the run ends', () => openRun(join(folder, 'closed')).status !== 'running');
  await expectSaved('closed');
});
