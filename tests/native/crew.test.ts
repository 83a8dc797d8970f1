/** The crew of threads of a CPU decoding step, in a program of its own: no operator throws inside it on demand. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
// @ts-expect-error plain JavaScript that runs before any types are installed
import { ensureAddon, packageRoot } from '../../scripts/native.mjs';

const run = promisify(execFile);

it('brings an exception of any thread to the caller, and works on', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-crew-'));
  try {
    const { path, lib } = await ensureAddon();
    const commands = join(path, '..', 'compile_commands.json');
    const sources = JSON.parse(readFileSync(commands, 'utf8')) as { file: string; arguments: string[] }[];
    const step = sources.find(({ file }) => file.endsWith('ops/decode/step.cc'));
    const [compiler = '', ...flags] = step?.arguments.slice(0, -2) ?? [];
    const program = join(folder, 'crew');
    const libraries = [`-Wl,-rpath,${lib}`, `-L${lib}`, '-Wl,--allow-shlib-undefined', '-lc10', '-ltorch_cpu'];
    await run(compiler, [...flags, '-O1', join(packageRoot, 'tests/native/crew.cc'), '-o', program, ...libraries]);
    const { stdout } = await run(program, { timeout: 60_000 });
    expect(stdout).toBe('right\n');
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 120_000);
