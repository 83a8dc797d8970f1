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

  it('has older files dropped where a new run takes the folder of one that is gone', () => {
    const logs = join(folder, 'again');
    // session_log (field 7) of 2 bytes, status (field 1) START, after step (field 2) 0
    const starts = (path: string, step: number) =>
      readFileSync(path).includes(Buffer.from([0x10, step, 0x3a, 2, 0x08, 1]));
    const of = (options?: { resumedAt: number }) => {
      const events = new TensorBoardMetrics(logs, options);
      events.scalars(1, { 'train/loss': 1 });
      events.close();
      return events.path;
    };
    expect(starts(of(), 0)).toBe(false);
    expect(starts(of(), 0)).toBe(true);
    expect(starts(of({ resumedAt: 6 }), 7)).toBe(true);
  });

  it('tells the settings of a run, each as its own kind of value', () => {
    const events = new TensorBoardWriter(join(folder, 'settings'));
    events.settings({ lr: 0.5, lora: true, model: 'tiny', stop: ['a', 'b'], absent: undefined }, 'run-1', 2000);
    events.ended('finished', 3000);
    events.close();
    const content = readFileSync(events.path);
    for (const tag of ['_hparams_/session_start_info', '_hparams_/session_end_info', 'hparams', 'run-1', 'a,b'])
      expect(content.includes(tag), tag).toBe(true);
    expect(content.includes('absent')).toBe(false);
    // map entry: key (field 1) "lr", value (field 2) of 9 bytes: number_value (field 2, fixed 64) 0.5
    const half = Buffer.from(Float64Array.of(0.5).buffer);
    const entry = Buffer.concat([Buffer.from([0x0a, 2]), Buffer.from('lr'), Buffer.from([0x12, 9, 0x11]), half]);
    expect(content.includes(entry)).toBe(true);
    // the same for a boolean: bool_value (field 4) true
    expect(content.includes(Buffer.concat([Buffer.from('lora'), Buffer.from([0x12, 2, 0x20, 1])]))).toBe(true);
  });

  // TensorBoard's own reader, if available: ATTUNE_PYTHON names a Python interpreter that has it.
  const python = process.env.ATTUNE_PYTHON ?? 'python3';
  it.runIf(spawnSync(python, ['-c', 'import tensorboard']).status === 0)('is read by TensorBoard itself', () => {
    const logs = join(folder, 'real');
    const first = new TensorBoardWriter(logs);
    for (const step of [1, 2, 300]) first.scalars(step, { 'train/loss': 1 / step, 'train/lr': 1e-5 });
    first.text(2, 'samples', 'Grüße, **world**');
    first.histogram(2, 'reward', [0, 1, 1, 2, 3]);
    first.settings({ lr: 0.5, lora: true, model: 'tiny', skipped: undefined }, 'run-1', 2000);
    first.ended('finished', 3000);
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
from tensorboard.plugins.hparams import plugin_data_pb2
def hparams(tag):
    d = plugin_data_pb2.HParamsPluginData(); d.ParseFromString(a.SummaryMetadata(tag).plugin_data.content); return d
started = hparams('_hparams_/session_start_info').session_start_info
ended = hparams('_hparams_/session_end_info').session_end_info
h = a.Histograms('reward')[0]
print(json.dumps({'hparams': {k: getattr(v, v.WhichOneof('kind')) for k, v in started.hparams.items()},
  'session': [started.group_name, started.start_time_secs, ended.status, ended.end_time_secs], 'tags': a.Tags()['scalars'], 'loss': [(e.step, e.value) for e in a.Scalars('train/loss')],
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
    expect(seen.hparams).toEqual({ lr: 0.5, lora: true, model: 'tiny' });
    expect(seen.session).toEqual(['run-1', 2, 1, 3]);
    expect(seen.histogram).toEqual([2, 5, 7, 0, 3, 5]);
  });
});
