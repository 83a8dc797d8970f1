import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lockRun } from '../lock.ts';
import { listCatalogue } from './catalogue.ts';
import { compareRuns } from './comparison.ts';
import { keptSnapshots, planRemoval, planSnapshot, type RemovalRules, remove } from './removal.ts';
import { chooseRuns, oldEnough, tagRun } from './selection.ts';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'attune-catalogue-')));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let roots = 0;
const newRoot = () => {
  const root = join(base, `root-${roots++}`);
  mkdirSync(root);
  return root;
};
const options = { cache: join(base, 'cache') };

interface Made {
  status?: string;
  created?: string;
  config?: object;
  steps?: number[];
  best?: number;
}

function makeRun(root: string, name: string, made: Made = {}): string {
  const path = join(root, name);
  mkdirSync(path, { recursive: true });
  const {
    status = 'finished',
    created = '2026-01-01T00:00:00.000Z',
    steps = [],
    config = { model: 'models/tiny' },
  } = made;
  writeFileSync(join(path, 'run.json'), JSON.stringify({ name, command: 'train policy', status, created, step: 7 }));
  writeFileSync(join(path, 'config.json'), JSON.stringify(config));
  writeFileSync(
    join(path, 'metrics.jsonl'),
    '{"step":1,"time":1,"train/loss":3}\n{"step":7,"time":2,"eval/accuracy":0.5}\n',
  );
  for (const step of steps) {
    const folder = join(path, `step-${step}`);
    mkdirSync(folder);
    writeFileSync(join(folder, 'weights'), Buffer.alloc(1000));
    writeFileSync(join(folder, 'trainer_state.json'), JSON.stringify({ best: { step: made.best } }));
  }
  return path;
}

describe('the catalogue', () => {
  it('names the model underneath, through adapters and quantised copies', () => {
    const root = newRoot();
    const adapter = join(makeRun(root, 'lora', { config: { model: 'org/base' } }), 'final');
    mkdirSync(adapter);
    writeFileSync(join(adapter, 'adapter_config.json'), JSON.stringify({ base_model_name_or_path: 'org/base' }));
    makeRun(root, 'further', { config: { model: adapter } });
    const copy = join(root, 'hub-model', 'quantized_int8');
    mkdirSync(copy, { recursive: true });
    writeFileSync(join(copy, 'run.json'), '{}');
    const bases = new Map(listCatalogue(root, options).map((run) => [run.name, run.base]));
    expect(bases.get('lora')).toBe('org/base');
    expect(bases.get('further')).toBe('org/base');
    expect(bases.get('quantized_int8')).toBe(join(root, 'hub-model'));
  });

  it('says what each run is, newest first, and by lock whether it runs', () => {
    const root = newRoot();
    makeRun(root, 'old/a', { steps: [10, 9] });
    const running = makeRun(root, 'b', { status: 'running', created: '2026-03-01T00:00:00.000Z' });
    makeRun(root, 'c', { status: 'running', created: '2026-02-01T00:00:00.000Z' });
    using _ = lockRun(running, 'train policy');
    const runs = listCatalogue(root, options);
    expect(runs.map(({ name, state }) => [name, state])).toEqual([
      ['b', 'running'],
      ['c', 'crashed'],
      ['a', 'finished'],
    ]);
    expect(runs[2]).toMatchObject({
      kind: 'policy',
      model: 'models/tiny',
      metric: { name: 'eval/accuracy', value: 0.5 },
    });
    expect(runs[2]?.snapshots.map(({ name }) => name)).toEqual(['step-9', 'step-10']);
  });

  it('is quick on 2,000 runs, and notices what has changed', () => {
    const root = newRoot();
    for (let i = 0; i < 2000; i++) makeRun(root, `run-${i}`);
    expect(listCatalogue(root, options)).toHaveLength(2000);
    const started = process.cpuUsage();
    expect(listCatalogue(root, options)).toHaveLength(2000);
    // Measures reading from the first listing's cache. In processor time, which a busy machine does not distort.
    const { user, system } = process.cpuUsage(started);
    expect((user + system) / 1e6).toBeLessThan(5);
    writeFileSync(join(root, 'run-7', 'metrics.jsonl'), '{"step":9,"time":1,"eval/accuracy":0.75}\n');
    makeRun(root, 'run-8', { steps: [3] });
    rmSync(join(root, 'run-9'), { recursive: true });
    const again = new Map(listCatalogue(root, options).map((run) => [run.name, run]));
    expect([again.size, again.get('run-7')?.metric?.value, again.get('run-8')?.snapshots.length]).toEqual([
      1999, 0.75, 1,
    ]);
  });

  it('chooses by name, path, tag and age', () => {
    const root = newRoot();
    makeRun(root, 'x/a');
    makeRun(root, 'y/a', { created: '2026-05-01T00:00:00.000Z' });
    const all = listCatalogue(root, options);
    expect(() => chooseRuns(all, ['a'])).toThrow(/names several runs/);
    expect(() => chooseRuns(all, ['b'])).toThrow(/no run "b"/);
    const [first] = chooseRuns(all, ['x/a']);
    expect(tagRun(first as (typeof all)[0], ['keep', 'old'])).toEqual(['keep', 'old']);
    expect(chooseRuns(listCatalogue(root, options), ['#keep']).map(({ path }) => path)).toEqual([join(root, 'x/a')]);
    expect(() => tagRun(first as (typeof all)[0], ['new', ' '])).toThrow(/this one is empty/);
    for (const odd of ['<b>', '#keep', 'two\nlines', 'x'.repeat(65)])
      expect(() => tagRun(first as (typeof all)[0], [odd]), odd).toThrow(/A tag begins with a letter or a digit/);
    expect(tagRun(first as (typeof all)[0], ['keep', 'old', 'lr=1e-5', '-lr=1e-5'])).toEqual(['keep', 'old']);
    expect(chooseRuns(listCatalogue(root, options), ['#new'])).toEqual([]);
    const now = Date.parse('2026-05-02T00:00:00.000Z');
    expect(oldEnough(all, '30d', now).map(({ path }) => path)).toEqual([join(root, 'x/a')]);
    expect(() => oldEnough(all, 'soon')).toThrow(/--older-than soon/);
  });

  it('compares only what differs', () => {
    const root = newRoot();
    const paths = [
      makeRun(root, 'a', { config: { lr: 1, seed: 2, lora: { r: 8 } } }),
      makeRun(root, 'b', { config: { lr: 3, seed: 2, lora: { r: 8 } } }),
    ];
    expect(compareRuns(paths)).toEqual({
      options: { lr: [1, 3] },
      metrics: { 'eval/accuracy': [0.5, 0.5], 'train/loss': [3, 3] },
    });
  });
});

describe('deleting', () => {
  const only = (root: string, name: string) => {
    const [run] = chooseRuns(listCatalogue(root, options), [name]);
    if (run === undefined) throw new Error('not there');
    return run;
  };

  it('keeps the newest and the best where asked', () => {
    const root = newRoot();
    const path = makeRun(root, 'a', { steps: [1, 2, 3, 4], best: 2 });
    const plan = planRemoval(root, [only(root, 'a')], { keepLast: 1, keepBest: true });
    expect(plan.map((each) => each.path)).toEqual([join(path, 'step-1'), join(path, 'step-3')]);
    expect(remove(plan).removed).toHaveLength(2);
    expect(only(root, 'a').snapshots.map(({ name }) => name)).toEqual(['step-2', 'step-4']);
    expect(() => planSnapshot(root, only(root, 'a'), 'step-9')).toThrow(/no snapshot "step-9"/);
  });

  it('keeps the newest where nothing else is left to go on from', () => {
    const root = newRoot();
    const left = (name: string, rules: RemovalRules) => {
      const doomed = planRemoval(root, [only(root, name)], rules).map(({ path }) => basename(path));
      expect(keptSnapshots(only(root, name), rules).some((each) => doomed.includes(each.name))).toBe(false);
      return only(root, name)
        .snapshots.map((each) => each.name)
        .filter((each) => !doomed.includes(each));
    };
    makeRun(root, 'stopped', { steps: [1, 2, 3], status: 'interrupted' });
    makeRun(root, 'lost', { steps: [1, 2], status: 'interrupted', best: 9 });
    mkdirSync(join(makeRun(root, 'done', { steps: [1, 2] }), 'final'));
    mkdirSync(join(makeRun(root, 'again', { steps: [1, 2, 3], status: 'interrupted' }), 'final'));
    mkdirSync(join(makeRun(root, 'best', { steps: [1, 2], status: 'failed' }), 'best_model'));
    expect(left('stopped', { keepBest: true })).toEqual(['step-3']);
    expect(left('stopped', { keepLast: 0 })).toEqual(['step-3']);
    expect(left('stopped', { keepLast: 2, keepBest: true })).toEqual(['step-2', 'step-3']);
    expect(left('lost', { keepBest: true })).toEqual(['step-2']);
    expect(left('done', { keepBest: true })).toEqual(['final']);
    expect(left('again', { keepBest: true })).toEqual(['step-3', 'final']);
    expect(left('best', { keepBest: true })).toEqual(['step-2', 'best_model']);
  });

  it('follows no link out of the folder', () => {
    const [root, outside] = [newRoot(), newRoot()];
    const treasure = makeRun(outside, 'treasure');
    const path = makeRun(root, 'a');
    symlinkSync(treasure, join(path, 'link'));
    symlinkSync(treasure, join(root, 'linked-run'));
    expect(listCatalogue(root, options).map(({ name }) => name)).toEqual(['a']);
    remove(planRemoval(root, [only(root, 'a')]));
    expect([existsSync(path), existsSync(join(treasure, 'run.json'))]).toEqual([false, true]);
    expect(() => planRemoval(root, listCatalogue(outside, options))).toThrow(/lies outside/);
  });

  it('takes the rollouts of a run along that lie in a folder of its name, and nothing else there', () => {
    const root = newRoot();
    const rolloutsOf = (name: string, ...more: string[]) => {
      const path = makeRun(root, name);
      const place = join(root, 'rollouts', name);
      mkdirSync(place, { recursive: true });
      for (const file of ['rollouts.db', 'rollouts.db-wal', ...more]) writeFileSync(join(place, file), '');
      const info = { name, command: 'train policy', status: 'finished', rollouts: join(place, 'rollouts.db') };
      writeFileSync(join(path, 'run.json'), JSON.stringify(info));
      return place;
    };
    const [alone, shared] = [rolloutsOf('alone'), rolloutsOf('shared', 'notes.txt')];
    remove(planRemoval(root, [only(root, 'alone'), only(root, 'shared')]));
    expect([existsSync(alone), existsSync(join(shared, 'rollouts.db'))]).toEqual([false, true]);
    const inside = makeRun(root, 'inside');
    writeFileSync(join(inside, 'run.json'), JSON.stringify({ name: 'inside', rollouts: 'rollouts.db' }));
    expect(planRemoval(root, [only(root, 'inside')]).map(({ path }) => path)).toEqual([inside]);
  });

  it('refuses what is being written, and what is no longer what was shown', () => {
    const root = newRoot();
    const path = makeRun(root, 'a', { status: 'running' });
    const plan = planRemoval(root, [only(root, 'a')]);
    {
      using _ = lockRun(path, 'train policy');
      expect(() => planRemoval(root, [only(root, 'a')])).toThrow(/is being written by process/);
      expect(remove(plan).left).toEqual([{ path, why: 'its run is being written' }]);
    }
    rmSync(path, { recursive: true });
    mkdirSync(join(root, 'other'));
    makeRun(root, 'a');
    expect(remove(plan).left).toEqual([{ path, why: 'it is not the folder that was shown' }]);
    expect(existsSync(path)).toBe(true);
  });

  it('goes on past what cannot be deleted, and says why', () => {
    const root = newRoot();
    const [locked, free] = [makeRun(root, 'locked'), makeRun(root, 'unlocked')];
    const plan = planRemoval(root, [only(root, 'locked'), only(root, 'unlocked')]);
    chmodSync(base, 0o755);
    chmodSync(root, 0o777);
    chmodSync(locked, 0o555);
    for (const path of [free, ...readdirSync(free).map((name) => join(free, name))]) chmodSync(path, 0o777);
    const isRoot = process.geteuid?.() === 0;
    if (isRoot) process.seteuid?.(65534);
    try {
      expect(remove(plan)).toMatchObject({
        removed: [{ path: free }],
        left: [{ path: locked, why: 'no permission to delete it' }],
      });
    } finally {
      if (isRoot) process.seteuid?.(0);
      chmodSync(locked, 0o755);
    }
  });
});
