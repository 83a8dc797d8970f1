/** attune chat MODEL [MODEL] [--reward-model R] [--system TEXT] [--temperature 0.7] [--max-tokens 512] [--votes votes.jsonl] */
import { existsSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { checkLineFile } from '../line-file.ts';
import { deviceOf, dtypeOf, LanguageModel } from '../models/index.ts';
import { loadRewardModel } from '../rewards/index.ts';
import { field, resolveConfig } from '../runs/index.ts';
import { type ChatModel, chat } from './chat/chat.ts';
import { Conversation } from './chat/conversation.ts';
import { Screen } from './chat/screen.ts';
import { noteRewardModel } from './generate.ts';
import { cacheDtypeField, deviceField, dtypeField, precisionField, quantTypeField } from './options/model-fields.ts';
import { addSchemaOptions, schemaFlags } from './options/options.ts';
import { checkOutputFile } from './options/outputs.ts';
import { consoleProgress } from './terminal/console.ts';

const schema = z.object({
  rewardModel: field(z.string().optional(), { description: 'a reward model that scores each response' }),
  system: field(z.string().optional(), { description: 'system message' }),
  temperature: field(z.number().min(0).max(1.5).default(0.7), {
    description: '0 (always the likeliest token) to 1.5',
  }),
  maxTokens: field(z.number().int().min(64).max(2048).default(512), {
    description: 'maximum tokens of a response, 64 to 2048',
  }),
  seed: field(z.number().int().min(0).default(42), {
    description: 'the same seed and conversation give the same response',
  }),
  votes: field(z.string().default('votes.jsonl'), {
    description: 'two models: the preference file that votes are added to',
  }),
  device: deviceField,
  dtype: dtypeField,
  quantType: quantTypeField,
  precision: precisionField,
  cacheDtype: cacheDtypeField,
});

export function register(program: Command): void {
  const command = program
    .command('chat <model> [other]')
    .description('talk to a model; with two, both answer blind and you vote for the better response');
  addSchemaOptions(command, schema);
  command.addHelpText(
    'after',
    `
A model is a folder, a run, a checkpoint, an adapter or a name on the hub. Text from a pipe is answered line by line; the exit code is 1 if a message got no response, 2 if only commands were wrong.

Examples:
  attune chat models/tiny
  attune chat checkpoints/grpo/run models/tiny --votes votes.jsonl
  attune train preference --dataset votes.jsonl`,
  );
  command.action(async (first: string, other: string | undefined) => {
    const { config, sources } = resolveConfig(schema, { flags: schemaFlags(command, schema) });
    if (other !== undefined) checkVotes(config.votes);
    else if (sources.votes === 'command line')
      throw new UserError('--votes: votes are between two models: attune chat MODEL MODEL.');
    await run([first, ...(other === undefined ? [] : [other])], config);
  });
}

/** Votes are added to a file of votes or of other pairs, and to nothing else; one that cannot be written would lose the first vote. */
function checkVotes(path: string): void {
  checkLineFile('--votes', path);
  checkOutputFile('--votes', path);
  const [first = ''] = existsSync(path) ? readFileSync(path, 'utf8').trimStart().split('\n', 1) : [];
  if (first === '') return;
  let row: unknown;
  try {
    row = JSON.parse(first);
  } catch {
    row = undefined;
  }
  if (typeof row === 'object' && row !== null && 'chosen' in row && 'rejected' in row) return;
  throw new UserError(
    `--votes ${path} holds something else than preferences, to which votes could be added: name another file.`,
  );
}

async function run(names: readonly string[], config: z.output<typeof schema>): Promise<void> {
  const device = deviceOf(config.device);
  const { rewardModel, system, temperature, maxTokens, seed, quantType, precision, cacheDtype } = config;
  const progress = consoleProgress();
  const loading = {
    device,
    dtype: dtypeOf(config.dtype, device),
    progress,
    ...(quantType === undefined ? {} : { quantType }),
  };
  if (names[0] === names[1]) throw new UserError('Both models are the same: there would be nothing to vote on.');
  using stack = new DisposableStack();
  const models: ChatModel[] = [];
  for (const name of names)
    models.push({
      name,
      model: stack.use(await LanguageModel.open(name, { ...loading, reusePrefixes: true, precision, cacheDtype })),
    });
  for (const { name, model } of models) noteRewardModel(name, model.model);
  const scorer = rewardModel === undefined ? undefined : await loadRewardModel(rewardModel, { device, progress });
  stack.defer(() => scorer?.dispose?.());
  const screen = new Screen();
  stack.defer(() => screen.close());
  const failed = await chat({
    models: models as [ChatModel],
    conversation: new Conversation({ ...(system === undefined ? {} : { system }), temperature, maxTokens, seed }),
    screen,
    ...(scorer === undefined ? {} : { scorer }),
    votes: config.votes,
  });
  // On a terminal people have read why, and went on; a script learns it by the exit code.
  if (!screen.terminal && failed.messages + failed.commands > 0) process.exitCode = failed.messages > 0 ? 1 : 2;
}
