/** The programs in examples/ run as a reader would run them, only shorter, and end with something learnt. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Registry, serve } from '../src/serve/index.ts';

const root = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'attune-examples-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
  rmSync(join(root, 'checkpoints/own'), { recursive: true, force: true });
});

function example(name: string, ...args: string[]): string {
  const out = join(folder, `${name}.png`);
  const path = join(root, 'examples', `${name}.ts`);
  const result = spawnSync(process.execPath, ['--conditions=attune-source', path, ...args, '--out', out], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(result.stderr).toBe('');
  expect(readFileSync(out).subarray(1, 4).toString()).toBe('PNG');
  return result.stdout;
}

/** The numbers of the line that tells what was reached. */
const reached = (output: string) => (output.match(/^held-out.*$/m)?.[0].match(/[\d.]+/g) ?? []).map(Number);

describe('examples', () => {
  it('grpo raises the accuracy on held-out problems', () => {
    const [before = 1, after = 0] = reached(example('grpo', '--steps', '6'));
    expect(after).toBeGreaterThan(before);
  });

  it('dpo ranks most held-out pairs rightly', () => {
    const [after = 0] = reached(example('dpo', '--pairs', '64'));
    expect(after).toBeGreaterThan(0.7);
  });

  it('a reward model ranks most held-out pairs rightly, and is saved as one', () => {
    const saved = join(folder, 'saved');
    const [before = 1, after = 0] = reached(example('reward-model', '--pairs', '240', '--save', saved));
    expect(after).toBeGreaterThan(Math.max(before, 0.8));
    expect(existsSync(join(saved, 'tokenizer.json'))).toBe(true);
    expect(JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8')).num_labels).toBe(1);
  });

  describe("with a part of one's own", () => {
    const programs: [string, RegExp][] = [
      ['own-policy-loss', /right in training: [\d.]+ → [\d.]+/],
      ['own-preference-loss', /step 3 {2}loss \d/],
      ['own-reward', /at the end: right [\d.]+ {2}tokens \d+/],
      ['own-agent', /step 3 {2}first [\d.]+ {2}checked [\d.]+/],
      ['own-environment', /at the end: solved [\d.]+ {2}turns [\d.]+ {2}reward [\d.]+/],
    ];
    const path = (name: string) => join(root, 'examples', `${name}.ts`);
    const printed = new Map<string, string>();

    // One process for all: each would load the engine and what draws curves anew.
    beforeAll(() => {
      const runAll = programs
        .map(([name]) => `console.log('\\f${name}'); await import(${JSON.stringify(path(name))});`)
        .join('\n');
      const args = ['--conditions=attune-source', '--input-type=module', '-e', runAll, '--', '--steps', '3'];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
      expect([status, stderr]).toEqual([0, '']);
      for (const part of stdout.split('\f').slice(1)) printed.set(part.slice(0, part.indexOf('\n')), part);
    });

    it.each(programs)('%s runs, in under 40 lines', (name, said) => {
      expect(readFileSync(path(name), 'utf8').trimEnd().split('\n').length).toBeLessThan(40);
      expect(printed.get(name)).toMatch(said);
    });
  });

  it("clients of a server: OpenAI's and the AI SDK's", async () => {
    using registry = new Registry({ dtype: 'float32', maxTokens: 512 });
    await registry.add('tiny', join(root, 'models/tiny'));
    await using server = await serve(registry, { port: 0 });
    // Not spawnSync: the server lives in this process.
    const told = (name: string) =>
      new Promise<string>((resolve, reject) => {
        const path = join(root, 'examples', `${name}.ts`);
        const child = spawn(process.execPath, ['--conditions=attune-source', path, '--url', `${server.url}/v1`]);
        let [text, errors] = ['', ''];
        child.stdout.on('data', (piece) => (text += piece));
        child.stderr.on('data', (piece) => (errors += piece));
        child.on('close', (code) => (code === 0 ? resolve(text) : reject(new Error(errors))));
      });
    const openai = await told('openai-client');
    expect(openai).toContain('model: tiny');
    expect(openai).toMatch(/chat: .*<answer>.*\(\d+ tokens\)/);
    expect(openai).toMatch(/stream: \S/);
    expect(openai).toMatch(/json: \{ word: .*, letters: -?\d+ \}/);
    expect(openai).toContain('error: 404 model_not_found');
    const sdk = await told('ai-sdk');
    expect(sdk).toMatch(/text: .*<answer>.*\(\d+ tokens\)/);
    expect(sdk).toMatch(/stream: \S/);
    expect(sdk).toMatch(/object: \{ word: .*, letters: -?\d+ \}/);
  });

  it('fit on two screens: at most 150 lines each', () => {
    for (const name of readdirSync(join(root, 'examples')).filter((each) => each.endsWith('.ts')))
      expect(readFileSync(join(root, 'examples', name), 'utf8').split('\n').length, name).toBeLessThanOrEqual(150);
  });
});
