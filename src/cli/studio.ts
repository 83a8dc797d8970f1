/** attune studio [FOLDER] [--port 7860] [--model M] [--autoload] [--read-only] [--host H --token-env VAR] */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { refuseMissingFolder } from '../hub/mistyped.ts';
import { isRepoName, splitRevision } from '../hub/place.ts';
import { deviceOf, inspectModel } from '../models/index.ts';
import { type ConfigSchema, field, type ResolvedRun } from '../runs/index.ts';
import { type Above, type RunningStudio, startStudio } from '../studio/index.ts';
import { packageRoot } from '../tensor/engine/native.ts';
import { signals } from '../trainers/policy/signals.ts';
import { whatIf } from '../trainers/policy/what-if.ts';
import { inspectionText } from './inspect.ts';
import { registerCommand } from './options/command.ts';
import { checkPlaces, planned, type TrainVerb } from './options/training.ts';
import { typedCommand } from './options/typed.ts';
import { print, tell } from './terminal/print.ts';
import { policyVerb } from './train-policy.ts';
import { preferenceVerb } from './train-preference.ts';
import { rewardVerb } from './train-reward.ts';
import { sftVerb } from './train-sft.ts';

export const studioSchema = z.object({
  folder: field(z.string().default('.'), { description: 'folder whose runs, models and data are shown' }),
  port: field(z.number().int().min(0).max(65535).default(7860), { description: 'port; 0 takes a free one' }),
  model: field(z.array(z.string()).max(2).default([]), {
    description: 'a model for the chat, or two to compare: folders, runs, adapters or hub names',
    examples: ['models/tiny', 'checkpoints/grpo/run,models/tiny'],
  }),
  autoload: field(z.boolean().default(false), { description: 'load --model at the start, not when the chat opens' }),
  device: field(z.string().default('auto'), {
    description: 'for the chat: cpu, cuda:0, …; auto is the first GPU where there is one',
  }),
  readOnly: field(z.boolean().default(false), { description: 'look only: nothing is started, changed or deleted' }),
  browser: field(z.boolean().default(true), { description: 'open a browser where there is one' }),
  host: field(z.string().default('127.0.0.1'), {
    description: 'address to listen on; one that others can reach needs --token-env',
    group: 'Others',
  }),
  tokenEnv: field(z.string().optional(), {
    description: 'environment variable with a token of at least 16 characters, which lets others in',
    group: 'Others',
  }),
  allowHost: field(z.array(z.string()).default([]), {
    description: 'more host names by which others reach this machine',
    group: 'Others',
  }),
});
type Config = z.output<typeof studioSchema>;

/** Set by `register`; a session tells the page which version it is. */
let version = '';

export function register(program: Command): void {
  version = program.version() ?? '';
  registerCommand(program, {
    name: 'studio',
    description:
      'a local web page: live runs and comparisons, rollouts token by token, chat with votes, data, training',
    schema: studioSchema,
    words: ['folder'],
    examples: [
      'attune studio',
      'attune studio checkpoints --model models/tiny --autoload',
      'attune studio checkpoints --read-only --port 8080',
      'STUDIO_TOKEN=… attune studio --host 0.0.0.0 --token-env STUDIO_TOKEN',
    ],
    run,
  });
}

/** A mistyped folder is refused here: the page would tell of it only when its chat is opened. */
async function checkModel(model: string, folder: string): Promise<void> {
  if (existsSync(model) || existsSync(resolve(folder, model))) return;
  const [, revision] = splitRevision(model);
  if (revision === undefined || !isRepoName(model)) await refuseMissingFolder(model, {});
}

async function run(config: Config): Promise<void> {
  const { folder, port, host, readOnly } = config;
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    throw new UserError(`There is no folder "${folder}" to show.`);
  readdirSync(folder); // One that cannot be read is refused here, not shown as empty.
  if (config.autoload && config.model.length === 0) throw new UserError('--autoload loads --model: name one.');
  for (const model of config.model) await checkModel(model, folder);
  const token = tokenOf(config.tokenEnv);
  await using studio = await startStudio({
    root: folder,
    port,
    host,
    readOnly,
    version,
    above: whatTrainingOffers(),
    attune: typedCommand(),
    device: deviceOf(config.device),
    models: config.model,
    autoload: config.autoload,
    page: join(packageRoot, 'dist', 'studio-page'),
    allowedHosts: config.allowHost,
    modelFolders: ['models', join(packageRoot, 'models')],
    ...(token === undefined ? {} : { token }),
    onFailure: (error, path) => tell(`${path}: ${error instanceof Error ? (error.stack ?? error.message) : error}`),
  });
  const url = studio.newUrl();
  print(`studio of ${folder}${readOnly ? ', read-only' : ''}: ${url}`);
  if (process.stdin.isTTY)
    tell('Enter shows a new address (each works once), Ctrl-C ends the studio; trainings go on.');
  if (config.browser) openBrowser(url);
  await untilInterrupted(studio);
}

/** What the studio is handed from the layers above it. */
export function whatTrainingOffers(): Above {
  return {
    verbs: [sftVerb, rewardVerb, preferenceVerb, policyVerb].map((verb) =>
      offered(verb as unknown as TrainVerb<ConfigSchema>),
    ),
    launcher: { file: process.execPath, args: [...process.execArgv, process.argv[1] ?? ''] },
    signals,
    whatIf,
    inspect: async (model) => {
      const facts = await inspectModel(model);
      return { facts: { ...facts }, text: inspectionText(facts) };
    },
  };
}

function offered(verb: TrainVerb<ConfigSchema>): Above['verbs'][number] {
  const { name, description, schema, examples = [] } = verb;
  return {
    name,
    description,
    schema,
    examples,
    check: (resolved: ResolvedRun<ConfigSchema>) => checkPlaces(resolved, schema),
    plan: (resolved) => planned(resolved, verb),
  };
}

function tokenOf(variable: string | undefined): string | undefined {
  if (variable === undefined) return undefined;
  const token = process.env[variable];
  if (token === undefined || token === '')
    throw new UserError(`--token-env ${variable}: there is no such variable in the environment, or it is empty.`);
  return token;
}

/** Where there is a screen; what fails is no fault, the address was printed. */
function openBrowser(url: string): void {
  const isScreen = process.platform !== 'linux' || Boolean(process.env.DISPLAY || process.env.WAYLAND_DISPLAY);
  if (!isScreen || !process.stdout.isTTY || process.env.SSH_CONNECTION) return;
  const opener = { darwin: 'open', win32: 'explorer' }[process.platform as string] ?? 'xdg-open';
  if (opener === 'xdg-open' && !['/usr/bin/xdg-open', '/usr/local/bin/xdg-open'].some((path) => existsSync(path)))
    return;
  spawn(opener, [url], { stdio: 'ignore', detached: true })
    .on('error', () => {})
    .unref();
}

async function untilInterrupted(studio: RunningStudio): Promise<void> {
  const lines = process.stdin.isTTY ? createInterface({ input: process.stdin }) : undefined;
  lines?.on('line', () => print(studio.newUrl()));
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => resolve());
  });
  lines?.close();
}
