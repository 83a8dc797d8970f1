/**
 * attune score --checkpoint checkpoints/rm/run/final responses.jsonl > scored.jsonl
 * echo '{"prompt": "What is 2 + 2?", "response": "4"}' | attune score --checkpoint models/rm
 */
import type { Command } from 'commander';
import { z } from 'zod';
import { fileBytes } from '../data/sources/bytes.ts';
import { textLines } from '../data/sources/lines.ts';
import { UserError } from '../errors.ts';
import { refuseExisting } from '../existing-file.ts';
import { deviceOf, dtypeOf } from '../models/index.ts';
import { loadRewardModel, type RewardItem } from '../rewards/index.ts';
import { field, withRules } from '../runs/index.ts';
import { counted } from '../spelling.ts';
import { quantTypeField, scoringPrecisionField } from '../trainers/fields.ts';
import { registerCommand } from './options/command.ts';
import { deviceField, overwriteField } from './options/model-fields.ts';
import { OutputFile } from './options/outputs.ts';
import { stepsField } from './options/reward-fields.ts';
import { consoleProgress } from './terminal/console.ts';
import { tellIfExact } from './terminal/precision.ts';
import { jsonLine, printPart, tell } from './terminal/print.ts';

const batchRows = 256;

const scoreOptions = z.object({
  file: field(z.string().default('-'), { description: 'lines of {prompt, response}; "-" is standard input' }),
  checkpoint: field(z.string(), {
    description: 'a trained reward model: its folder, its run, or a hub name',
    aliases: ['model', 'rewardModelPath'],
  }),
  out: field(z.string().optional(), {
    description: 'where to write; standard output where left out',
    aliases: ['output'],
  }),
  overwrite: overwriteField,
  steps: stepsField,
  normalise: field(z.boolean().default(false), {
    description: 'normalise by the mean and spread of the held-out scores of its training',
  }),
  promptField: field(z.string().default('prompt'), { description: 'field with a text or a list of messages' }),
  responseField: field(z.string().default('response'), { description: 'field with the text that is scored' }),
  device: deviceField,
  dtype: field(z.enum(['auto', 'float32', 'bfloat16']).default('auto'), {
    description: 'how weights are held; auto is bfloat16 on a GPU and float32 on a CPU',
    group: 'Model',
  }),
  quantType: quantTypeField('hold the blocks of the model in 8 or 4 bits', 'Model'),
  precision: scoringPrecisionField('Model'),
});

export const scoreSchema = withRules(scoreOptions, [
  { options: ['overwrite'], unread: ({ out }) => out === undefined, because: 'there is no file without --out' },
]);

type Config = z.output<typeof scoreSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'score',
    description: 'rewards of prompts and responses: lines of {prompt, response} in, the same with "reward" out',
    schema: scoreSchema,
    words: ['file'],
    examples: ['attune score --checkpoint checkpoints/rm/run responses.jsonl --out scored.jsonl'],
    run: score,
  });
}

async function score(config: Config): Promise<void> {
  using out = config.out === undefined ? undefined : new OutputFile('--out', config.out, [config.file]);
  if (config.out !== undefined) refuseExisting('--out', config.out, config);
  const device = deviceOf(config.device);
  const { steps, normalise, quantType, precision } = config;
  const dtype = dtypeOf(config.dtype, device);
  const progress = consoleProgress();
  const how = { device, dtype, quantType, precision, steps, normalise, progress };
  using scorer = await loadRewardModel(config.checkpoint, how);
  tellIfExact(precision, scorer.precision);
  let rows: PlacedRow[] = [];
  let total = 0;
  const cut = new Set<RewardItem>();
  const flush = async () => {
    const items = rows.map(({ value }) => itemOf(value, config));
    const scores = await scorer.score(items, { onTruncated: (item) => cut.add(item) });
    for (const [i, { fields }] of rows.entries()) {
      const truncated = cut.has(items[i] as RewardItem) ? { truncated: true } : {};
      const line = `${jsonLine({ ...fields, reward: scores[i], ...truncated })}\n`;
      if (out === undefined) printPart(line);
      else out.write(line);
    }
    total += rows.length;
    rows = [];
  };
  for await (const row of rowsIn(config.file)) {
    checkRow(row, config);
    if (rows.push(row) >= batchRows) await flush();
  }
  if (rows.length > 0) await flush();
  if (total === 0) throw new UserError(`${placeOf(config.file)} has no rows to score.`);
  out?.finish();
  if (out !== undefined) tell(`${config.out}: ${counted(total, 'row')} with rewards`);
  if (cut.size > 0) {
    const limit = scorer.maxLength.toLocaleString('en-US');
    tell(`Note: ${cut.size} of ${total} texts have more than ${limit} tokens: only their last ${limit} were read.`);
  }
}

interface PlacedRow {
  value: Record<string, unknown>;
  /** Its fields as they are written out again. */
  fields: Record<string, unknown>;
  place: string;
}

const placeOf = (file: string) => (file === '-' ? 'standard input' : file);

async function* rowsIn(file: string): AsyncGenerator<PlacedRow> {
  const input: AsyncIterable<Buffer> = file === '-' ? process.stdin : fileBytes(file);
  for await (const { text, line } of textLines(input, placeOf(file))) {
    if (text.trim() === '') continue;
    const place = `${placeOf(file)}:${line}`;
    const value = parsed(text, place);
    yield { value, fields: mayBeLong.test(text) ? asWritten(text) : value, place };
  }
}

/** The row for its output: numbers that a double cannot hold (ids of 64 bits) leave as they came. */
function asWritten(text: string): Record<string, unknown> {
  const keep = (_key: string, value: unknown, { source }: { source: string }) =>
    typeof value === 'number' && (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value)))
      ? rawJson(source)
      : value;
  return JSON.parse(text, keep as Parameters<typeof JSON.parse>[1]);
}

const rawJson = (source: string) => (JSON as unknown as { rawJSON(text: string): object }).rawJSON(source);
const mayBeLong = /\d{16}|\d[eE]/;

function parsed(text: string, place: string): Record<string, unknown> {
  let row: unknown;
  try {
    row = JSON.parse(text);
  } catch (error) {
    throw new UserError(`${place} is not JSON: ${(error as Error).message}`);
  }
  if (typeof row !== 'object' || row === null || Array.isArray(row))
    throw new UserError(`${place}: expected a JSON object with a prompt and a response.`);
  return row as Record<string, unknown>;
}

function checkRow({ value, place }: PlacedRow, { promptField, responseField }: Config): void {
  const prompt = value[promptField];
  if (typeof prompt !== 'string' && !Array.isArray(prompt))
    throw new UserError(`${place} has no prompt in "${promptField}" (choose with --prompt-field).`);
  if (typeof value[responseField] !== 'string')
    throw new UserError(`${place} has no text in "${responseField}" (choose with --response-field).`);
}

function itemOf(row: Record<string, unknown>, { promptField, responseField }: Config): RewardItem {
  return { prompt: row[promptField] as RewardItem['prompt'], response: row[responseField] as string };
}
