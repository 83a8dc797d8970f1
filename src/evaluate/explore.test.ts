import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { explore } from './explore.ts';
import { quantile, summarise } from './summary.ts';

const turn = (role: string, content: string) => ({ role, content });

describe('summarise', () => {
  it('agrees with NumPy', () => {
    // numpy: mean, std(ddof=1), percentile 50/90/99 of [3, 1, 4, 1, 5, 9, 2, 6]
    const { mean, std, median, p90, p99, min, max } = summarise([3, 1, 4, 1, 5, 9, 2, 6]);
    expect([mean, median, min, max]).toEqual([3.875, 3.5, 1, 9]);
    expect(std).toBeCloseTo(2.748376143938713, 12);
    expect(p90).toBeCloseTo(6.9, 12);
    expect(p99).toBeCloseTo(8.79, 12);
    expect(quantile([], 0.5)).toBe(0);
  });
});

describe('explore', () => {
  // Chosen is longer in 6 of 10 pairs, shorter in 3, equal in 1; four pairs have two turns.
  const rows = Array.from({ length: 10 }, (_, i) => {
    const prompt = [turn('user', 'Tell me'), ...(i < 4 ? [turn('assistant', 'What?'), turn('user', 'More')] : [])];
    const chosen = i < 6 ? 'Of course, here you are now' : i < 9 ? 'No' : 'Even';
    return { prompt, chosen, rejected: i < 9 ? 'I do not know' : 'Even', source: i % 2 === 0 ? 'a' : 'b' };
  });

  it('finds what was put in', async () => {
    const report = await explore(rows);
    expect(report).toMatchObject({ shape: 'preference', rows: 10, examples: 10, bad_rows: 0 });
    expect(report.patterns.length_bias).toMatchObject({
      chosen_longer: 0.6,
      rejected_longer: 0.3,
      equal: 0.1,
      biased: true,
    });
    // (6 × 14 − 3 × 11) / 10
    expect(report.patterns.length_bias?.mean_difference_characters).toBeCloseTo(5.1, 12);
    expect(report.patterns.verbosity).toMatchObject({ chosen_mean_words: 4, rejected_mean_words: 3.7 });
    expect(report.patterns.conversation_depth).toMatchObject({ mean_turns: 1.4, max_turns: 2, single_turn: 0.6 });
    expect(report.patterns.conversation_depth.by_turns['2']).toEqual({ examples: 4, chosen_longer: 1 });
    expect(report.openings.chosen?.[0]).toEqual({ text: 'of course, here', count: 6 });
    expect(report.openings.rejected?.[0]).toEqual({ text: 'i do not', count: 9 });
    expect(report.statistics.sources).toEqual({ a: 5, b: 5 });
    expect(report.samples).toHaveLength(3);
    expect(report.warnings).toEqual([expect.stringContaining('longer one in 60.0 % of the pairs')]);
  });

  it('counts labels and steps', async () => {
    const kto = await explore(rows.map(({ prompt, chosen }, i) => ({ prompt, completion: chosen, label: i < 7 })));
    expect(kto.patterns.label_balance).toEqual({
      desirable: { count: 7, share: 0.7 },
      undesirable: { count: 3, share: 0.3 },
    });
    const steps = [1, 2, 3].map((count) => ({
      prompt: 'Add up',
      completions: Array.from({ length: count }, (_, i) => `step ${i}`),
      labels: Array.from({ length: count }, (_, i) => i === 0),
    }));
    const stepwise = await explore(steps);
    expect(stepwise.shape).toBe('steps');
    expect(stepwise.statistics.steps_per_solution).toMatchObject({ mean: 2, max: 3 });
    expect(stepwise.patterns.label_balance).toEqual({
      right: { count: 3, share: 0.5 },
      wrong: { count: 3, share: 0.5 },
    });
    const graded = await explore(
      rows.map(({ prompt, chosen }) => ({ prompt, completion: chosen, correct: true })),
      { shape: 'graded' },
    );
    expect(graded.patterns.label_balance).toEqual({ correct: { count: 10, share: 1 } });
    expect(graded.warnings.join()).toContain('100.0 % are "correct"');
  });

  it('says which files of a folder it left aside', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'attune-explore-'));
    for (const name of ['train.jsonl', 'test.jsonl', 'more.jsonl']) {
      writeFileSync(join(folder, name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    }
    const report = await explore(folder);
    expect(report.rows).toBe(10);
    expect(report.warnings[0]).toContain('Not read: more.jsonl, test.jsonl.');
    expect((await explore(folder, { split: 'all' })).rows).toBe(30);
  });

  it('does not warn where lengths are fair', async () => {
    const fair = await explore([
      ...rows,
      ...rows.map((row) => ({ ...row, chosen: row.rejected, rejected: row.chosen })),
    ]);
    expect(fair.patterns.length_bias).toMatchObject({
      chosen_longer: 0.45,
      rejected_longer: 0.45,
      biased: false,
      effect_size: 0,
    });
    expect(fair.warnings).toEqual([]);
  });

  it('counts tokens by the longer sequence of an example', async () => {
    const tokenizer = {
      fingerprint: 'characters',
      eosIds: [1],
      eosId: 1,
      encode: () => [],
      encodeBatch: async (texts: readonly string[]) => texts.map((text) => new Int32Array(text.length).fill(7)),
      encodeChat: () => ({ ids: [], assistantMask: new Uint8Array() }),
      renderChat: () => '',
    };
    const pairs = [
      { prompt: 'p', chosen: 'x'.repeat(10), rejected: 'y' },
      { prompt: 'p', chosen: 'x', rejected: 'y'.repeat(20) },
    ];
    const report = await explore(pairs, { tokenizer, maxLength: 40 });
    // "\n\nHuman: p\n\nAssistant:" is 22 characters; a response adds a space and EOS.
    expect(report.statistics.tokens).toMatchObject({
      count: 2,
      mean: 39,
      max: 44,
      max_length: 40,
      share_over_max_length: 0.5,
    });
    expect(report.warnings.join()).toContain('50.0 % of the examples are longer than 40 tokens');
  });

  it('writes the analysis and a picture, for every shape', async () => {
    const sets = [
      rows,
      [{ text: 'Once upon a time' }, { text: 'there was' }],
      [
        { prompt: 'Q', completion: 'A', label: true },
        { prompt: 'Q', completion: 'B', label: false },
      ],
      [{ prompt: 'Q' }, { prompt: 'Q too' }],
    ];
    for (const set of sets) {
      const outputDir = mkdtempSync(join(tmpdir(), 'attune-explore-'));
      const report = await explore(set, { outputDir });
      expect(JSON.parse(readFileSync(join(outputDir, 'analysis_results.json'), 'utf8'))).toEqual(
        JSON.parse(JSON.stringify(report)),
      );
      const picture = readFileSync(join(outputDir, 'dataset_analysis.png'));
      expect(picture.subarray(1, 4).toString()).toBe('PNG');
      expect(picture.length).toBeGreaterThan(5000);
    }
  });
});

/** Real datasets, if they are next to the repository, with expected values computed in Python from the same files. */
describe('the sets of the project', () => {
  const folder = join(process.env.ATTUNE_SHARED ?? '../shared', 'data');
  const present = existsSync(join(folder, 'hh'));

  it('are read in full, with the right shapes and counts', async () => {
    const expected: Record<string, [string, string, number]> = {
      hh: ['hh', 'preference', 7415],
      graded: ['gsm8k/example_model_solutions.jsonl.gz', 'graded', 5276],
      gsm8k: ['gsm8k/train.jsonl.gz', 'messages', 7473],
      kto: ['preferences/kto_en_demo.json.gz', 'unpaired', 300],
      dpo: ['preferences/dpo_en_demo.json.gz', 'preference', 300],
      prmbench: ['prm/prmbench.test.jsonl.gz', 'steps', 697],
    };
    for (const [path, shape, examples] of present ? Object.values(expected) : []) {
      const report = await explore(join(folder, path));
      expect([path, report.shape, report.examples]).toEqual([path, shape, examples]);
      if (path !== 'hh') continue;
      expect(report.patterns.length_bias?.chosen_longer).toBeCloseTo(0.5336480107889413, 12);
      expect(report.statistics.characters.chosen?.mean).toBeCloseTo(263.34713419, 6);
      expect(report.statistics.characters.rejected?.std).toBeCloseTo(236.22905102, 6);
    }
    expect(present ? readdirSync(folder).length : 1).toBeGreaterThan(0);
  });
});
