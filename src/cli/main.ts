/**
 * The `attune` program. Each command is a file here that exports `register(program)`; it is imported only when it is
 * called, so that `--help` is instant and no command loads another's packages.
 */
import { Command, CommanderError } from 'commander';
import { report } from '../dist/beat.ts';
import { checkPlace, devicesOf, gpusInstalled, nodeOf, readPlace } from '../dist/place.ts';
import { onWaiting } from '../dist/waiting.ts';
import { UserError } from '../errors.ts';
import { exitSignals, signalExitCodes } from '../exit-codes.ts';
import { loadDotenv } from '../runs/config/dotenv.ts';
import { speakTo } from '../spelling.ts';
import { type EnginePreparer, prepareEngine, setEnginePreparer } from './machine/engine.ts';
import { leaveWithWrapper } from './machine/wrapper.ts';
import { normalizeArguments } from './options/arguments.ts';
import { diskFullWords } from './options/outputs.ts';
import { withMeant } from './options/unknown.ts';
import { checkVerb } from './options/verbs.ts';
import { deniedWords } from './terminal/denied.ts';
import { print, tell } from './terminal/print.ts';
import { surviveClosedOutput } from './terminal/streams.ts';

interface CommandEntry {
  summary: string;
  load: () => Promise<{ register(program: Command): void }>;
  /** False for commands that do not need libtorch, or prepare it themselves. */
  engine?: boolean;
}

const commands: Record<string, CommandEntry> = {
  doctor: {
    summary: 'checks this machine and suggests fixes',
    load: () => import('./doctor.ts'),
    engine: false,
  },
  explore: { summary: 'statistics, plots and biases of a dataset', load: () => import('./explore.ts'), engine: false },
  score: { summary: 'rewards of prompts and responses', load: () => import('./score.ts') },
  train: { summary: 'train a model: sft, reward, preference, policy', load: () => import('./train.ts') },
  launch: {
    summary: 'runs a command on several processes or machines',
    load: () => import('./launch.ts'),
    engine: false,
  },
  runs: { summary: 'list, show, compare, tag and delete runs', load: () => import('./runs.ts'), engine: false },
  rollouts: { summary: 'what a policy wrote in training', load: () => import('./rollouts.ts'), engine: false },
  replay: { summary: "recompute a step's advantages and losses", load: () => import('./replay.ts') },
  evaluate: { summary: 'evaluate a trained model', load: () => import('./evaluate.ts') },
  compare: { summary: 'several methods from one start, one report', load: () => import('./compare.ts') },
  quantize: {
    summary: 'a model in 8 or 4 bits, measured against the original',
    load: () => import('./quantize.ts'),
  },
  generate: { summary: 'continue a prompt', load: () => import('./generate.ts') },
  chat: { summary: 'talk to a model, or to two and vote', load: () => import('./chat.ts') },
  serve: { summary: 'an OpenAI-compatible server', load: () => import('./serve.ts') },
  studio: { summary: 'a web page over runs, rollouts, chat, data and training', load: () => import('./studio.ts') },
  inspect: { summary: 'architecture, size and memory of a model', load: () => import('./inspect.ts') },
  export: { summary: 'a model for other programs: merged, or as GGUF', load: () => import('./export.ts') },
  preferences: {
    summary: "pairs from a policy's own responses",
    load: () => import('./preferences.ts'),
  },
  demo: { summary: 'post-training end to end in minutes', load: () => import('./demo.ts') },
  learn: { summary: 'ten chapters on post-training, run and drawn on this machine', load: () => import('./learn.ts') },
  tasks: { summary: 'procedural tasks with verifiable answers', load: () => import('./tasks.ts'), engine: false },
  environments: {
    summary: 'environments to train a policy in, and games of their scripted players',
    load: () => import('./environments.ts'),
    engine: false,
  },
  tokenizer: {
    summary: 'train a tokenizer, or look at how one splits text',
    load: () => import('./tokenizer.ts'),
    engine: false,
  },
};

/** Runs one command line and returns the exit code: 0, 1 for a failure, 2 for wrong usage. */
export async function main(
  argv: string[],
  launcher: { version: string; prepareEngine: EnginePreparer },
): Promise<number> {
  speakTo('command line');
  setEnginePreparer(launcher.prepareEngine);
  surviveClosedOutput();
  leaveWithWrapper();
  onWaiting(tell);
  /** What the parser says of a command line that it does not take. */
  let usage = '';
  const program = new Command('attune')
    .description('LLM post-training for TypeScript, on libtorch')
    .version(launcher.version)
    .showHelpAfterError('(add --help for what can be asked)')
    .configureOutput({
      writeOut: (text) => print(text.trimEnd()),
      writeErr: (text) => {
        usage += text;
      },
    })
    .exitOverride();
  let args: string[] = [];
  try {
    loadDotenv('.env', process.env, (name) =>
      tell(`.env: ${name} is not read from a file; set it in the environment.`),
    );
    args = normalizeArguments(argv);
    const launched = await asNode(args);
    if (launched !== undefined) return launched;
    seeOwnDevice();
    args = await ofThisAttempt(args);
    const [first, second] = args.filter((arg) => !arg.startsWith('-'));
    const asked = first === 'help' ? second : first;
    for (const [name, entry] of Object.entries(commands)) {
      if (name !== asked) program.command(name).summary(entry.summary).description(entry.summary);
      else (await load(entry, args)).register(program);
    }
    checkVerb(program, args);
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    const told = usage.trimEnd();
    return complain(error, error instanceof CommanderError ? withMeant(told, program, args, error) : told);
  }
}

/** Builds the engine, if need be, for a command that uses it; `--help` does not. */
async function load(entry: CommandEntry, args: string[]): Promise<Awaited<ReturnType<CommandEntry['load']>>> {
  const options = args.slice(0, args.includes('--') ? args.indexOf('--') : args.length);
  const helpOnly = args[0] === 'help' || options.includes('--help') || options.includes('-h');
  if (entry.engine !== false && !helpOnly) {
    await prepareEngine();
    if (process.env.ATTUNE_BEAT_FD !== undefined) (await import('../dist/heartbeat.ts')).startBeating();
  }
  return entry.load();
}

/** One of several ranks on a machine sees the GPU that is its own; must come before the engine is loaded. */
function seeOwnDevice(): void {
  const place = readPlace(process.env);
  if (place === undefined) return;
  const devices = devicesOf(process.env.CUDA_VISIBLE_DEVICES, gpusInstalled());
  if (devices.length > 1) process.env.CUDA_VISIBLE_DEVICES = devices[place.localRank % devices.length];
  // NCCL refuses two ranks on one GPU.
  if (devices.length < place.localSize) process.env.ATTUNE_DIST_BACKEND ??= 'gloo';
}

/** torchrun starts a command that failed again as it was: it goes on from the run's last checkpoint. */
async function ofThisAttempt(args: string[]): Promise<string[]> {
  const place = readPlace(process.env);
  if (args[0] !== 'train' || !place?.hasStore || place.prefix === '') return args;
  await prepareEngine();
  const [{ commandOfAttempt }, { Attempts }] = await Promise.all([
    import('../dist/attempt.ts'),
    import('./options/attempts.ts'),
  ]);
  return commandOfAttempt(args, (folder) => new Attempts(args).after(folder));
}

/** Where an operator has started one process per machine, it becomes the launcher of the machine's ranks. */
async function asNode(args: readonly string[]): Promise<number | undefined> {
  if (!['train', 'evaluate', 'compare'].includes(args[0] ?? '')) return undefined;
  checkPlace(process.env);
  const node = nodeOf(process.env, gpusInstalled());
  if (node === undefined) return undefined;
  const { launchCommand, launchDefaults } = await import('./launch.ts');
  return launchCommand(args, { ...launchDefaults, ...node }, { isPod: true });
}

/** Says why the command ends, and returns its exit code. One of several ranks tells its launcher, which says it once. */
function complain(error: unknown, usage: string): number {
  if (error instanceof CommanderError && error.exitCode === 0) return 0;
  // What a command throws that was stopped where it had nothing to save; see onInterrupt.
  const signal = exitSignals.find((name) => name === error);
  if (signal !== undefined) return signalExitCodes[signal] as number;
  const denied = deniedWords(error);
  const full = diskFullWords(error);
  const message = denied ?? full ?? (error instanceof Error ? error.message : String(error));
  const stack = error instanceof Error && process.env.ATTUNE_DEBUG === '1' ? error.stack : undefined;
  const text = error instanceof CommanderError ? usage : (stack ?? `attune: ${message}`);
  const mistaken = error instanceof CommanderError || error instanceof UserError || (denied ?? full) !== undefined;
  const code = mistaken ? 2 : 1;
  if (!report({ error: { text, code } })) tell(text);
  return code;
}
