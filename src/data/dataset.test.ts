import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openDataset } from './dataset.ts';
import type { Row } from './sources/row.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-dataset-'));

function write(name: string, rows: (Row | string)[]): string {
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'));
  return path;
}

const pair = (i: number) => ({ prompt: `Question ${i}`, chosen: `A good answer ${i}`, rejected: `A poor answer ${i}` });
const pairs = (count: number, from = 0) => Array.from({ length: count }, (_, i) => pair(from + i));
const prompts = (list: { prompt: { content: string }[] }[]) => list.map((example) => example.prompt[0]?.content ?? '');

describe('sources', () => {
  it('gives the same examples from a file, an array, an iterable, an async iterable and a function', async () => {
    const rows = pairs(5);
    async function* stream() {
      yield* rows;
    }
    const wanted = await (await openDataset(write('five.jsonl', rows), { shape: 'preference' })).toArray();
    expect(wanted).toHaveLength(5);
    for (const spec of [rows, new Set(rows), stream(), stream]) {
      expect(await (await openDataset(spec, { shape: 'preference' })).toArray()).toEqual(wanted);
    }
  });

  it('knows the shape of an iterable without using it up, and reads one only once', async () => {
    const dataset = await openDataset(new Set(pairs(3)));
    expect(await dataset.shape()).toBe('preference');
    expect(await dataset.toArray()).toHaveLength(3);
    await expect(dataset.toArray()).rejects.toThrow(/only once/);
  });

  it('opens hub sets through the client, with what is known of them', async () => {
    const file = write('hh.jsonl', [
      { chosen: '\n\nHuman: Q\n\nAssistant: a', rejected: '\n\nHuman: Q\n\nAssistant: b' },
    ]);
    const asked: string[] = [];
    const hub = {
      list: async (repo: string, revision?: string) => {
        asked.push(`${repo} ${revision}`);
        return ['helpful-base/train.jsonl.gz', 'helpful-base/test.jsonl.gz', 'red-team-attempts/train.jsonl.gz'];
      },
      fetch: async (_repo: string, files: string[]) => {
        asked.push(files.join());
        return [file];
      },
    };
    const dataset = await openDataset('Anthropic/hh-rlhf@v1', { hub });
    expect(await dataset.toArray()).toEqual([{ prompt: [{ role: 'user', content: 'Q' }], chosen: 'a', rejected: 'b' }]);
    expect(asked).toEqual(['Anthropic/hh-rlhf v1', 'helpful-base/train.jsonl.gz']);
    await expect(openDataset('Anthropic/hh-rlhf')).rejects.toThrow(/no such file or folder/);
  });

  it('are not asked for a path: a data file, or what should lie in a folder that is here', async () => {
    const fail = () => Promise.reject(new Error('asked'));
    const hub = { list: fail, fetch: fail };
    await expect(openDataset('nope/chats.jsonl', { hub })).rejects.toThrow('nope/chats.jsonl: no such file or folder.');
    await expect(openDataset('src/dta', { hub })).rejects.toThrow(
      'src/dta: no such file or folder; src/ is a folder here. Did you mean "data"? For the hub\'s dataset of that name, write src/dta@main.',
    );
    await expect(openDataset('src/dta@main', { hub })).rejects.toThrow('asked');
    await expect(openDataset('src/dta', { hub, revision: 'main' })).rejects.toThrow('asked');
    await expect(openDataset('src/dta', { hub: { ...hub, isCached: async () => true } })).rejects.toThrow('asked');
    await expect(openDataset('LICENSE/dta', { hub })).rejects.toThrow('asked');
    await expect(openDataset('LICENSE/dta')).rejects.toThrow('LICENSE/dta: no such file or folder.');
  });
});

describe('split', () => {
  it('is complete, disjoint, near the share asked for, and the same each time', async () => {
    const dataset = await openDataset(pairs(3000), { shape: 'preference' });
    const { train, validation } = dataset.split(0.1, 1);
    const [left, right] = [prompts(await train.toArray()), prompts(await validation.toArray())];
    expect(new Set([...left, ...right]).size).toBe(3000);
    expect(left.length + right.length).toBe(3000);
    expect(right.length).toBeGreaterThan(235);
    expect(right.length).toBeLessThan(365);
    expect(prompts(await dataset.split(0.1, 1).validation.toArray())).toEqual(right);
    expect(prompts(await dataset.split(0.1, 2).validation.toArray())).not.toEqual(right);
  });

  it('moves no row when others are added, removed or reordered, and keeps equal prompts together', async () => {
    const side = async (rows: Row[]) =>
      new Set(prompts(await (await openDataset(rows, { shape: 'preference' })).split(0.3).validation.toArray()));
    const before = await side(pairs(200));
    const after = await side([...pairs(300, 100).reverse(), ...pairs(100)]);
    for (const prompt of before) expect(after.has(prompt)).toBe(true);
    for (const { prompt } of pairs(200)) expect(after.has(prompt)).toBe(before.has(prompt));
    const twice = pairs(100).flatMap((row) => [row, { ...row, chosen: 'Another good answer' }]);
    const { train, validation } = (await openDataset(twice, { shape: 'preference' })).split(0.3);
    const trained = new Set(prompts(await train.toArray()));
    expect(prompts(await validation.toArray()).some((prompt) => trained.has(prompt))).toBe(false);
  });

  it('divides the sample where only some examples are taken', async () => {
    const dataset = await openDataset(pairs(500), { shape: 'preference', maxSamples: 100 });
    const { train, validation } = dataset.split(0.3);
    const both = [...prompts(await train.toArray()), ...prompts(await validation.toArray())];
    expect(both.sort()).toEqual(prompts(await dataset.toArray()).sort());
    expect(both).toHaveLength(100);
    expect(dataset.tally.toJSON()).toMatchObject({ rows: 500, examples: 100, dropped: { 'not sampled': 400 } });
  });

  it('holds out one prompt of a small set, and trains on at least one', async () => {
    for (let count = 2; count <= 12; count++) {
      for (const share of [0.0001, 0.05, 0.9999]) {
        const twice = pairs(count).flatMap((row) => [row, { ...row, chosen: 'Another good answer' }]);
        const { train, validation } = (await openDataset(twice, { shape: 'preference' })).split(share, count);
        const [left, right] = [prompts(await train.toArray()), prompts(await validation.toArray())];
        if (share === 0.0001) expect(right).toHaveLength(2);
        if (share === 0.9999) expect(left).toHaveLength(2);
        expect([...left, ...right].sort()).toEqual(twice.map(({ prompt }) => prompt).sort());
        expect(left.some((prompt) => right.includes(prompt))).toBe(false);
      }
    }
  });

  it('holds out nothing where there is only one prompt', async () => {
    const one = await openDataset([...pairs(1), ...pairs(1)], { shape: 'preference' });
    const { train, validation } = await one.holdOut(0.5);
    expect(validation).toBeUndefined();
    expect(await train.toArray()).toHaveLength(2);
    expect((await (await openDataset(pairs(2), { shape: 'preference' })).holdOut(0.5)).validation).toBeDefined();
  });

  it('refuses shares that make no sense, and says when a side is empty', async () => {
    const dataset = await openDataset(pairs(1), { shape: 'preference' });
    expect(() => dataset.split(1)).toThrow(/between 0 and 1/);
    await expect(dataset.split(0.5).validation.toArray()).rejects.toThrow(/no usable examples in the validation part/);
  });
});

describe('samples', () => {
  it('draws at random under the seed, each example equally likely, in the order of the rows', async () => {
    const draw = async (seed: number) =>
      prompts(await (await openDataset(pairs(50), { shape: 'preference', maxSamples: 10, seed })).toArray());
    const first = await draw(1);
    expect(await draw(1)).toEqual(first);
    expect(await draw(2)).not.toEqual(first);
    const places = first.map((prompt) => Number(prompt.slice(9)));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    const counts = new Map<string, number>();
    for (let seed = 0; seed < 500; seed++)
      for (const prompt of await draw(seed)) counts.set(prompt, (counts.get(prompt) ?? 0) + 1);
    // Expected 100 each, standard deviation about 9.
    for (const count of counts.values()) expect(Math.abs(count - 100)).toBeLessThan(45);
    expect(counts.size).toBe(50);
  });

  it('takes the first rows and stops reading there', async () => {
    let read = 0;
    function* endless() {
      for (let i = 0; ; i++) {
        read++;
        yield pair(i);
      }
    }
    const dataset = await openDataset(endless, { shape: 'preference', maxSamples: 3, sample: 'first' });
    expect(prompts(await dataset.toArray())).toEqual(['Question 0', 'Question 1', 'Question 2']);
    expect(read).toBe(3);
  });
});

describe('what is left out', () => {
  const rows: (Row | string)[] = [
    pair(0),
    { prompt: 'Q', chosen: 'the same words', rejected: 'the same words ' },
    { prompt: 'Q', chosen: 'graded just alike', rejected: 'graded as the other', score_chosen: 3, score_rejected: 3 },
    { prompt: 'Q', chosen: 'short', rejected: 'a long enough answer' },
    '{"prompt": ',
    { prompt: 'Q', chosen: 7, rejected: 'a long enough answer' },
    { prompt: 'Q', chosen: '<think>let me see</think>short', rejected: 'a long enough answer' },
  ];

  it('is counted by reason', async () => {
    const path = write('odd.jsonl', rows);
    const dataset = await openDataset(path, {
      shape: 'preference',
      onBadRow: 'skip',
      dropTies: true,
      minResponseChars: 10,
      stripThinking: true,
    });
    expect(await dataset.toArray()).toHaveLength(1);
    expect(dataset.tally.toJSON()).toEqual({
      rows: 7,
      badRows: 2,
      examples: 1,
      dropped: { ties: 2, 'tiny responses': 2 },
    });
    expect(dataset.tally.summary()).toBe(
      '1 examples from 7 rows; 2 broken rows skipped; 4 left out (ties 2, tiny responses 2)',
    );
    expect(dataset.tally.faults[0]).toMatch(/odd\.jsonl:5: not JSON/);
  });

  it('is kept unless asked', async () => {
    const dataset = await openDataset(write('odd2.jsonl', rows), { shape: 'preference', onBadRow: 'skip' });
    expect(await dataset.toArray()).toHaveLength(5);
  });
});

describe('faults', () => {
  it('stops at a broken row with its place, unless told to skip', async () => {
    const path = write('broken.jsonl', [pair(0), '{"prompt": ', pair(1)]);
    await expect((await openDataset(path)).toArray()).rejects.toThrow(/broken\.jsonl:2: not JSON .*--on-bad-row skip/);
    const mixed = write('mixed.jsonl', [pair(0), { prompt: 'Q', chosen: ['x'], rejected: 'y' }]);
    await expect((await openDataset(mixed)).toArray()).rejects.toThrow(/mixed\.jsonl:2: "chosen" must hold messages/);
    const wide = write('utf16.jsonl', []);
    writeFileSync(wide, Buffer.from('{"text":"é"}', 'latin1'));
    await expect((await openDataset(wide, { shape: 'text' })).toArray()).rejects.toThrow(/utf16\.jsonl:1: not UTF-8/);
  });

  it('takes a margin that cannot be read for a fault where margins are asked for', async () => {
    const graded = (more: object) => [
      { ...pair(0), margin: 2 },
      { ...pair(1), ...more },
    ];
    const margins = async (more: object, options = {}) => {
      const set = await openDataset(write('margins.jsonl', graded(more)), {
        shape: 'preference',
        margins: true,
        ...options,
      });
      return { margins: (await set.toArray()).map(({ margin }) => margin), bad: set.tally.badRows };
    };
    for (const margin of ['big', 'NaN', '', true, [1], 1e300, '-1e39'])
      await expect(margins({ margin })).rejects.toThrow(
        /margins\.jsonl:2: "margin" must be a number.*--on-bad-row skip/,
      );
    for (const more of [{}, { margin: null }, { score_chosen: 3 }])
      await expect(margins(more)).rejects.toThrow(/margins\.jsonl:2: the pair has no margin, nor two scores/);
    await expect(margins({ score_chosen: 3, score_rejected: 'few' })).rejects.toThrow(
      /2: "score_rejected" must be a number/,
    );
    expect(await margins({ margin: 'big' }, { onBadRow: 'skip' })).toEqual({ margins: [2], bad: 1 });
    expect(await margins({ margin: '0.5' })).toEqual({ margins: [2, 0.5], bad: 0 });
    expect(await margins({ score_chosen: 3, score_rejected: 1 })).toEqual({ margins: [2, 2], bad: 0 });
    // Other trainings do not read the margin.
    expect(await margins({ margin: 'big' }, { margins: false })).toEqual({ margins: [2, undefined], bad: 0 });
  });

  it('names the first broken row where no row is sound, whether or not a shape is asked for', async () => {
    const file = write('broken.jsonl', ['{"prompt": oops}', '[1]']);
    const dataset = await openDataset(file, { onBadRow: 'skip' });
    await expect(dataset.shape()).rejects.toThrow(/broken\.jsonl:1: not JSON .*oops/);
  });

  it('says that a set is empty, or holds only ties or only broken rows', async () => {
    await expect((await openDataset(write('empty.jsonl', []), { shape: 'text' })).toArray()).rejects.toThrow(
      /the dataset is empty/,
    );
    await expect((await openDataset([])).shape()).rejects.toThrow(/the dataset is empty/);
    const ties = Array.from({ length: 4 }, () => ({ prompt: 'Q', chosen: 'x', rejected: 'x' }));
    await expect((await openDataset(ties, { dropTies: true })).toArray()).rejects.toThrow(/all 4 pairs are ties/);
    const broken = write('allbroken.jsonl', ['{', '[', '5']);
    const dataset = await openDataset(broken, { shape: 'text', onBadRow: 'skip' });
    await expect(dataset.toArray()).rejects.toThrow(
      /no usable examples: .*3 broken.*first broken row: .*allbroken\.jsonl:1/,
    );
  });

  it('refuses folders whose files have different shapes', async () => {
    const mixed = mkdtempSync(join(folder, 'shapes-'));
    writeFileSync(join(mixed, 'a.jsonl'), JSON.stringify(pair(0)));
    writeFileSync(join(mixed, 'b.jsonl'), JSON.stringify({ text: 'x' }));
    await expect((await openDataset(mixed)).toArray()).rejects.toThrow(
      /b\.jsonl: the columns text do not make a preference set/,
    );
  });
});

describe('fingerprint', () => {
  it('follows the content and the options, not the place', async () => {
    const path = write('print.jsonl', pairs(3));
    const copy = join(mkdtempSync(join(folder, 'copy-')), 'print.jsonl');
    writeFileSync(
      copy,
      pairs(3)
        .map((row) => JSON.stringify(row))
        .join('\n'),
    );
    const print = async (file: string, options = {}) =>
      (await openDataset(file, { shape: 'preference', ...options })).fingerprint();
    expect(await print(path)).toBe(await print(copy));
    expect(await print(path, { dropTies: true })).not.toBe(await print(path));
    writeFileSync(
      copy,
      pairs(3, 1)
        .map((row) => JSON.stringify(row))
        .join('\n'),
    );
    expect(await print(path)).not.toBe(await print(copy));
    const { train, validation } = (await openDataset(path)).split(0.5);
    expect(await train.fingerprint()).not.toBe(await validation.fingerprint());
  });
});
