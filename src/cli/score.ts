/**
 * attune score --checkpoint checkpoints/rm/run/final responses.jsonl > scored.jsonl
 * echo '{"prompt": "What is 2 + 2?", "response": "4"}' | attune score --checkpoint models/rm
 */
import { createWriteStream } from 'node:fs';
import type { Command } from 'commander';
import { Option } from 'commander';
import { fileBytes, textLines } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { deviceOf, dtypeOf, type QuantType, quantTypes } from '../models/index.ts';
import { loadRewardModel, type RewardItem, type StepAggregation, stepAggregations } from '../rewards/index.ts';
import { consoleProgress } from './terminal/console.ts';
import { jsonLine } from './terminal/print.ts';

interface Flags {
  checkpoint: string;
  out?: string;
  steps: StepAggregation;
  normalise?: boolean;
  promptField: string;
  responseField: string;
  device: string;
  dtype: 'auto' | 'float32' | 'bfloat16';
  quantType?: QuantType;
}

const batchRows = 256;

export function register(program: Command): void {
  program
    .command('score [file]')
    .description('rewards of prompts and responses: lines of {prompt, response} in, the same with "reward" out')
    .requiredOption('--checkpoint <model>', 'a trained reward model')
    .option('--out <file>', 'where to write; standard output where left out')
    .addOption(
      new Option('--steps <how>', "how a process model's step scores become one")
        .choices([...stepAggregations])
        .default('min'),
    )
    .option('--normalise', 'by mean and spread on the reference set of its training')
    .option('--prompt-field <name>', 'a text or a list of messages', 'prompt')
    .option('--response-field <name>', 'the text that is scored', 'response')
    .option('--device <device>', 'cpu, cuda:0, …', 'auto')
    .addOption(
      new Option('--dtype <dtype>', 'how weights are held').choices(['auto', 'float32', 'bfloat16']).default('auto'),
    )
    .addOption(
      new Option('--quant-type <type>', 'hold the blocks of the model in 8 or 4 bits').choices([...quantTypes]),
    )
    .action(score);
}

async function score(file: string | undefined, flags: Flags): Promise<void> {
  const device = deviceOf(flags.device);
  const { steps, normalise, quantType } = flags;
  const options = {
    ...{ device, dtype: dtypeOf(flags.dtype, device), quantType },
    ...{ steps, normalise, progress: consoleProgress() },
  };
  using scorer = await loadRewardModel(flags.checkpoint, options);
  const out = flags.out === undefined ? process.stdout : createWriteStream(flags.out);
  let rows: Record<string, unknown>[] = [];
  const flush = async () => {
    const scores = await scorer.score(rows.map((row) => itemOf(row, flags)));
    for (const [i, row] of rows.entries()) out.write(`${jsonLine({ ...row, reward: scores[i] })}\n`);
    rows = [];
  };
  for await (const row of rowsIn(file)) {
    checkRow(row, flags);
    if (rows.push(row.value) >= batchRows) await flush();
  }
  await flush();
  if (out !== process.stdout) await new Promise<void>((resolve) => out.end(resolve));
}

interface PlacedRow {
  value: Record<string, unknown>;
  place: string;
}

async function* rowsIn(file = '-'): AsyncGenerator<PlacedRow> {
  const input: AsyncIterable<Buffer> = file === '-' ? process.stdin : fileBytes(file);
  for await (const { text, line } of textLines(input)) {
    if (text.trim() === '') continue;
    const place = `${file === '-' ? 'standard input' : file}:${line}`;
    yield { value: parsed(text, place), place };
  }
}

function parsed(text: string, place: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    throw new UserError(`${place} is not JSON: ${(error as Error).message}`);
  }
}

function checkRow({ value, place }: PlacedRow, { promptField, responseField }: Flags): void {
  const prompt = value[promptField];
  if (typeof prompt !== 'string' && !Array.isArray(prompt))
    throw new UserError(`${place} has no prompt in "${promptField}" (choose with --prompt-field).`);
  if (typeof value[responseField] !== 'string')
    throw new UserError(`${place} has no text in "${responseField}" (choose with --response-field).`);
}

function itemOf(row: Record<string, unknown>, { promptField, responseField }: Flags): RewardItem {
  return { prompt: row[promptField] as RewardItem['prompt'], response: row[responseField] as string };
}
