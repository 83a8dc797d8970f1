import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { filesOfSplit, listFolder, localFiles, missingPath, readerFor, splitOf } from './files.ts';
import { hubFiles, parseHubName } from './hub.ts';
import { records } from './lines.ts';
import { parquetFiles } from './parquet.test-support.ts';
import { readParquet } from './parquet.ts';
import type { RowReader } from './row.ts';
import { sourceName } from './rows.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-sources-'));

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, content);
  return path;
}

async function readAll(path: string): Promise<{ rows: unknown[]; lines: number[]; bad: string[] }> {
  const bad: string[] = [];
  const rows: unknown[] = [];
  const lines: number[] = [];
  const complain = (_file: string, line: number, problem: string) => bad.push(`${line}: ${problem}`);
  for await (const { row, line } of (readerFor(path) as RowReader)(path, complain)) {
    rows.push(row);
    lines.push(line);
  }
  return { rows, lines, bad };
}

/** 32 MiB of spaces. */
const spaces = gzipSync(Buffer.alloc(1 << 25, ' '));

describe('jsonl', () => {
  const text = '\ufeff{"a":1}\r\n\n{"a":"ü\\n"}\n   \n{"a":3}';

  it('reads rows with their lines; byte-order mark, CRLF, blank lines and a missing last newline do not matter', async () => {
    const { rows, lines, bad } = await readAll(write('a.jsonl', text));
    expect(rows).toEqual([{ a: 1 }, { a: 'ü\n' }, { a: 3 }]);
    expect(lines).toEqual([1, 3, 5]);
    expect(bad).toEqual([]);
  });

  it('reads gzip, zstd, several gzip members in one file, and .gz names on plain text', async () => {
    const rows = [{ a: 1 }, { a: 'ü\n' }, { a: 3 }];
    expect((await readAll(write('a.jsonl.gz', gzipSync(text)))).rows).toEqual(rows);
    expect((await readAll(write('a.jsonl.zst', zstdCompressSync(text)))).rows).toEqual(rows);
    const two = Buffer.concat([gzipSync('{"a":1}\n'), gzipSync('{"a":2}\n')]);
    expect((await readAll(write('two.jsonl.gz', two))).rows).toEqual([{ a: 1 }, { a: 2 }]);
    expect((await readAll(write('plain.jsonl.gz', text))).rows).toEqual(rows);
  });

  it('joins lines that are cut by the chunks of the stream', async () => {
    const long = Array.from({ length: 50 }, (_, i) => ({ i, text: 'ö'.repeat(20_000 + i) }));
    const { rows } = await readAll(write('long.jsonl', long.map((row) => JSON.stringify(row)).join('\n')));
    expect(rows).toEqual(long);
  });

  it('names broken lines and goes on', async () => {
    const bytes = Buffer.concat([
      Buffer.from('{"a":1}\n{"a":\n[1]\n{"a":"'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('"}\n{"a":2}\n'),
    ]);
    const { rows, bad } = await readAll(write('broken.jsonl', bytes));
    expect(rows).toEqual([{ a: 1 }, { a: 2 }]);
    expect(bad.map((line) => line.slice(0, 12))).toEqual(['2: not JSON ', '3: a row mus', '4: not UTF-8']);
  });

  it('stops at a line without end, which a packed file of half a megabyte can hold', async () => {
    const packed = Buffer.concat([gzipSync('{"a":1}\n'), ...Array.from({ length: 9 }, () => spaces)]);
    await expect(readAll(write('endless.jsonl.gz', packed))).rejects.toThrow(
      /endless\.jsonl\.gz:2: a row of more than 256 MiB/,
    );
    await expect(readAll(write('endless.csv.gz', packed))).rejects.toThrow(/endless\.csv\.gz:2: a row of more/);
  });

  it('says that a gzip file ends too early, or is damaged', async () => {
    const packed = gzipSync(Array.from({ length: 2000 }, (_, i) => JSON.stringify({ i, x: Math.sin(i) })).join('\n'));
    await expect(readAll(write('cut.jsonl.gz', packed.subarray(0, packed.length / 2)))).rejects.toThrow(
      /cut\.jsonl\.gz: .*end too early/,
    );
    const spoilt = Buffer.from(packed);
    spoilt.fill(0xaa, 200, 400);
    await expect(readAll(write('spoilt.jsonl.gz', spoilt))).rejects.toThrow(UserError);
  });
});

describe('json', () => {
  it.each([
    ['a list', '[{"a":1},\n {"a":"]}\\"["},{"a":{"b":[1,2]}}]'],
    ['rows inside an object', '{"version": 2, "data": [{"a":1},{"a":"]}\\"["},{"a":{"b":[1,2]}}]}'],
    ['objects one after another', '{"a":1}\n{"a":\n"]}\\"["} {"a":{"b":[1,2]}}'],
  ])('reads %s', async (_, text) => {
    expect((await readAll(write('x.json', text))).rows).toEqual([{ a: 1 }, { a: ']}"[' }, { a: { b: [1, 2] } }]);
    expect((await readAll(write('x.json.gz', gzipSync(text)))).rows).toHaveLength(3);
  });

  it('reads lists larger than a chunk', async () => {
    const rows = Array.from({ length: 3000 }, (_, i) => ({ i, text: `"[{\\${'é'.repeat(i % 700)}` }));
    expect((await readAll(write('big.json', JSON.stringify(rows, null, 1)))).rows).toEqual(rows);
  });

  it('names elements that are no rows, with their lines', async () => {
    const { rows, bad } = await readAll(write('mixed.json', '[{"a":1},\n 17,\n "x",\n {"a":2}]'));
    expect(rows).toHaveLength(2);
    expect(bad).toEqual([
      '2: a row must be a JSON object, this is a number',
      '3: a row must be a JSON object, this is a string',
    ]);
  });

  it('says where a cut file ends', async () => {
    await expect(readAll(write('cut.json', '[{"a":1},\n{"a":'))).rejects.toThrow(
      /cut\.json:2: the file ends in the middle/,
    );
    await expect(readAll(write('cut2.json', '[{"a":1}'))).rejects.toThrow(/ends in the middle/);
  });
});

async function* pieces(text: string, size: number): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text);
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

describe('csv', () => {
  it('follows RFC 4180', async () => {
    const text = 'a,b,"c,d"\r\n1,"say ""hi""",\r\n"two\r\nlines","x,y",z\r\n\r\n,,"""\n"""';
    const { rows, lines } = await readAll(write('t.csv', text));
    expect(rows).toEqual([
      { a: '1', b: 'say "hi"', 'c,d': '' },
      { a: 'two\r\nlines', b: 'x,y', 'c,d': 'z' },
      { a: '', b: '', 'c,d': '"\n"' },
    ]);
    expect(lines).toEqual([2, 3, 6]);
  });

  it('reads tabs in .tsv, and quoted fields over many chunks', async () => {
    expect((await readAll(write('t.tsv', 'a\tb\n1,5\t2\n'))).rows).toEqual([{ a: '1,5', b: '2' }]);
    const long = `x,y\n"${'line\n'.repeat(120_000)}",1\n2,3\n`;
    const { rows } = await readAll(write('long.csv', long));
    expect(rows).toHaveLength(2);
    expect((rows[0] as { x: string }).x).toHaveLength(600_000);
  });

  it('takes a quote inside a field for text, wherever a chunk ends', async () => {
    const text = 'a,b\n5" disk,1\n"x ""y""\nz",6" disk\n7,8"\n';
    const rows = [
      { a: '5" disk', b: '1' },
      { a: 'x "y"\nz', b: '6" disk' },
      { a: '7', b: '8"' },
    ];
    expect(await readAll(write('loose.csv', text))).toMatchObject({ rows, bad: [], lines: [2, 3, 5] });
    const tabs = text.replaceAll(',', '\t');
    expect(await readAll(write('loose.tsv', tabs))).toMatchObject({ rows, bad: [] });
    const whole = await Array.fromAsync(records(pieces(text, text.length), 'x.csv', ','));
    expect(whole).toHaveLength(4);
    for (let size = 1; size < text.length; size++)
      expect(await Array.fromAsync(records(pieces(text, size), 'x.csv', ','))).toEqual(whole);
  });

  it('refuses two columns of one name', async () => {
    await expect(readAll(write('twice.csv', 'prompt,chosen,chosen\n1,2,3\n'))).rejects.toThrow(
      /twice.csv:1: .*"chosen" \(columns 2, 3\)/,
    );
  });

  it('takes columns without a name, as spreadsheets write them, however many there are', async () => {
    const { rows } = await readAll(write('sheet.csv', 'prompt,chosen,, \nq,a,,\n'));
    expect(rows).toMatchObject([{ prompt: 'q', chosen: 'a' }]);
    expect((await readAll(write('spaces.csv', 'a,,\n1,,\n'))).rows).toMatchObject([{ a: '1' }]);
  });

  it('names rows with too many fields, loose quotes and quotes that never close', async () => {
    const { rows, bad } = await readAll(write('bad.csv', 'a,b\n1,2,3\n"x"y,2\n3,4\n"open,5\n6,7\n'));
    expect(rows).toEqual([{ a: '3', b: '4' }]);
    expect(bad).toEqual([
      '2: 3 fields where the header has 2',
      '3: text follows a closing quote',
      '5: a quoted field is not closed',
    ]);
  });
});

describe('parquet', () => {
  it.each(Object.keys(parquetFiles))('reads what pyarrow wrote with %s', async (codec) => {
    const path = write(`${codec}.parquet`, Buffer.from(parquetFiles[codec] as string, 'base64'));
    const { rows, lines } = await readAll(path);
    expect(lines).toEqual([1, 2, 3, 4, 5]);
    expect(rows[3]).toEqual({
      prompt: 'Frage 3: wie groß ist 3 + 3?',
      chosen: [
        { role: 'user', content: 'q3' },
        { role: 'assistant', content: '6 ✓' },
      ],
      score: 1.5,
      n: 3,
    });
    expect((rows[1] as { score: unknown }).score ?? null).toBeNull();
  });

  it('says that a file is no parquet, or is cut or spoilt', async () => {
    const good = Buffer.from(parquetFiles.snappy as string, 'base64');
    const spoilt = Buffer.from(good);
    spoilt.fill(0xff, 10, 120);
    for (const bytes of [
      Buffer.from('not parquet at all'),
      good.subarray(0, good.length - 200),
      spoilt,
      Buffer.alloc(0),
    ]) {
      await expect(readAll(write('garbage.parquet', bytes))).rejects.toThrow(
        /garbage\.parquet: not a readable parquet file/,
      );
    }
  });
});

describe('damaged parquet', () => {
  const good = Buffer.from(parquetFiles.snappy as string, 'base64');

  it('gives one error for any damage, and leaves nothing unhandled', async () => {
    const stray: unknown[] = [];
    const listen = (reason: unknown) => stray.push(reason);
    process.on('unhandledRejection', listen);
    for (let at = 5; at < good.length; at += Math.ceil(good.length / 12)) {
      const bytes = Buffer.from(good);
      bytes.fill(0xff, at, at + 7);
      const path = write('damaged.parquet', bytes);
      const result = await Array.fromAsync(readParquet(path, undefined, { seconds: 1 })).catch((error) => error);
      if (result instanceof Error) expect(result).toMatchObject({ name: 'UserError' });
    }
    process.off('unhandledRejection', listen);
    expect(stray).toEqual([]);
  });

  it('stops a decoder that takes too long or too much', async () => {
    const path = write('slow.parquet', good);
    const read = async (limits: object) => Array.fromAsync(readParquet(path, undefined, limits));
    await expect(read({ seconds: 0 })).rejects.toThrow(/slow\.parquet: not a readable parquet file \(no rows within/);
    await expect(read({ megabytes: 1 })).rejects.toThrow(/slow\.parquet: not a readable parquet file \(.* more memory/);
    expect(await read({})).toHaveLength(5);
  });

  it('can be left early', async () => {
    for await (const { line } of readParquet(write('early.parquet', good))) {
      expect(line).toBe(1);
      break;
    }
  });
});

describe('what is not a file', () => {
  it('is refused, for a pipe has no end of its own', async () => {
    const pipe = join(folder, 'pipe.jsonl');
    execFileSync('mkfifo', [pipe]);
    expect(() => localFiles(pipe)).toThrow(/not a regular file/);
    await expect(readAll(pipe)).rejects.toThrow(/not a regular file/);
    await expect(Array.fromAsync(readParquet(pipe))).rejects.toThrow(/not a regular file/);
    await expect(Array.fromAsync(readParquet('/dev/zero'))).rejects.toThrow(/not a regular file/);
  });
});

describe('folders and splits', () => {
  it.each([
    ['data/train-00000-of-00002-ab12.parquet', 'train'],
    ['helpful-base.test.jsonl.gz', 'test'],
    ['main/valid/part.json', 'validation'],
    ['data/test_prefs-00000-of-00001.parquet', 'test_prefs'],
    ['training.csv', 'train'],
    ['contest.jsonl', undefined],
    ['pairs.jsonl', undefined],
  ])('%s belongs to %s', (path, split) => {
    expect(splitOf(path)).toBe(split);
  });

  it('takes the training files unless told otherwise, and lists the splits there are', () => {
    const files = ['a.train.jsonl', 'a.test.jsonl', 'extra.jsonl'];
    expect(filesOfSplit(files, undefined, 'set')).toEqual(['a.train.jsonl']);
    expect(filesOfSplit(files, 'all', 'set')).toEqual(files);
    expect(filesOfSplit(['x.jsonl', 'a.test.jsonl'], 'train', 'set')).toEqual(['x.jsonl']);
    expect(filesOfSplit(['a.test.jsonl', 'b.test.jsonl'], undefined, 'set')).toHaveLength(2);
    expect(() => filesOfSplit(files, 'tset', 'set')).toThrow(
      'set: no split "tset" (--split); it has train, test. Did you mean "test"?',
    );
  });

  it('keeps test rows out of training where the splits have longer names', () => {
    const files = ['data/test_prefs-0.parquet', 'data/train_prefs-0.parquet'];
    expect(filesOfSplit(files, undefined, 'set')).toEqual(['data/train_prefs-0.parquet']);
    expect(filesOfSplit(files, 'train', 'set')).toEqual(['data/train_prefs-0.parquet']);
    expect(filesOfSplit(files, 'test', 'set')).toEqual(['data/test_prefs-0.parquet']);
    expect(filesOfSplit(['a.jsonl', 'test_sft.jsonl', 'validation.jsonl'], undefined, 'set')).toEqual(['a.jsonl']);
  });

  it('refuses a split or subset that one file or folder does not have', () => {
    const file = write('one.jsonl', '{}');
    expect(localFiles(file, { split: 'train' })?.files).toEqual([file]);
    expect(() => localFiles(file, { split: 'test' })).toThrow(
      /no split "test" \(--split\); its file names speak of no splits/,
    );
    expect(() => localFiles(file, { subset: 'main' })).toThrow(/one file has no subsets; --subset main/);
    for (const name of ['s/main/train.jsonl', 's/main/test.jsonl', 's/other/train.jsonl']) write(name, '{}');
    const found = localFiles(join(folder, 's'), { subset: 'main' });
    expect(found?.files).toEqual([join(folder, 's/main/train.jsonl')]);
    expect(found?.leftAside).toEqual(['main/test.jsonl', 'other/train.jsonl']);
    expect(() => localFiles(join(folder, 's'), { subset: 'mian' })).toThrow(/no subset "mian".*Did you mean "main"/);
  });

  it('finds data files below a folder and passes over the rest', () => {
    for (const name of ['f/README.md', 'f/dataset_info.json', 'f/.cache/x.jsonl', 'f/sub/b.csv', 'f/a.jsonl.gz'])
      write(name, '{}');
    expect(listFolder(join(folder, 'f'))).toEqual(['a.jsonl.gz', 'sub/b.csv']);
  });

  it('explains paths that are of no use', () => {
    write('e/notes.txt', 'x');
    expect(() => localFiles(join(folder, 'e'))).toThrow(/holds no data files/);
    expect(() => localFiles(join(folder, 'e/notes.txt'))).toThrow(/not a kind of file/);
    write('g/pairs.jsonl', '');
    expect(missingPath(join(folder, 'g/pair.jsonl')).message).toContain('Did you mean "pairs.jsonl"?');
    write('g/pages.md', '');
    expect(missingPath(join(folder, 'g/page')).message).not.toContain('Did you mean');
    symlinkSync('moved.jsonl', join(folder, 'g/link.jsonl'));
    expect(missingPath(join(folder, 'g/link.jsonl')).message).toMatch(
      /link\.jsonl is a link to moved\.jsonl, where there is nothing\.$/,
    );
    expect(missingPath(join(folder, 'g/lnk.jsonl')).message).not.toContain('Did you mean');
  });

  it('names sources by what the file name says beyond split and part', () => {
    expect(sourceName('/d/harmless-base.test.jsonl.gz')).toBe('harmless-base');
    expect(sourceName('/d/helpful-base/train.jsonl.gz')).toBe('helpful-base');
    expect(sourceName('/d/data/train-00000-of-00002.parquet')).toBeUndefined();
  });
});

describe('hub', () => {
  const files = [
    '.gitattributes',
    'README.md',
    'data/rl/train-00000-of-00002.parquet',
    'data/rl/train-00001-of-00002.parquet',
    'data/reward/train-00000-of-00001.parquet',
    'data/rl/test-00000-of-00001.parquet',
  ];
  const hub = {
    list: async () => files,
    fetch: async (_repo: string, wanted: string[], revision?: string) =>
      wanted.map((file) => `/cache/${revision}/${file}`),
  };

  it('fetches the files of one subset and split, at one revision', async () => {
    const request = { repo: 'o/n', subset: 'rl', split: 'train', revision: 'v1' };
    expect(await hubFiles(hub, request)).toEqual([
      '/cache/v1/data/rl/train-00000-of-00002.parquet',
      '/cache/v1/data/rl/train-00001-of-00002.parquet',
    ]);
    expect(await hubFiles(hub, { repo: 'o/n', split: 'test' })).toHaveLength(1);
  });

  it('lists the subsets there are', async () => {
    await expect(hubFiles(hub, { repo: 'o/n', subset: 'rel' })).rejects.toThrow(/no subset "rel".*Did you mean "rl"\?/);
    await expect(hubFiles({ ...hub, list: async () => ['README.md'] }, { repo: 'o/n' })).rejects.toThrow(
      /no data files/,
    );
  });

  it('tells hub names from paths', () => {
    expect(parseHubName('openai/gsm8k@main')).toEqual({ repo: 'openai/gsm8k', revision: 'main' });
    expect(parseHubName('./data/x')).toBeUndefined();
    expect(parseHubName('a/b/c')).toBeUndefined();
    expect(parseHubName('pairs.jsonl')).toBeUndefined();
  });
});
