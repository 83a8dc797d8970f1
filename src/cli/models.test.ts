/** Commands that take a model: which folders they take, how they hold it, and what they say of a wrong one. */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { addLora, loadModelFolder, saveModel } from '../models/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-cli-models-'));
const at = (...parts: string[]) => join(folder, ...parts);
afterAll(() => rmSync(folder, { recursive: true }));

beforeAll(async () => {
  await tinyModel(at('base'));
  // A run whose final model lies in bfloat16.
  mkdirSync(at('run'));
  writeFileSync(at('run', 'run.json'), '{"command":"train sft"}');
  {
    using half = loadModelFolder(at('base'), { dtype: 'bfloat16' });
    saveModel(half, at('run', 'final'));
  }
  for (const file of ['tokenizer.json', 'tokenizer_config.json']) cpSync(at('base', file), at('run', 'final', file));
  // An adapter's folder without a tokenizer.
  {
    using adapted = loadModelFolder(at('base'), { dtype: 'float32' });
    addLora(adapted, { r: 2 });
    saveModel(adapted, at('adapter'));
  }
  // A reward model that was trained for a step.
  {
    using scorer = loadModelFolder(at('base'), { dtype: 'float32' });
    scorer.addHead('reward', 1);
    const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 512 };
    Object.assign(scorer.notes, { reward: { type: 'preference', step: 1, ...reading } });
    saveModel(scorer, at('rm'));
    writeFileSync(at('rm', 'train_config.json'), JSON.stringify({ model: at('base') }));
    Object.assign(scorer.notes, { reward: { type: 'preference', step: 1, ...reading, maxLength: 4 } });
    saveModel(scorer, at('rm-short'));
  }
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    for (const name of ['rm', 'rm-short']) cpSync(at('base', file), at(name, file));
});

const short = ['--max-new-tokens', '4', '--device', 'cpu'];

describe('attune generate', () => {
  const replies = async (...args: string[]) => {
    const { code, out, err } = await attune('generate', ...args, '--prompt', 'What is 3', '--json', ...short);
    expect([code, err]).toEqual([0, expect.any(String)]);
    return JSON.parse(out).replies[0] as { text: string; logprobs: number[] };
  };

  it('takes a run, and holds it on a CPU as evaluation does', async () => {
    const own = await replies(at('run'));
    expect(own).toEqual(await replies(at('run', 'final'), '--dtype', 'float32'));
    expect(own.logprobs).not.toEqual((await replies(at('run'), '--dtype', 'bfloat16')).logprobs);
  });

  it('ends with the code of Ctrl-C, after what was written so far', async () => {
    const asked = attune(
      'generate',
      at('base'),
      'What is 3',
      '--ignore-eos',
      '--max-new-tokens',
      '400',
      '--device',
      'cpu',
    );
    const idle = process.listenerCount('SIGINT');
    let isOver = false;
    void asked.finally(() => (isOver = true));
    while (process.listenerCount('SIGINT') === idle && !isOver) await new Promise((resolve) => setImmediate(resolve));
    process.emit('SIGINT');
    const { code, out } = await asked;
    expect([code, out.length]).toEqual([130, expect.any(Number)]);
  });

  it('takes the prompt as a word too', async () => {
    const { code, out } = await attune('generate', at('run'), 'What is 3', '--json', ...short);
    expect([code, JSON.parse(out).replies[0]]).toEqual([0, await replies(at('run'))]);
    const { err } = await attune('generate', at('run'));
    expect(err).toContain('attune generate MODEL "text", or --prompt');
    const named = await attune('generate', '--model', at('run'), 'What is 3', '--json', ...short);
    expect([named.code, JSON.parse(named.out).replies[0]]).toEqual([0, await replies(at('run'))]);
    const twice = await attune('generate', at('run'), 'What is 3', '--prompt', 'What is 4');
    expect([twice.code, twice.err]).toEqual([2, 'attune: --prompt is given twice: also as "What is 3".\n']);
  });

  it('takes an adapter without a tokenizer of its own', async () => {
    expect(await replies(at('adapter'))).toEqual(await replies(at('base')));
  });

  it('ends at the last position of the model, and says so', async () => {
    const long = ['--max-new-tokens', '100000', '--ignore-eos', '--json', '--device', 'cpu'];
    const { code, out, err } = await attune('generate', '--model', at('base'), '--ids', '1,2,3', ...long);
    expect([code, JSON.parse(out).replies[0].ids.length]).toEqual([0, 509]);
    expect(err).toContain('--max-new-tokens 100000: the model reads 512 positions');
  });

  it('says that a model was trained to score', async () => {
    const { err } = await attune('generate', at('rm'), '--prompt', 'yes', ...short);
    expect(err).toContain(`Note: ${at('rm')} was trained to score, not to write`);
  });

  it('takes stop texts as they are', async () => {
    const { code, err } = await attune('generate', at('base'), '--prompt', 'yes', ...short, '--stop', ', ', ' no');
    expect([code, err]).toEqual([0, expect.stringContaining('tokens in')]);
  });
});

describe('attune score', () => {
  it('writes beside and renames, and says when there is nothing to score', async () => {
    writeFileSync(at('rows.jsonl'), '{"prompt":"yes","response":"no \\u001b[31m"}\n');
    writeFileSync(at('empty.jsonl'), '\n');
    const scored = await attune('score', at('rows.jsonl'), '--checkpoint', at('rm'), '--out', at('scored.jsonl'));
    expect([scored.code, scored.err]).toEqual([0, expect.stringContaining('1 row with rewards')]);
    const row = JSON.parse(readFileSync(at('scored.jsonl'), 'utf8'));
    expect(row).toEqual({ prompt: 'yes', response: 'no \u001b[31m', reward: expect.any(Number) });
    const empty = await attune('score', at('empty.jsonl'), '--checkpoint', at('rm'), '--out', at('none.jsonl'));
    expect([empty.code, empty.err]).toEqual([2, expect.stringContaining('empty.jsonl has no rows to score')]);
  });

  it('leaves ids of 64 bits as they are', async () => {
    const line = '{"id":12345678901234567890,"prompt":"yes","response":"no","share":0.1,"big":1e400';
    writeFileSync(at('ids.jsonl'), `${line}}\n`);
    const { out } = await attune('score', at('ids.jsonl'), '--checkpoint', at('rm'));
    expect(out).toMatch(new RegExp(`^${line},"reward":[-0-9.e]+\\}\n$`));
  });

  it('marks and counts texts that it cannot read whole', async () => {
    const texts = [
      { prompt: 'yes', response: 'no' },
      { prompt: 'yes', response: 'no '.repeat(600) },
      { prompt: 'yes '.repeat(600), response: 'no' },
    ];
    writeFileSync(at('long.jsonl'), texts.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const { code, out, err } = await attune('score', at('long.jsonl'), '--checkpoint', at('rm'));
    const rows = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect([code, rows.map((row) => 'truncated' in row)]).toEqual([0, [false, true, true]]);
    expect(rows[1]).toMatchObject({ truncated: true });
    expect(err).toContain('Note: 2 of 3 texts have more than 512 tokens: only their last 512 were read.');
  });
});

it.each([
  ['evaluate policy', ['--num-prompts', '2', '--samples', '1', '--output-dir', at('judged')], /truncated +4 responses/],
  ['preferences build', ['--prompts', '2', '--samples', '2', '--output', at('pairs.jsonl')], /Note: 4 responses have/],
])('attune %s counts what its reward model cannot read whole', async (command, args, told) => {
  const given = ['--model', at('base'), '--task', 'gcd', '--reward-model-path', at('rm-short'), '--device', 'cpu'];
  const { code, out, err } = await attune(...command.split(' '), ...given, ...args, '--max-new-tokens', '4');
  expect([code, `${out}${err}`]).toEqual([0, expect.stringMatching(told)]);
});

it('a reward model is no policy to sample from or to quantise', async () => {
  const args = ['--model', at('rm'), '--task', 'gcd', '--device', 'cpu', '--max-new-tokens', '4'];
  const refused = `--model ${at('rm')} is a reward model, not a policy: take the model that it was trained from (--model ${at('base')})`;
  const pairs = await attune('preferences', 'build', ...args, '--prompts', '2', '--output', at('from-rm.jsonl'));
  expect([pairs.code, pairs.err, existsSync(at('from-rm.jsonl'))]).toEqual([
    2,
    expect.stringContaining(refused),
    false,
  ]);
  const quantised = await attune('quantize', 'policy', ...args, '--num-prompts', '2', '--output-dir', at('rm-int8'));
  expect([quantised.code, quantised.err, existsSync(at('rm-int8'))]).toEqual([
    2,
    expect.stringContaining(refused),
    false,
  ]);
});

it('attune export gguf says the type, and replaces an earlier file only where that is asked for', async () => {
  const out = (...args: string[]) => attune('export', 'gguf', at('base'), '--out', at('gguf', 'm.gguf'), ...args);
  const first = await out();
  expect([first.code, first.out]).toEqual([0, expect.stringContaining('m.gguf: qwen3 in q8_0, ')]);
  expect(first.err).not.toContain('replaced');
  const refused = await out('--type', 'f16');
  expect([refused.code, refused.err]).toEqual([
    2,
    expect.stringContaining('m.gguf exists already: name another file, or replace it with --overwrite.'),
  ]);
  const second = await out('--type', 'f16', '--overwrite');
  expect(second.out).toContain(' in f16, ');
  expect(second.err).toMatch(
    /m\.gguf of an earlier export is replaced\.\n.*Modelfile of an earlier export is replaced\./,
  );
  const wrong = await attune('export', 'gguf', at('base'), '--out', at('gguf', 'm.bin'));
  expect([wrong.code, wrong.err]).toEqual([2, expect.not.stringContaining('replaced')]);
});

it('attune export gguf keeps a Modelfile that was edited or that is there for another model', async () => {
  const out = (name: string, ...args: string[]) =>
    attune('export', 'gguf', at('base'), '--out', at('ollama', name), ...args);
  const text = (name: string) => readFileSync(at('ollama', name), 'utf8');
  await out('a.gguf');
  const edited = `${text('Modelfile')}SYSTEM "Be brief."\n`;
  writeFileSync(at('ollama', 'Modelfile'), edited);
  const other = await out('b.gguf');
  expect([other.code, other.err]).toEqual([
    0,
    expect.stringContaining('Modelfile is there for another model and stays'),
  ]);
  expect(other.err).not.toContain('replaced');
  expect(other.out).toMatch(/ollama create my-model -f .*b\.Modelfile/);
  expect(text('Modelfile')).toBe(edited);
  expect(text('b.Modelfile')).toMatch(/^# ollama create my-model -f b\.Modelfile\nFROM \.\/b\.gguf\n/);

  rmSync(at('ollama', 'a.gguf'));
  const refused = await out('a.gguf');
  expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('or replace it with --overwrite.')]);
  expect([text('Modelfile'), existsSync(at('ollama', 'a.gguf'))]).toEqual([edited, false]);
  const replaced = await out('a.gguf', '--overwrite');
  expect([replaced.code, replaced.err]).toEqual([
    0,
    expect.stringContaining('Modelfile of an earlier export is replaced.'),
  ]);
  expect(text('Modelfile')).not.toContain('Be brief');
});

it('attune evaluate policy refuses a reward model', async () => {
  const { code, err } = await attune(
    'evaluate',
    'policy',
    '--model',
    at('rm'),
    '--task',
    'gcd:1',
    '--num-prompts',
    '1',
  );
  expect([code, err]).toEqual([2, expect.stringContaining(`--model ${at('rm')} is a reward model, not a policy`)]);
});

it.each([
  ['policy', '--task', 'gcd:1'],
  ['preference', '--dataset', 'pairs.jsonl'],
  ['sft', '--dataset', 'chats.jsonl'],
])('attune train %s refuses a reward model', async (verb, option, value) => {
  writeFileSync(at('pairs.jsonl'), '{"prompt":"yes","chosen":"no","rejected":"red"}\n'.repeat(3));
  writeFileSync(at('chats.jsonl'), '{"prompt":"yes","completion":"no"}\n'.repeat(3));
  const given = value.endsWith('.jsonl') ? at(value) : value;
  const places = ['--output-dir', at('refused'), '--log-dir', at('refused-logs')];
  for (const how of [['--max-steps', '1'], ['--dry-run']]) {
    const { code, err } = await attune('train', verb, '--model', at('rm'), option, given, ...places, ...how);
    const told = `--model ${at('rm')} is a reward model, not a policy: take the model that it was trained from (--model ${at('base')})`;
    expect([code, err]).toEqual([2, expect.stringContaining(told)]);
  }
});

it('attune inspect takes a run, and never writes over a file of a model', async () => {
  const { code, out } = await attune('inspect', at('run'), '--json');
  expect([code, JSON.parse(out).layers]).toEqual([0, 2]);
  const over = ['--ids', '1', '--save-logits', at('base', 'model.safetensors')];
  const { err } = await attune('inspect', at('base'), ...over);
  expect(err).toContain('is a file of a model: an input is never written over');
  const logits = ['inspect', at('base'), '--device', 'cpu', '--ids', '1', '--save-logits', at('logits.safetensors')];
  const codes = [(await attune(...logits)).code, (await attune(...logits)).code];
  expect([...codes, (await attune(...logits, '--overwrite')).code]).toEqual([0, 2, 0]);
});

it('attune tokenizer shows controls and keeps them in JSON', async () => {
  const { out } = await attune('tokenizer', 'encode', at('run'), '\u001b[31mred', '--json');
  const ids = JSON.parse(out).join(',');
  expect((await attune('tokenizer', 'decode', at('run'), ids)).out).toBe('␛[31mred\n');
  expect(JSON.parse((await attune('tokenizer', 'decode', at('run'), ids, '--json')).out)).toBe('\u001b[31mred');
});
