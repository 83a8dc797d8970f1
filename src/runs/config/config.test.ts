import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it, describe as suite } from 'vitest';
import { z } from 'zod';
import { speakTo } from '../../spelling.ts';
import { ConfigError, describe, resolveConfig, savedConfig } from './config.ts';
import { loadDotenv } from './dotenv.ts';
import { field } from './fields.ts';
import { isSecretName, redact } from './secrets.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-config-'));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

const schema = z.object({
  outputDir: field(z.string().default('./out'), { description: 'where to write', group: 'Output' }),
  seed: field(z.number().int().default(42), { description: 'seed' }),
  resumeFrom: field(z.string().optional(), { description: 'checkpoint', transient: true }),
  hubToken: field(z.string().optional(), { description: 'token' }),
  warmup: field(z.union([z.number(), z.literal('auto')]).default('auto'), { description: 'warm-up steps' }),
  models: field(z.array(z.object({ name: z.string(), huggingfaceId: z.string() })).min(1), { description: 'models' }),
  training: field(
    z
      .object({
        learningRate: field(z.number().positive().default(5e-7), { description: 'lr', aliases: ['lr'] }),
        numEpochs: z.number().positive().default(3),
        maxNewTokens: z.number().int().default(8),
      })
      .prefault({}),
    { description: 'training' },
  ),
});
const models = [{ name: 'a', huggingface_id: 'x/a' }];

suite('resolveConfig', () => {
  it('takes defaults < checkpoint < file < command line, merging nested fields', () => {
    const { config, sources } = resolveConfig(schema, {
      checkpoint: {
        output_dir: 'ckpt',
        seed: 1,
        resume_from: 'old',
        models,
        training: { learning_rate: 1e-3, num_epochs: 1 },
      },
      file: file('a.yaml', 'seed: 2\ntraining:\n  num-epochs: 2\n'),
      flags: { seed: '3' },
    });
    expect(config).toEqual({
      outputDir: 'ckpt',
      seed: 3,
      warmup: 'auto',
      models: [{ name: 'a', huggingfaceId: 'x/a' }],
      training: { learningRate: 1e-3, numEpochs: 2, maxNewTokens: 8 },
    });
    expect(sources).toMatchObject({ outputDir: 'the checkpoint', seed: 'command line', warmup: 'default' });
  });

  it('reads JSON and camelCase, and aliases inside objects', () => {
    const path = file(
      'a.json',
      JSON.stringify({ models: [{ name: 'a', huggingfaceId: 'b' }], training: { lr: 1e-4 } }),
    );
    expect(resolveConfig(schema, { file: path }).config.training.learningRate).toBe(1e-4);
  });

  it('reads 1e-5 as a number, as PyYAML does not', () => {
    const path = file('b.yaml', 'models: [{name: a, huggingface_id: b}]\ntraining: {learning_rate: 1e-5}\n');
    expect(resolveConfig(schema, { file: path }).config.training.learningRate).toBe(1e-5);
  });

  it('reports all faults of all sources with path, expectation and nearest name', () => {
    const path = file(
      'bad.yaml',
      [
        'sead: 1',
        'warmup: soon',
        'models:',
        '  - name: a',
        '    hugingface_id: x',
        'training:',
        '  learning_rate: fast',
        '  num_epoch: 2',
        '  constructor: 1',
        '  lr: 1',
      ].join('\n'),
    );
    let error: ConfigError | undefined;
    try {
      resolveConfig(schema, { file: path, flags: { seed: 'x', outputDir: 'ok' } });
    } catch (caught) {
      error = caught as ConfigError;
    }
    expect(error).toBeInstanceOf(ConfigError);
    const faults = Object.fromEntries((error?.faults ?? []).map((fault) => [fault.path, fault.message]));
    expect(faults).toEqual({
      sead: 'is not a known field. Did you mean "seed"?',
      'models[0].hugingface_id': 'is not a known field. Did you mean "huggingface_id"?',
      'models[0].huggingface_id': 'is required: expected text.',
      'training.constructor': 'is not a known field.',
      'training.num_epoch': 'is not a known field. Did you mean "num_epochs"?',
      'training.learning_rate': expect.stringMatching(/given twice|expected a number, got "fast"/),
      warmup: 'expected a number or "auto", got "soon".',
      '--seed': 'expected a number, got "x".',
    });
    expect(error?.message).toMatch(/^The configuration has 9 faults:/);
    expect(error?.message).toContain(`(in ${path})`);
  });

  it('names a missing or broken file', () => {
    const bomb = ['a: &a [x, x, x, x, x, x, x, x, x, x]'];
    for (const [of, name] of ['ab', 'bc', 'cd', 'de']) bomb.push(`${name}: &${name} [${`*${of},`.repeat(10)}]`);
    const path = file('bomb.yaml', bomb.join('\n'));
    expect(() => resolveConfig(schema, { file: path })).toThrow(`${path} cannot be read: Excessive alias count`);
    const twice = () => resolveConfig(schema, { flags: { outputDir: 'a', 'output-dir': 'b' } });
    expect(twice).toThrow('is given twice (also as "output-dir")');
    expect(() => resolveConfig(schema, { file: 'none.yaml' })).toThrow('There is no config file none.yaml.');
    expect(() => resolveConfig(schema, { file: '.' })).toThrow('. is a folder; a config is a YAML or JSON file.');
    expect(() => resolveConfig(schema, { file: file('c.yaml', 'a: [1\nb: 2') })).toThrow(
      /not valid YAML or JSON.*line 2/s,
    );
    expect(() => resolveConfig(schema, { file: file('d.yaml', '- 1') })).toThrow(/must hold fields/);
  });
});

suite('saved config', () => {
  const given = { models, hubToken: 'topsecretvalue', resumeFrom: 'x', outputDir: 'https://me:hunter2hunter@host/x' };
  const resolved = resolveConfig(schema, { flags: given });

  it('is snake_case, round-trips, and holds neither secrets nor one-time fields', () => {
    const saved = savedConfig(schema, resolved.config);
    expect(saved).toEqual({
      output_dir: 'https://me:[redacted]@host/x',
      seed: 42,
      warmup: 'auto',
      models,
      training: { learning_rate: 5e-7, num_epochs: 3, max_new_tokens: 8 },
    });
    expect(resolveConfig(schema, { checkpoint: saved }).config.training).toEqual(resolved.config.training);
  });

  it('is described without secrets, with origins', () => {
    const text = describe(schema, resolved);
    expect(text).toContain('hub_token  [redacted]  (command line)');
    expect(text).not.toContain('topsecretvalue');
    expect(text).toMatch(/Output:\n {2}output_dir/);
    expect(text).toMatch(/seed +42\n/);
  });
});

suite('secrets', () => {
  it('tells credentials from vocabulary', () => {
    for (const name of ['hf_token', 'api_key', 'wandb_api_key', 'password', 'client_secret'])
      expect(isSecretName(name)).toBe(true);
    for (const name of ['max_new_tokens', 'eos_token', 'pad_token', 'tokenizer', 'step_token', 'key'])
      expect(isSecretName(name)).toBe(false);
  });
  it('takes environment credentials out of any text', () => {
    const environment = { HF_TOKEN: 'abcdefgh12345', OTHER: 'visible-value' };
    expect(redact('using abcdefgh12345 and visible-value', environment)).toBe('using [redacted] and visible-value');
  });
});

suite('faults of options', () => {
  const options = z.object({ lr: z.number().default(1), model: z.string(), evalSteps: z.number().int().default(1) });
  it('names what is missing and what is endless as one would type it', () => {
    expect(() => resolveConfig(options, { flags: { lr: '1e400', evalSteps: '-Infinity' } })).toThrow(
      /3 faults:\n.*--lr: expected a finite number, got Infinity\.\n.*--model: is required: expected text\.\n.*--eval-steps: expected a finite number, got -Infinity\./,
    );
    expect(() => resolveConfig(options, { file: {} })).toThrow(/ {2}model: is required/);
  });
});

suite('names of options', () => {
  it('a fault in a file is spelled as files do, whoever reads', () => {
    const faults = (source: string) => [{ path: '--lora-r', source, message: 'has no effect without --lora-alpha.' }];
    const inFile = { path: 'lora_r', message: 'has no effect without lora_alpha.' };
    expect(new ConfigError(faults('rm.yaml')).faults).toMatchObject([inFile]);
    speakTo('program');
    expect(new ConfigError(faults('rm.yaml')).faults).toMatchObject([inFile]);
    const { message } = new ConfigError(faults('command line'));
    speakTo('command line');
    expect(message).toBe('The configuration has a fault:\n  loraR: has no effect without loraAlpha.');
  });
});

suite('loadDotenv', () => {
  it('adds what is not set, existing values winning, and knows HUGGINGFACE_TOKEN', () => {
    const path = file('.env', 'HUGGINGFACE_TOKEN="abc"\nWANDB_MODE=offline # note\nexport X=1\n');
    const environment: NodeJS.ProcessEnv = { WANDB_MODE: 'online' };
    expect(loadDotenv(path, environment)).toEqual(['HUGGINGFACE_TOKEN', 'X']);
    expect(environment).toEqual({ HUGGINGFACE_TOKEN: 'abc', HF_TOKEN: 'abc', WANDB_MODE: 'online', X: '1' });
    expect(loadDotenv(join(folder, 'absent'), {})).toEqual([]);
  });

  it('never takes from the file where credentials go or which code runs', () => {
    const path = file(
      '.env',
      'HF_TOKEN=abc\nHF_ENDPOINT=https://evil.example\nATTUNE_ADDON=/tmp/x.node\nHTTPS_PROXY=http://evil\nLD_PRELOAD=x\n',
    );
    const environment: NodeJS.ProcessEnv = {};
    const refused: string[] = [];
    expect(loadDotenv(path, environment, (name) => refused.push(name))).toEqual(['HF_TOKEN']);
    expect(environment).toEqual({ HF_TOKEN: 'abc' });
    expect(refused.sort()).toEqual(['ATTUNE_ADDON', 'HF_ENDPOINT', 'HTTPS_PROXY', 'LD_PRELOAD']);
  });
});
