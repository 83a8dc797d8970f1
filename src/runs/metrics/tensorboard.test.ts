import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { crc32c, record, TensorBoardMetrics, TensorBoardWriter } from './tensorboard.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-events-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('event files', () => {
  it('computes CRC-32C: the check value of RFC 3720', () => {
    expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283);
    expect(crc32c(Buffer.alloc(32))).toBe(0x8a9136aa);
  });

  it('frames a record as TFRecord does', () => {
    const framed = record(Buffer.from('abc'));
    expect(framed.length).toBe(3 + 16);
    expect(framed.readBigUInt64LE(0)).toBe(3n);
    expect(framed.subarray(12, 15).toString()).toBe('abc');
  });

  it('writes whole records that hold their tags', () => {
    const events = new TensorBoardWriter(folder);
    events.scalars(300, { 'train/loss': 0.5 });
    events.close();
    const content = readFileSync(events.path);
    let offset = 0;
    let records = 0;
    while (offset < content.length) {
      offset += Number(content.readBigUInt64LE(offset)) + 16;
      records++;
    }
    expect(offset).toBe(content.length);
    expect(records).toBe(2);
    expect(content.includes('train/loss')).toBe(true);
  });

  // The real reader, where there is one: ATTUNE_PYTHON names an interpreter that has TensorBoard.
  const python = process.env.ATTUNE_PYTHON ?? 'python3';
  it.runIf(spawnSync(python, ['-c', 'import tensorboard']).status === 0)(
    'is read by TensorBoard itself',
    () => {
      const logs = join(folder, 'real');
      const first = new TensorBoardWriter(logs);
      for (const step of [1, 2, 300]) first.scalars(step, { 'train/loss': 1 / step, 'train/lr': 1e-5 });
      first.text(2, 'samples', 'Grüße, **world**');
      first.histogram(2, 'reward', [0, 1, 1, 2, 3]);
      first.close();
      const resumed = new TensorBoardWriter(logs, { resumedAt: 2 });
      resumed.scalars(3, { 'train/loss': 9 });
      resumed.close();
      const twins = new TensorBoardMetrics(logs, { resumedAt: 3, examplesAt: 24 });
      twins.byExamples(32, { 'train/loss': 0.25 }, Date.now());
      twins.close();
      const script = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'histograms': 0, 'tensors': 0}); a.Reload()
h = a.Histograms('reward')[0]
print(json.dumps({'tags': a.Tags()['scalars'], 'loss': [(e.step, e.value) for e in a.Scalars('train/loss')],
  'text': a.Tensors('samples')[0].tensor_proto.string_val[0].decode(), 'plugin': a.SummaryMetadata('samples').plugin_data.plugin_name,
  'twins': [(e.step, e.value) for e in (lambda b: (b.Reload(), b)[1])(EventAccumulator(sys.argv[1] + '/by_examples')).Scalars('train/loss_by_examples')],
  'histogram': [h.step, h.histogram_value.num, h.histogram_value.sum, h.histogram_value.min, h.histogram_value.max, sum(h.histogram_value.bucket)]}))`;
      const seen = JSON.parse(
        execFileSync(python, ['-c', script, logs], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
      );
      expect(seen.tags.sort()).toEqual(['train/loss', 'train/lr']);
      expect(seen.loss).toEqual([
        [1, 1],
        [2, 0.5],
        [3, 9],
      ]);
      expect(seen.text).toBe('Grüße, **world**');
      expect(seen.twins).toEqual([[32, 0.25]]);
      expect(seen.plugin).toBe('text');
      expect(seen.histogram).toEqual([2, 5, 7, 0, 3, 5]);
    },
    60_000,
  );
});
