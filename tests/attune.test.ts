/** The `attune` command as a person meets it: exit codes, messages, help. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';

function attune(args: string[], env: Record<string, string> = {}) {
  const result = spawnSync(process.execPath, ['bin/attune.mjs', ...args], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  });
  return { status: result.status, output: result.stdout, errors: result.stderr };
}

describe('attune', () => {
  it('gives help and version without the engine', () => {
    // A libtorch that cannot be used would stop anything that asks for the engine.
    const broken = { ATTUNE_LIBTORCH: '/nowhere', ATTUNE_ADDON: '' };
    expect(attune(['--help'], broken)).toMatchObject({
      status: 0,
      output: expect.stringMatching(/doctor .*checks this machine/),
    });
    expect(attune(['--version'], broken)).toMatchObject({
      status: 0,
      output: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    });
    expect(attune(['help', 'doctor'], broken)).toMatchObject({ status: 0, output: expect.stringContaining('--json') });
  });

  // libtorch takes half a second to load: what has no tensors does without, also where the engine is not built yet
  it.each([
    [['train', 'policy', '--help'], /--algorithm/],
    [['help', 'generate'], /--max-new-tokens/],
    [['studio', '--help'], /--port/],
    [['tasks', 'list'], /number_sorting/],
    [['tasks', 'generate', '--kind', 'sft', '--tasks', 'gcd:1', '--count', '1'], /"messages"/],
    [['explore', 'README.md', '--help'], /dataset/],
    [['runs', 'docs/learn', '--json'], /^\[/],
    [['learn', '--help'], /chapter/],
  ])('does not load the engine for %j', (args, says) => {
    const { status, output, errors } = attune(args, { ATTUNE_ADDON: '/nowhere/attune.node' });
    expect({ status, errors }).toEqual({ status: 0, errors: '' });
    expect(output).toMatch(says);
  });

  it('says what to do where a command needs the engine and it cannot be loaded', () => {
    const program =
      "await import('./src/index.ts'); const { tensor } = await import('./src/tensor/index.ts'); console.log('imported'); tensor([1]);";
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
      env: { ...process.env, ATTUNE_ADDON: '/nowhere/attune.node' },
    });
    expect(stdout).toBe('imported\n');
    expect(stderr).toContain('The engine could not be loaded from /nowhere/attune.node');
  });

  it('ends with 2 for bad usage, and suggests', () => {
    expect(attune(['docter'])).toMatchObject({ status: 2, errors: expect.stringContaining('Did you mean doctor?') });
    expect(attune(['doctor', '--jsno'])).toMatchObject({ status: 2, errors: expect.stringContaining('--json') });
  });

  it('leaves quietly when the reader of its output is gone', async () => {
    const child = spawn(process.execPath, ['bin/attune.mjs', '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let errors = '';
    child.stderr.on('data', (chunk) => {
      errors += chunk;
    });
    const [status] = await once(child, 'close');
    expect({ status, errors }).toEqual({ status: 0, errors: '' });
  });

  it('ends with 1 for a failure, with a stack trace only when asked', () => {
    const broken = { ATTUNE_LIBTORCH: '/nowhere', ATTUNE_ADDON: '' };
    const plain = attune(['demo'], broken);
    expect(plain).toMatchObject({
      status: 1,
      errors: expect.stringMatching(/^attune: ATTUNE_LIBTORCH=\/nowhere cannot be used: there is no such folder/),
    });
    expect(plain.errors).not.toMatch(/^\s+at /m);
    expect(attune(['demo'], { ...broken, ATTUNE_DEBUG: '1' }).errors).toMatch(/^\s+at /m);
  });
});

describe('attune doctor', () => {
  // Outside of `npm test`, which has built the addon before, this may have to compile it.
  it('finds this machine usable and says by what', () => {
    const { status, output } = attune(['doctor', '--json']);
    const found = JSON.parse(output);
    expect({ status, usable: found.usable }).toEqual({ status: 0, usable: true });
    expect(found.engine.libtorch).toMatch(/^\d+\.\d+/);
    expect(found.blas.name).not.toBe('unknown');
    expect(found.cpu.cores).toBeGreaterThan(0);
  });

  it('works without an engine, and says what to do', () => {
    const { status, output } = attune(['doctor'], { ATTUNE_LIBTORCH: '/nowhere', ATTUNE_ADDON: '' });
    expect(status).toBe(1);
    expect(output).toMatch(
      /error: ATTUNE_LIBTORCH=\/nowhere cannot be used: there is no such folder\n {2}remedy: Give the folder/,
    );
    expect(output).toContain('attune cannot run here yet.');
  });

  it('refuses a number of threads that cannot be meant', () => {
    const { status, errors } = attune(['doctor'], { ATTUNE_THREADS: 'two' });
    expect([status, errors]).toEqual([2, expect.stringContaining('ATTUNE_THREADS=two: expected a whole number')]);
  });

  it('survives an addon that does not load', () => {
    const { status, output } = attune(['doctor'], { ATTUNE_ADDON: '/nowhere/addon.node' });
    expect(status).toBe(1);
    expect(output).toContain('error: ATTUNE_ADDON=/nowhere/addon.node: there is no such addon');
  });
});
