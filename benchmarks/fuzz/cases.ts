/** What is tried with damaged inputs: each kind makes an input under a seed and gives it to the code that reads it. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openDataset } from '../../src/data/index.ts';
import { parquetFiles } from '../../src/data/sources/parquet.test-support.ts';
import { resolveModel } from '../../src/hub/hub.ts';
import { startHub } from '../../src/hub/server.test-support.ts';
import { addLora, initModel, loadModelFolder, saveModel } from '../../src/models/index.ts';
import type { Random } from '../../src/random.ts';
import { readConfigFile, resolveConfig } from '../../src/runs/config/config.ts';
import { ChatTemplate } from '../../src/text/chat/chat.ts';
import { sentencePieceConfig, sentencePieceJson } from '../../src/text/tokenizer/tokenizer.test-support.ts';
import { Tokenizer } from '../../src/text/tokenizer/tokenizer.ts';
import { rewardSchema } from '../../src/trainers/reward/config.ts';
import { hurtBytes, hurtJson } from './mutate.ts';

type Case = (random: Random, folder: string) => Promise<unknown>;

const rows = Array.from({ length: 12 }, (_, i) => ({
  prompt: [{ role: 'user', content: `Question ${i}` }],
  chosen: `a good response ${i}`,
  rejected: 'a bad one',
  margin: i / 7,
}));
const template =
  "{% for m in messages %}{% if loop.first and m.role == 'system' %}{{ raise_exception('no') }}{% endif %}" +
  "{{ '<|' + m.role + '|>' + m.content | trim + eos_token }}{% for i in range(3) %}{{ i }}{% endfor %}{% endfor %}" +
  "{% set ns = namespace(x='a') %}{% set ns.x = ns.x + 'b' %}{% if add_generation_prompt %}{{ ns.x }}{% endif %}";
const modelConfig = {
  model_type: 'qwen2',
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 40,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  hidden_act: 'silu',
  tie_word_embeddings: true,
};
const runConfig = {
  model: 'm',
  dataset: 'd.jsonl',
  lr: 1e-4,
  batch_size: 4,
  lora: true,
  lora_target_modules: ['q_proj'],
};

async function readRows(path: string): Promise<void> {
  const dataset = await openDataset(path, { onBadRow: 'skip' });
  await dataset.toArray();
}

function textFile(name: string, text: string): Case {
  return async (random, folder) => {
    const path = join(folder, name);
    writeFileSync(path, hurtBytes(Buffer.from(text), random));
    await readRows(path);
  };
}

/** One of several files of a folder is damaged, by its bytes or by its JSON. */
function hurtOne(random: Random, folder: string, files: Record<string, Buffer | object>): void {
  mkdirSync(folder, { recursive: true });
  const chosen = random.pick(Object.keys(files));
  for (const [name, content] of Object.entries(files)) {
    const text = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
    const bytes =
      name !== chosen
        ? text
        : Buffer.isBuffer(content) || random.chance(0.3)
          ? hurtBytes(text, random)
          : Buffer.from(JSON.stringify(hurtJson(content, random)) ?? '');
    writeFileSync(join(folder, name), bytes);
  }
}

async function useTokenizer(folder: string): Promise<void> {
  const tokenizer = await Tokenizer.load(folder);
  for (const text of ['Hello the hall', 'a'.repeat(3000), ' \n\t日本 😀<s>']) {
    tokenizer.decode(tokenizer.encode(text));
    await tokenizer.encodeBatch([text]);
  }
  if (tokenizer.chatTemplate !== undefined) tokenizer.encodeChat([{ role: 'user', content: 'Hi' }]);
}

const table = [['prompt', 'chosen', 'rejected'], ...rows.map((_, i) => [`"Q ""${i}"""`, 'good\n', 'bad'])];

export const cases: Record<string, Case> = {
  jsonl: textFile('rows.jsonl', rows.map((row) => JSON.stringify(row)).join('\n')),
  json: textFile('rows.json', JSON.stringify({ data: rows })),
  csv: textFile('rows.csv', table.map((line) => line.join(',')).join('\n')),

  async shapes(random, folder) {
    const path = join(folder, 'odd.jsonl');
    writeFileSync(path, rows.map((row) => JSON.stringify(hurtJson(row, random))).join('\n'));
    await readRows(path);
  },

  async parquet(random, folder) {
    const path = join(folder, 'rows.parquet');
    const good = Buffer.from(parquetFiles[random.pick(Object.keys(parquetFiles))] as string, 'base64');
    writeFileSync(path, hurtBytes(good, random));
    await readRows(path);
  },

  async tokenizer(random, folder) {
    const config = { ...sentencePieceConfig, chat_template: template, added_tokens_decoder: {} };
    hurtOne(random, folder, { 'tokenizer.json': sentencePieceJson(), 'tokenizer_config.json': config });
    await useTokenizer(folder);
  },

  async template(random) {
    const source = hurtBytes(Buffer.from(template), random).toString('utf8');
    new ChatTemplate(source, { eos_token: '</s>' }).render([{ role: 'user', content: 'Hi' }]);
  },

  /** Patterns of any shape; the native package ends the process where one backtracks too long. */
  async patterns(random, folder) {
    const atoms = [
      'a',
      'b',
      '.',
      '\\s',
      '\\w',
      '\\p{L}',
      '[^\\r\\n]',
      '[ab]',
      '\\n',
      ' ?',
      '(?i:a|b)',
      '(?!\\S)',
      '$',
      'x',
    ];
    const pattern = (depth: number): string =>
      Array.from({ length: random.int(1, 4) }, () => {
        const atom = depth > 0 && random.chance(0.4) ? `(?:${pattern(depth - 1)})` : random.pick(atoms);
        const repeat = random.pick(['', '', '*', '+', '?', '{1,3}', '{2,}', '*?', '++']);
        return `${atom}${repeat}${random.chance(0.2) ? '|' : ''}`;
      }).join('');
    const split = { type: 'Split', pattern: { Regex: pattern(2) }, behavior: 'Isolated', invert: false };
    const files = { 'tokenizer.json': sentencePieceJson({ normalizer: null, pre_tokenizer: split }) };
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(content));
    await useTokenizer(folder);
  },

  async model(random, folder) {
    const [base, adapter] = [join(folder, 'base'), join(folder, 'adapter')];
    using fresh = initModel(modelConfig, { seed: 1 });
    saveModel(fresh, base);
    const adapted = random.chance(0.5);
    if (adapted) {
      using model = loadModelFolder(base);
      addLora(model, { r: 2, targetModules: ['q_proj'] });
      saveModel(model, adapter);
    }
    damageFolder(random, adapted ? adapter : base);
    using model = loadModelFolder(adapted ? adapter : base);
    return model.decoder.spec.layers;
  },

  async config(random, folder) {
    const path = join(folder, 'run.json');
    const yaml = join(folder, 'run.yaml');
    writeFileSync(path, JSON.stringify(hurtJson(runConfig, random)) ?? '');
    writeFileSync(
      yaml,
      hurtBytes(Buffer.from('model: m\nlora: true\nlr: 1e-4\nlora_target_modules: [a, b]\n'), random),
    );
    resolveConfig(rewardSchema, { file: readConfigFile(random.chance(0.5) ? path : yaml) });
  },

  async hub(random, folder) {
    const hub = await startHub({ 'org/m': { 'config.json': '{}', 'tokenizer.json': '{}', 'model.safetensors': 'x' } });
    const answers = ['{"sha":"abc123"}', '[{"type":"file","path":"config.json","oid":"a1","size":2}]', '{}'];
    hub.fault = () => {
      if (random.chance(0.85)) return undefined;
      const body = hurtBytes(Buffer.from(random.pick(answers)), random).toString('latin1');
      const link = random.pick([
        '',
        '<http://127.0.0.1:1/x>; rel="next"',
        '<::>; rel=next',
        `<${hub.endpoint}/x>; rel=next`,
      ]);
      const status = random.pick([200, 200, 200, 302, 404, 416, 500]);
      return { status, body, headers: { link, 'x-error-message': 'no', 'content-type': 'application/json' } };
    };
    const settings = { endpoint: hub.endpoint, cacheDir: join(folder, 'cache'), token: 'hf_x', env: {} };
    try {
      await resolveModel('org/m', { ...settings, timeoutMs: 500, retries: 1, backoffMs: 1 });
    } finally {
      await hub.close();
    }
  },
};

function damageFolder(random: Random, folder: string): void {
  const name = random.pick(readdirSync(folder));
  const path = join(folder, name);
  const bytes = readFileSync(path);
  if (name.endsWith('.json') && random.chance(0.7)) {
    writeFileSync(path, JSON.stringify(hurtJson(JSON.parse(bytes.toString('utf8')), random)) ?? '');
  } else writeFileSync(path, hurtBytes(bytes, random));
}
