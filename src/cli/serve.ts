/** attune serve MODEL [NAME=MODEL …] [--adapter NAME=A,…] [--reward-model R] [--port 8000] [--api-key-env VAR] [--max-queue N] */
import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { deviceOf, dtypeOf } from '../models/index.ts';
import { field, refuseUnread, resolveConfig, withRules } from '../runs/index.ts';
import { Registry, type RequestEntry, serve } from '../serve/index.ts';
import { cacheDtypeField, deviceField, dtypeField, precisionField, quantTypeField } from './options/model-fields.ts';
import { addSchemaOptions, schemaFlags } from './options/options.ts';
import { consoleProgress } from './terminal/console.ts';
import { ONE_KEYSTROKE_MS } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

const options = z.object({
  adapter: field(z.array(z.string()).default([]), {
    description: 'adapters to offer by name, on the first model: NAME=FOLDER; they share its weights',
    examples: ['brief=checkpoints/dpo/run/final'],
  }),
  rewardModel: field(z.string().optional(), { description: 'a reward model, offered under /v1/score' }),
  host: field(z.string().default('127.0.0.1'), {
    description: 'address to listen on; one that others can reach needs a key',
  }),
  port: field(z.number().int().min(0).max(65535).default(8000), { description: 'port; 0 takes a free one' }),
  apiKeyEnv: field(z.string().optional(), { description: 'environment variable that holds the key clients must send' }),
  maxQueue: field(z.number().int().min(1).default(256), {
    description: 'responses that may wait; beyond that clients get 429',
  }),
  maxTokens: field(z.number().int().min(16).optional(), {
    description: "tokens of a prompt and its response together; the model's own, up to 4096 on a CPU and 8192 on a GPU",
  }),
  slots: field(z.number().int().min(1).optional(), { description: 'responses written at the same time' }),
  cacheGib: field(z.number().positive().optional(), {
    description: "most GiB of each model's cache; by default room for all slots at --max-tokens",
  }),
  device: deviceField,
  dtype: dtypeField,
  quantType: quantTypeField,
  precision: precisionField,
  cacheDtype: cacheDtypeField,
  logPrompts: field(z.boolean().default(false), { description: 'write whole requests to the log, prompts included' }),
  quiet: field(z.boolean().default(false), { description: 'no line per request' }),
});

const schema = withRules(options, [
  { options: ['logPrompts'], unread: ({ quiet }) => quiet, because: 'no request is logged with --quiet' },
]);

export function register(program: Command): void {
  const command = program
    .command('serve <model...>')
    .description('an OpenAI-compatible server: each MODEL is a folder, an adapter or a hub name, or NAME=MODEL');
  addSchemaOptions(command, schema);
  command.addHelpText(
    'after',
    `
Routes: /v1/chat/completions, /v1/completions, /v1/models, /v1/score, /health, /metrics

Examples:
  attune serve models/tiny
  attune serve base=Qwen/Qwen3-0.6B --adapter brief=checkpoints/dpo/run/final --reward-model checkpoints/rm/run/final
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "What is 4 + 5?"}]}'`,
  );
  command.action(async (models: string[]) => {
    const resolved = resolveConfig(schema, { flags: schemaFlags(command, schema) });
    refuseUnread(schema, resolved);
    await run(models, resolved.config);
  });
}

async function run(models: readonly string[], config: z.output<typeof schema>): Promise<void> {
  const device = deviceOf(config.device);
  const { quantType, maxQueue, maxTokens, slots, cacheGib, precision, cacheDtype } = config;
  using registry = new Registry({
    device,
    dtype: dtypeOf(config.dtype, device),
    ...(quantType === undefined ? {} : { quantType }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(slots === undefined ? {} : { slots }),
    ...(cacheGib === undefined ? {} : { maxCacheBytes: Math.floor(cacheGib * 2 ** 30) }),
    precision,
    cacheDtype,
    maxQueue,
    progress: consoleProgress(),
  });
  const apiKey = keyOf(config.apiKeyEnv);
  // Before the models are loaded, which may take minutes.
  for (const given of config.adapter) {
    const [, source] = named(given);
    if (!existsSync(source)) throw new UserError(`--adapter ${given}: there is no folder ${source}.`);
  }
  for (const given of models) {
    const { name, model } = await registry.add(...named(given));
    const { maxPositions } = model.decoder.spec;
    if (maxTokens !== undefined && maxTokens > maxPositions)
      tell(`--max-tokens ${maxTokens}: ${name} reads ${maxPositions} positions, so that is its limit.`);
  }
  for (const given of config.adapter) registry.addAdapter(...named(given));
  if (config.rewardModel !== undefined) await registry.addRewardModel(...named(config.rewardModel));
  await using server = await serve(registry, {
    host: config.host,
    port: config.port,
    ...(apiKey === undefined ? {} : { apiKey }),
    logPrompts: config.logPrompts,
    onRequest: config.quiet ? undefined : logLine,
  });
  print(
    `serving ${[...registry.models.map(({ name }) => name), ...registry.rewardModels].join(', ')} at ${server.url}/v1`,
  );
  await new Promise<void>((resolve) => {
    let first: number | undefined;
    const onSignal = (name: NodeJS.Signals) => {
      const passedOn = name === 'SIGINT' && performance.now() - (first ?? 0) < ONE_KEYSTROKE_MS;
      if (first !== undefined) return passedOn ? undefined : resolve();
      first = performance.now();
      tell('finishing what was begun; once more ends at once');
      void server.drain().then(resolve);
    };
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal);
  });
}

/** `NAME=MODEL`, a hub name as it is, or the name of a model's folder; a run's checkpoint is known by its run. */
function named(given: string): [name: string, source: string] {
  const [, name, source] = /^([\w.:-]+)=(.+)$/.exec(given) ?? [];
  if (name !== undefined && source !== undefined) return [name, source];
  if (!existsSync(given)) return [given, given];
  const folder = basename(resolve(given));
  const isSnapshot = /^(final|best_model|step-\d+|checkpoint-\d+)$/.test(folder);
  return [isSnapshot ? basename(resolve(given, '..')) : folder, given];
}

function keyOf(variable: string | undefined): string | undefined {
  if (variable === undefined) return undefined;
  const key = process.env[variable];
  if (key === undefined || key === '')
    throw new UserError(`--api-key-env ${variable}: there is no such variable in the environment, or it is empty.`);
  return key;
}

/** One line a request; prompts only where they were asked for. */
function logLine({ route, status, seconds, model, usage, error, cause, body }: RequestEntry): void {
  const parts = [new Date().toISOString(), String(status), route, ...(model === undefined ? [] : [model])];
  if (usage !== undefined) parts.push(`${usage.prompt_tokens}+${usage.completion_tokens} tokens`);
  parts.push(`${seconds.toFixed(2)} s`, ...(error === undefined ? [] : [error]));
  tell(parts.join('  '));
  if (cause instanceof Error) tell(cause.stack ?? cause.message);
  if (body !== undefined) tell(JSON.stringify(body));
}
