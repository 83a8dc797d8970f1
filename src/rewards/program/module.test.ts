import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { scoreParts } from '../scorer.ts';
import type { RewardFunctionOptions } from './function.ts';
import { loadRewardModule } from './module.ts';
import { tolerant } from './tolerant.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-reward-module-'));
afterAll(() => rmSync(folder, { recursive: true }));

const items = ['a', 'bbb', 'cc'].map((response) => ({ prompt: 'say it', response }));
let files = 0;

function file(source: string, extension = 'ts'): string {
  const path = join(folder, `reward-${files++}.${extension}`);
  writeFileSync(path, source);
  return path;
}

const load = (source: string, options?: RewardFunctionOptions) => loadRewardModule(file(source), options);

describe('a reward module', () => {
  it('gives numbers or named parts, from TypeScript', async () => {
    const path = file('export default (batch: { response: string }[]) => batch.map((item) => item.response.length);');
    using scorer = await loadRewardModule(path);
    expect([scorer.name, await scorer.score(items)]).toEqual(['reward-0', [1, 3, 2]]);
    using named = await load(
      'export const reward = async (b) => ({ x: b.map(() => 1), y: Float32Array.of(0, 1, 2) });',
    );
    expect(await scoreParts(named, items)).toEqual({ total: [1, 2, 3], parts: { x: [1, 1, 1], y: [0, 1, 2] } });
  });

  it('is told where it cannot be loaded, and why', async () => {
    await expect(load('export const other = 1;')).rejects.toThrow(/exports no function.*other/);
    await expect(loadRewardModule(join(folder, 'absent.ts'))).rejects.toThrow(/There is no reward module/);
    const broken = 'export const a = 1;\nexport default (b) => {\n  return b.map((x) => x.length;\n};\n';
    await expect(load(broken)).rejects.toThrow(/reward-\d+\.ts:3: Expected/);
    await expect(loadRewardModule(file(broken, 'mjs'))).rejects.toThrow(/reward-\d+\.mjs:3: missing \)/);
    await expect(load('enum Kind { A }\nexport default () => [Kind.A];')).rejects.toThrow(/:1: .*enum.*only stripped/s);
    await expect(load('\nthrow new Error("no key");')).rejects.toThrow(/reward-\d+\.ts:2: no key/);
    await expect(load('process.exit(0)')).rejects.toThrow(/process\.exit\(0\) while it was loaded/);
  });

  it('cannot change what verifiers and rollouts read', async () => {
    using scorer = await load('export default (b) => b.map((item) => { item.response = "7"; return 1; });');
    const [item] = items;
    await expect(scorer.score([item as (typeof items)[0]])).rejects.toThrow(/sample 0 of 1 .*read only property/);
    expect(item?.response).toBe('a');
  });

  it('is ended at its time limit even in an endless loop, and starts afresh', async () => {
    using scorer = await load(
      'export default (b) => { if (b[0].response === "hang") for (;;); return b.map(() => 1); };',
      { timeLimitMs: 1000 },
    );
    await expect(scorer.score([{ prompt: '', response: 'hang' }])).rejects.toThrow(/longer than 1 s/);
    expect(await scorer.score(items)).toEqual([1, 1, 1]);
  });

  it('is stopped by a signal, and is told so', async () => {
    using scorer = await load('export default () => new Promise(() => {});');
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error('Ctrl-C')), 20);
    await expect(scorer.score(items, { signal: controller.signal })).rejects.toThrow('Ctrl-C');
  });

  it('does not end the program by a stray rejection, a timer or process.exit', async () => {
    const stray = 'if (b[0].response === "bad") Promise.reject(new Error("left alone"));';
    using rejecting = await load(`export default (b) => { ${stray} return new Promise(() => {}); };`);
    await expect(rejecting.score([{ prompt: '', response: 'bad' }])).rejects.toThrow(/outside of a batch: left alone/);
    // The batch is answered before the timer throws, so the next batch reports the error.
    using late = await load(
      'export default (b) => { setTimeout(() => { throw new Error("late"); }, 400); return b.map(() => 2); };',
    );
    expect(await late.score(items)).toEqual([2, 2, 2]);
    const nextFailure = async () => {
      for (;;) await late.score(items).then(() => new Promise((resolve) => setTimeout(resolve, 50)));
    };
    await expect(nextFailure()).rejects.toThrow(/outside of a batch: late/);
    using leaving = await load('export default () => process.exit(0);');
    await expect(leaving.score(items)).rejects.toThrow(/left by process\.exit\(0\)/);
  });
});

describe('a tolerated module', () => {
  const told = (source: string, options?: RewardFunctionOptions) =>
    load(source, options).then((module) => {
      const failures: string[] = [];
      return { scorer: tolerant(module, { onFailure: ({ message }) => failures.push(message) }), failures };
    });

  it('loses one time limit to a hang, not one for each sample', async () => {
    const calls = join(folder, 'calls');
    writeFileSync(calls, '');
    const hangs = `export default () => { appendFileSync(${JSON.stringify(calls)}, '.'); return new Promise(() => {}); };`;
    const { scorer, failures } = await told(`import { appendFileSync } from 'node:fs';\n${hangs}`, {
      timeLimitMs: 500,
    });
    expect(await scorer.score(Array.from({ length: 20 }, () => ({ prompt: '', response: '' })))).toEqual(
      new Array(20).fill(0),
    );
    // 0 if the thread did not reach it in time.
    expect(readFileSync(calls, 'utf8').length).toBeLessThanOrEqual(1);
    expect(failures).toEqual([expect.stringMatching(/20 samples, which get 0; the first: .*longer than 0.5 s/)]);
    scorer.dispose?.();
  });

  it('tells of many failures in few lines', async () => {
    const { scorer, failures } = await told(
      'export default (b) => b.map(({ response }) => { if (response === "bad") throw new Error("no"); return 1; });',
    );
    const batch = ['good', 'bad', 'bad', 'good'].map((response) => ({ prompt: '', response }));
    for (let i = 0; i < 32; i++) expect(await scorer.score(batch)).toEqual([1, 0, 0, 1]);
    expect(failures).toHaveLength(6);
    expect(failures[0]).toMatch(/failed on 2 samples, which get 0; the first: .*sample 0 of 1.*no$/);
    expect(failures.at(-1)).toMatch(/64 of 128 so far/);
    scorer.dispose?.();
  });

  it('is not forgiven numbers of the wrong count or type', async () => {
    for (const [source, message] of [
      ['export default () => [1];', /gave 1 number for 3 samples/],
      ['export default (b) => b.map(() => "1");', /gave "1" for sample 0, which is of type string/],
      ['export default (b) => b.map(() => undefined);', /gave undefined for sample 0, which is no value/],
      ['export default () => 1;', /gave 1; it must give one number per sample/],
      ['export default () => ({ x: 1 });', /gave 1 for its part "x"/],
    ] as const) {
      const { scorer } = await told(source);
      await expect(scorer.score(items)).rejects.toThrow(message);
      scorer.dispose?.();
    }
    const { scorer } = await told('export default (b) => b.map((_, i) => i === 1 ? NaN : 1);');
    expect(await scorer.score(items)).toEqual([1, 1, 1]);
    scorer.dispose?.();
  });
});
