/**
 * Reads a tokenizer's folder: tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja and
 * the ids in generation_config.json. Every fault names its file.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import type { BpeModel } from './bpe.ts';
import { tokenizerProblem } from './checks.ts';

export interface AddedToken {
  id: number;
  content: string;
  single_word?: boolean;
  lstrip?: boolean;
  rstrip?: boolean;
  normalized?: boolean;
  special?: boolean;
}

export interface PipelineStep {
  type: string;
  pretokenizers?: PipelineStep[];
  processors?: PipelineStep[];
  /** ByteLevel */
  add_prefix_space?: boolean;
  use_regex?: boolean;
  /** Split */
  pattern?: { Regex?: string; String?: string };
  behavior?: string;
  invert?: boolean;
  /** TemplateProcessing */
  single?: ({ SpecialToken: { id: string } } | { Sequence: { id: string } })[];
  special_tokens?: Record<string, { ids: number[] }>;
  /** BertProcessing, RobertaProcessing */
  cls?: [string, number];
  sep?: [string, number];
}

export interface TokenizerJson {
  added_tokens: AddedToken[];
  normalizer?: PipelineStep | null;
  pre_tokenizer?: PipelineStep | null;
  post_processor?: PipelineStep | null;
  decoder?: PipelineStep | null;
  model: BpeModel & { type?: string };
}

export interface TokenizerFiles {
  json: TokenizerJson;
  /** The text of tokenizer.json that goes to the native package; it differs from the file if tokens had to be added. */
  jsonText: string;
  /** The files as found, for saving. */
  contents: Map<string, Buffer>;
  specialTokens: { bos?: string; eos?: string; pad?: string; unk?: string };
  addBos?: boolean;
  addEos?: boolean;
  /** Name → template; the unnamed one is "default". */
  chatTemplates: Map<string, string>;
  /** eos ids of generation_config.json, else of config.json. */
  modelEosIds: number[];
}

const COPIED = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'chat_template.jinja',
];

export async function readTokenizerFiles(folder: string): Promise<TokenizerFiles> {
  const contents = new Map<string, Buffer>();
  const optional = async (name: string) => {
    const content = await readIfPresent(join(folder, name));
    if (content !== undefined && COPIED.includes(name)) contents.set(name, content);
    return content;
  };
  const tokenizer = await optional('tokenizer.json');
  if (tokenizer === undefined) throw await missingTokenizer(folder);
  const config = record(parse(folder, 'tokenizer_config.json', await optional('tokenizer_config.json')));
  const specialMap = record(parse(folder, 'special_tokens_map.json', await optional('special_tokens_map.json')));
  await optional('added_tokens.json');
  const jinja = (await optional('chat_template.jinja'))?.toString('utf8');
  const generation = record(parse(folder, 'generation_config.json', await optional('generation_config.json')));
  const model = record(parse(folder, 'config.json', await optional('config.json')));

  const text = tokenizer.toString('utf8');
  const json = checkedTokenizer(folder, parse(folder, 'tokenizer.json', tokenizer));
  const special = (name: string) => tokenText(config[name]) ?? tokenText(specialMap[name]);
  const specialTokens = {
    bos: special('bos_token'),
    eos: special('eos_token'),
    pad: special('pad_token'),
    unk: special('unk_token'),
  };
  const changed = completeAddedTokens(json, config.added_tokens_decoder, Object.values(specialTokens));
  const flag = (name: string) => (typeof config[name] === 'boolean' ? (config[name] as boolean) : undefined);
  return {
    json,
    jsonText: changed ? JSON.stringify(json) : text,
    contents,
    specialTokens,
    addBos: flag('add_bos_token'),
    addEos: flag('add_eos_token'),
    chatTemplates: chatTemplates(folder, config.chat_template, jinja),
    modelEosIds: idList(generation.eos_token_id ?? model.eos_token_id),
  };
}

/** The parsed file, `undefined` for an absent one. */
function parse(folder: string, name: string, content: Buffer | undefined): unknown {
  if (content === undefined) return undefined;
  try {
    return JSON.parse(content.toString('utf8'));
  } catch (error) {
    throw new UserError(`${join(folder, name)} is not valid JSON: ${(error as Error).message}`);
  }
}

async function readIfPresent(path: string): Promise<Buffer | undefined> {
  try {
    if (!(await stat(path)).isFile()) throw new Error('it is not a regular file');
    return await readFile(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new UserError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

async function missingTokenizer(folder: string): Promise<UserError> {
  const others = [];
  for (const name of ['tokenizer.model', 'vocab.json', 'tokenizer.json.gz']) {
    if ((await readIfPresent(join(folder, name))) !== undefined) others.push(name);
  }
  const found = others.length === 0 ? '' : ` It holds ${others.join(' and ')}, which attune does not read.`;
  return new UserError(
    `${join(folder, 'tokenizer.json')} does not exist.${found} Save the tokenizer once with transformers ` +
      '(`AutoTokenizer.from_pretrained(…).save_pretrained(…)`), which writes tokenizer.json.',
  );
}

function checkedTokenizer(folder: string, value: unknown): TokenizerJson {
  const path = join(folder, 'tokenizer.json');
  const json = record(value);
  const model = record(json.model);
  if (model.vocab === undefined) throw new UserError(`${path} has no model.vocab, so it is not a tokenizer file.`);
  const type = model.type ?? (Array.isArray(model.merges) ? 'BPE' : 'unnamed');
  if (type !== 'BPE' || !Array.isArray(model.merges)) {
    throw new UserError(
      `${path} holds a tokenizer of type ${type}; attune reads BPE, which all its model families use.`,
    );
  }
  json.added_tokens ??= [];
  const problem = tokenizerProblem(json);
  if (problem !== undefined) throw new UserError(`${path} cannot be used: ${problem}.`);
  return json as unknown as TokenizerJson;
}

/**
 * transformers also takes tokens from tokenizer_config.json: those of `added_tokens_decoder`, and every named special
 * token. Adds them, and returns whether any was missing.
 */
function completeAddedTokens(json: TokenizerJson, decoder: unknown, named: (string | undefined)[]): boolean {
  const known = new Set(json.added_tokens.map((token) => token.content));
  const before = known.size;
  const add = (token: AddedToken) => {
    if (known.has(token.content)) return;
    known.add(token.content);
    json.added_tokens.push({
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
      ...token,
    });
  };
  for (const [id, token] of Object.entries(record(decoder))) {
    const entry = record(token);
    if (typeof entry.content === 'string' && /^\d{1,7}$/.test(id)) {
      add({ ...entry, id: Number(id), content: entry.content });
    }
  }
  for (const content of named) {
    const id = content === undefined ? undefined : json.model.vocab[content];
    if (content !== undefined && id !== undefined) add({ id, content });
  }
  if (known.size === before) return false;
  json.added_tokens.sort((a, b) => a.id - b.id);
  return true;
}

function chatTemplates(folder: string, value: unknown, jinja: string | undefined): Map<string, string> {
  const templates = new Map<string, string>();
  if (typeof value === 'string') templates.set('default', value);
  else if (Array.isArray(value)) {
    for (const entry of value.map(record)) {
      if (typeof entry.name === 'string' && typeof entry.template === 'string')
        templates.set(entry.name, entry.template);
    }
  } else if (value != null) {
    throw new UserError(
      `${join(folder, 'tokenizer_config.json')}: chat_template must be a string or a list of {name, template}.`,
    );
  }
  // As in transformers, the separate file takes precedence over the field.
  if (jinja !== undefined) templates.set('default', jinja);
  return templates;
}

function tokenText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  const content = record(value).content;
  return typeof content === 'string' ? content : undefined;
}

function idList(value: unknown): number[] {
  return (Array.isArray(value) ? value : [value]).filter((id): id is number => Number.isInteger(id));
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
