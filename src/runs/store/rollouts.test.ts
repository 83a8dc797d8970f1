import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, describe, expect, it } from 'vitest';
import { openRollouts, type Rollout, RolloutStore, type RolloutTokens } from './rollouts.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-rollouts-'));
afterAll(() => rmSync(folder, { recursive: true }));

const rollout = (step: number, promptIndex: number, reward: number): Rollout => ({
  step,
  epoch: 0,
  promptIndex,
  rolloutIndex: 1,
  prompt: `p${promptIndex}`,
  completion: `c${step}`,
  reward,
  advantage: reward / 2,
  parts: { verifier: reward, format: 1 },
  tokens: {
    promptIds: Int32Array.of(1, 2),
    completionIds: Int32Array.of(3, 4, 5),
    logprobs: Float32Array.of(-0.5, -0.25, -2),
  },
});

describe('rollouts.db', () => {
  it('has the promised tables, read while they are written', async () => {
    const path = join(folder, 'sub', 'rollouts.db');
    const store = await RolloutStore.open(path);
    await store.add([rollout(1, 0, 0.5), rollout(1, 1, 0.9)]);
    await store.addEval([
      { step: 1, epoch: 0, promptIndex: 3, prompt: 'q', completion: 'a', reward: 1, parts: { verifier: 1 } },
    ]);
    await store.flush();
    using reader = openRollouts(path);
    expect(reader.query().length).toBe(2);
    await store.add([rollout(2, 0, 0.1)]);
    await store.flush();
    expect(reader.best(1)).toEqual([
      {
        id: 2,
        step: 1,
        epoch: 0,
        promptIndex: 1,
        rolloutIndex: 1,
        prompt: 'p1',
        completion: 'c1',
        reward: 0.9,
        advantage: 0.45,
      },
    ]);
    expect(reader.worst(1)[0]?.step).toBe(2);
    expect(reader.promptOverTime(0).map((row) => row.completion)).toEqual(['c1', 'c2']);
    expect(reader.atStep(2).length).toBe(1);
    expect(reader.steps()).toEqual([
      { step: 1, count: 2, mean: 0.7, min: 0.5, max: 0.9 },
      { step: 2, count: 1, mean: 0.1, min: 0.1, max: 0.1 },
    ]);
    expect(reader.parts(2)).toEqual({ format: 1, verifier: 0.9 });
    expect(reader.evalQuery()[0]).toMatchObject({ promptIndex: 3, completion: 'a' });
    const tokens = reader.tokens(1);
    expect(tokens?.completionIds).toEqual(Int32Array.of(3, 4, 5));
    expect(tokens?.logprobs).toEqual(Float32Array.of(-0.5, -0.25, -2));
    expect(tokens?.refLogprobs).toBeUndefined();
    await store.close();

    const names = (table: string) =>
      new DatabaseSync(path)
        .prepare(`pragma table_info(${table})`)
        .all()
        .map((row) => row.name);
    expect(names('rollouts')).toEqual([
      'id',
      'step',
      'epoch',
      'prompt_index',
      'rollout_index',
      'prompt',
      'completion',
      'reward',
      'advantage',
    ]);
    expect(names('eval_rollouts')).toEqual(['id', 'step', 'epoch', 'prompt_index', 'prompt', 'completion', 'reward']);
  });

  it('drops later steps on resume, with their parts and tokens', async () => {
    const path = join(folder, 'resume.db');
    const first = await RolloutStore.open(path);
    for (const step of [1, 2, 3]) await first.add([rollout(step, 0, step)]);
    await first.close();
    const resumed = await RolloutStore.open(path, { resumedAt: 1 });
    await resumed.close();
    const database = new DatabaseSync(path);
    for (const table of ['rollouts', 'rollout_tokens']) {
      expect(database.prepare(`select count(*) as n from ${table}`).get()).toEqual({ n: 1 });
    }
    expect(database.prepare('select count(*) as n from reward_parts').get()).toEqual({ n: 2 });
    database.close();
  });

  it('keeps the turns of episodes, and of held-out ones, and drops them with their rollouts', async () => {
    const path = join(folder, 'episodes.db');
    const turns = [
      { role: 'assistant', content: '50', tokens: 2, reward: 0 },
      { role: 'user', content: 'Higher.' },
      { role: 'assistant', content: '62', tokens: 2, reward: 1 },
    ];
    const sequence = { ids: Int32Array.of(3, 9, 9, 4, 5), spans: Int32Array.of(2, 3, 5, 7) };
    const played = (step: number): Rollout => {
      const single = rollout(step, 0, 1);
      return { ...single, episode: { end: 'done', turns }, tokens: { ...(single.tokens as RolloutTokens), sequence } };
    };
    const store = await RolloutStore.open(path);
    await store.add([played(1), rollout(1, 1, 0.5), played(2)]);
    const held = { step: 1, epoch: 0, promptIndex: 3, prompt: 'q', completion: 'a', reward: 1 };
    for (let again = 0; again < 2; again++)
      await store.addEval([{ ...held, episode: { end: 'turns', turns: turns.slice(0, 1) } }]);
    await store.close();
    {
      using reader = openRollouts(path);
      expect(reader.episode(1)).toEqual({ end: 'done', turns });
      expect(reader.tokens(1)?.sequence).toEqual(sequence);
      expect([reader.episode(2), reader.tokens(2)?.sequence]).toEqual([undefined, undefined]);
      expect(reader.evalEpisode(reader.evalQuery()[0]?.id ?? 0)).toEqual({ end: 'turns', turns: turns.slice(0, 1) });
    }
    await (await RolloutStore.open(path, { resumedAt: 1 })).close();
    using database = new DatabaseSync(path);
    const counts = { rollout_episodes: 1, rollout_turns: 3, rollout_sequences: 1, eval_rollout_turns: 1 };
    for (const [table, n] of Object.entries(counts))
      expect(database.prepare(`select count(*) as n from ${table}`).get()).toEqual({ n });
    // A database of an earlier version lacks these tables.
    for (const table of ['rollout_episodes', 'rollout_sequences']) database.exec(`drop table ${table}`);
    using reader = openRollouts(path);
    expect([reader.episode(1), reader.tokens(1)?.sequence]).toEqual([undefined, undefined]);
  });

  it('applies back-pressure and loses nothing', async () => {
    const path = join(folder, 'many.db');
    const store = await RolloutStore.open(path, { queueLimit: 2 });
    for (let step = 0; step < 50; step++) await store.add([rollout(step, 0, step), rollout(step, 1, step)]);
    await store.close();
    using reader = openRollouts(path);
    expect(reader.query().length).toBe(100);
  });

  it('reports a failing write on the next call, and an absent database', async () => {
    const store = await RolloutStore.open(join(folder, 'bad.db'));
    await store.add([{ ...rollout(1, 0, 0), prompt: null as unknown as string }]);
    await expect(store.flush()).rejects.toThrow(/Cannot write rollouts to .*bad\.db: .*NOT NULL/);
    await expect(store.close()).rejects.toThrow(/NOT NULL/);
    await expect(RolloutStore.open(join(folder, 'bad.db', 'x.db'))).rejects.toThrow();
    expect(() => openRollouts(join(folder, 'none.db'))).toThrow(/There is no rollout database/);
  });

  it('is one file when its run has ended, also after it was read', async () => {
    const path = join(folder, 'ended.db');
    const store = await RolloutStore.open(path);
    await store.add([rollout(1, 0, 0.5)]);
    await store.close();
    using reader = openRollouts(path);
    expect(reader.query().length).toBe(1);
    expect([existsSync(`${path}-wal`), existsSync(`${path}-shm`)]).toEqual([false, false]);
    const resumed = await RolloutStore.open(path, { resumedAt: 1 });
    await resumed.add([rollout(2, 0, 0.5)]);
    await resumed.flush();
    expect(reader.query().length).toBe(2);
    await resumed.close();
  });

  it('is read where nothing can be written beside it', async () => {
    const path = join(folder, 'archived.db');
    const store = await RolloutStore.open(path);
    await store.add([rollout(1, 0, 0.5)]);
    await store.close();
    const database = new DatabaseSync(path);
    database.exec('pragma journal_mode = wal');
    database.close();
    // SQLite cannot create its log where a folder has that name, as on a read-only disk.
    mkdirSync(`${path}-wal`);
    using reader = openRollouts(path);
    expect(reader.query().length).toBe(1);
  });

  it("is read in another user's folder", async () => {
    const place = join(folder, 'theirs');
    const path = join(place, 'rollouts.db');
    const store = await RolloutStore.open(path);
    await store.add([rollout(1, 0, 0.5)]);
    await store.close();
    const database = new DatabaseSync(path);
    database.exec('pragma journal_mode = wal');
    database.close();
    chmodSync(folder, 0o755);
    chmodSync(path, 0o644);
    chmodSync(place, 0o555);
    const isRoot = process.geteuid?.() === 0;
    if (isRoot) process.seteuid?.(65534);
    try {
      using reader = openRollouts(path);
      expect(reader.query().length).toBe(1);
    } finally {
      if (isRoot) process.seteuid?.(0);
      chmodSync(place, 0o755);
    }
  });

  it('writes one database after another, also after one that could not be opened, and several at once', async () => {
    const path = (name: string) => join(folder, `one-${name}.db`);
    const write = async (name: string) => {
      const store = await RolloutStore.open(path(name));
      await store.add([rollout(1, 0, 0.5)]);
      return store;
    };
    await (await write('a')).close();
    writeFileSync(path('damaged'), 'x'.repeat(5000));
    await expect(RolloutStore.open(path('damaged'))).rejects.toThrow(/is damaged/);
    const both = [await write('b'), await write('c')];
    for (const store of both) await store.close();
    await (await write('d')).close();
    for (const name of ['a', 'b', 'c', 'd']) {
      using reader = openRollouts(path(name));
      expect(reader.query().length).toBe(1);
    }
  });

  it('is closed once, after all that was added, and then reaches no other store', async () => {
    const path = (name: string) => join(folder, `closed-${name}.db`);
    const [a, steps] = [await RolloutStore.open(path('a'), { queueLimit: 2 }), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]];
    const adds = steps.map((step) => a.add([rollout(step, 0, 0.5)]));
    await Promise.all([a.close(), a.close(), ...adds]);
    const b = await RolloutStore.open(path('b'));
    await expect(a.add([rollout(77, 0, 0.5)])).rejects.toThrow(/closed-a.db is closed/);
    await expect(a.flush()).rejects.toThrow(/is closed/);
    await a.close();
    await b.add([rollout(3, 0, 0.5)]);
    const closing = b.close();
    await expect(b.flush()).rejects.toThrow(/is closed/);
    await closing;
    const stepsOf = (name: string) => {
      using reader = openRollouts(path(name));
      return reader.query({ order: 'step', limit: 100 }).map(({ step }) => step);
    };
    expect(stepsOf('a').toSorted((x, y) => x - y)).toEqual(steps);
    expect(stepsOf('b')).toEqual([3]);
  });

  it('says what to do about a damaged database', async () => {
    const path = join(folder, 'damaged.db');
    writeFileSync(path, 'x'.repeat(5000));
    await expect(RolloutStore.open(path)).rejects.toThrow(/damaged\.db is damaged .*Move it away/);
  });
});
