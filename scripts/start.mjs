/**
 * The door of every `npm run`: brings what is missing on this machine (packages, Node 24, libtorch, the addon), then
 * runs the target. Each step says what it does only when there is something to do; a second start adds well under 2 s.
 *
 *     node scripts/start.mjs test [vitest's options]
 *     node scripts/start.mjs demo
 *     node scripts/start.mjs recipe mine.ts     a TypeScript program with this Node, this engine and these sources as `attune`
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { asksForHelp, openingComment } from './help.mjs';
import {
  APT_PACKAGES,
  BuildError,
  ensureAddon,
  findLibtorch,
  LibtorchError,
  NO_LIBTORCH,
  packageRoot as root,
} from './native.mjs';
import { modernNode, NO_NODE, runNode } from './node24.mjs';
import { ensurePage } from './page.mjs';

/** Something the person has to do before this can go on. */
class Stop extends Error {}

/** `help`: what `--help` prints, or the file whose opening comment it prints; other targets have a --help of their own. */
const targets = {
  test: { engine: true, page: true, command: ['node_modules/vitest/vitest.mjs', 'run'] },
  demo: { engine: true, atUser: true, command: ['bin/attune.mjs', 'demo'] },
  bench: { engine: true, page: true, command: ['benchmarks/run.ts'] },
  attune: { engine: true, atUser: true, command: ['bin/attune.mjs'] },
  example: { engine: true, command: ['--conditions=attune-source'], programs: 'examples' },
  sanitize: {
    engine: true,
    sanitize: true,
    command: ['node_modules/vitest/vitest.mjs', 'run'],
    default: ['src/tensor', 'src/nn'],
    help: `npm run sanitize                 the tests of src/tensor and src/nn with the addon under AddressSanitizer and UBSan
npm run sanitize -- src/models   those of another folder; paths and options are those of npm test`,
  },
  recipe: {
    engine: true,
    atUser: true,
    command: ['--conditions=attune-source'],
    help: `npm run recipe -- mine.ts [its options]   a program of your own in this folder or below, from the sources`,
  },
  replicate: { engine: true, command: ['--conditions=attune-source', 'recipes/replications/run.ts'] },
  setup: {
    engine: true,
    page: true,
    help: `npm run setup   installs what is missing (packages, Node 24, libtorch), builds the addon and the studio's page`,
  },
  docs: { command: ['scripts/api-docs.ts'], help: 'scripts/api-docs.ts' },
  pictures: { engine: true, page: true, command: ['scripts/pictures.ts'], help: 'scripts/pictures.ts' },
  build: { command: ['scripts/compile.mjs'], help: 'scripts/compile.mjs' },
  bundle: { command: ['scripts/bundle.mjs'], help: 'scripts/bundle.mjs' },
  kernels: { command: ['scripts/kernels.mjs'], help: 'scripts/kernels.mjs' },
  lint: { command: ['node_modules/@biomejs/biome/bin/biome', 'check', '.'] },
  format: { command: ['node_modules/@biomejs/biome/bin/biome', 'check', '--write', '.'] },
  'format-native': { work: formatNative, help: 'npm run format-native   clang-format over native/ (.clang-format)' },
  typecheck: { work: typecheck, help: `npm run typecheck   tsc over the sources, then over the studio's page` },
};

/** One line per step: with a clock that runs on a terminal, printed once begun and once done elsewhere. */
async function step(label, work) {
  const started = Date.now();
  const seconds = () => ((Date.now() - started) / 1000).toFixed(1);
  const live = process.stderr.isTTY;
  let detail = '';
  const draw = (end) => process.stderr.write(`\r\u001b[2K${label}${detail && `: ${detail}`} … ${seconds()} s${end}`);
  const log = (line) => {
    detail = line;
    if (!live) process.stderr.write(`${label}: ${line}\n`);
  };
  if (!live) process.stderr.write(`${label} …\n`);
  const clock = live ? setInterval(() => draw(''), 200) : undefined;
  try {
    const result = await work(log);
    clearInterval(clock);
    if (live) draw('\n');
    else process.stderr.write(`${label}: done in ${seconds()} s\n`);
    return result;
  } catch (error) {
    clearInterval(clock);
    if (live) process.stderr.write('\n');
    throw error;
  }
}

/** C++ by .clang-format. */
function formatNative() {
  const folder = join(root, 'native');
  const files = readdirSync(folder, { recursive: true }).filter((name) => /\.(cc|cu|h|cuh)$/.test(name));
  const { error, status } = spawnSync('clang-format', ['-i', ...files], { cwd: folder, stdio: 'inherit' });
  if (error) throw new Stop('clang-format is not installed (apt-get install clang-format)');
  return status;
}

/** The sources for Node, then the studio's page, which knows a browser instead. */
function typecheck(node) {
  const check = (...args) =>
    spawnSync(node, [join(root, 'node_modules/typescript/lib/tsc.js'), '--noEmit', ...args], {
      cwd: root,
      stdio: 'inherit',
    }).status;
  return check() || check('-p', 'studio');
}

/**
 * npm writes what it installed into node_modules/.package-lock.json: packages are up to date when that agrees with
 * ours.
 */
function packagesAreInstalled() {
  const installed = join(root, 'node_modules/.package-lock.json');
  if (!existsSync(installed)) return false;
  const have = JSON.parse(readFileSync(installed, 'utf8')).packages;
  const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
  return Object.entries(wanted).every(
    ([path, { version, optional }]) => path === '' || optional || have[path]?.version === version,
  );
}

async function installPackages() {
  if (packagesAreInstalled()) return;
  await step('packages: npm ci', () => runQuietly('npm', ['ci', '--no-audit', '--no-fund'], {}));
  if (!packagesAreInstalled())
    throw new Stop('npm ci ended well, and yet packages are missing: remove node_modules and try again.');
}

/**
 * apt-get's words before its arguments: nothing for root, sudo where it asks no password, undefined where neither is
 * so.
 */
function administrator() {
  if (process.getuid?.() === 0) return [];
  return spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status === 0 ? ['sudo', '-n'] : undefined;
}

async function installLibtorch() {
  const compiler = process.env.CXX || 'g++';
  const wanted = [
    ...(findLibtorch() ? [] : APT_PACKAGES),
    ...(spawnSync(compiler, ['--version'], { stdio: 'ignore' }).error ? ['g++'] : []),
  ];
  if (wanted.length === 0) return;
  const what = wanted.includes('libtorch-dev') ? 'libtorch' : 'a C++ compiler';
  if (spawnSync('apt-get', ['--version'], { stdio: 'ignore' }).error) {
    throw new Stop(
      what === 'libtorch'
        ? NO_LIBTORCH
        : `there is no C++ compiler (${compiler}): install one, or name yours with CXX=…`,
    );
  }
  const prefix = administrator();
  const install = ['apt-get', 'install', '-y', '--no-install-recommends', ...wanted];
  if (!prefix) {
    throw new Stop(`${what} is missing, and installing it needs root. Run this, then try again:
  sudo apt-get update && sudo ${install.join(' ')}${what === 'libtorch' ? '\nor, without root: pip install torch, or ATTUNE_LIBTORCH=<folder of a libtorch archive>' : ''}`);
  }
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await step(`${what}: apt-get install ${wanted.join(' ')}`, async () => {
    const [first, ...rest] = [...prefix, 'apt-get', 'update'];
    await runQuietly(first, rest, env);
    const [command, ...args] = [...prefix, ...install];
    await runQuietly(command, args, env);
  });
}

function runQuietly(command, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output = (output + text).slice(-4000);
      });
    }
    child.on('error', (error) => reject(new Stop(`${command} could not be started: ${error.message}`)));
    child.on('close', (status) => {
      if (status === 0) resolve();
      else reject(new Stop(`${command} ${args.join(' ')} ended with ${status}:\n${output.trimEnd()}`));
    });
  });
}

/** What a target says of itself where it is asked; undefined where it has an answer of its own. */
function help({ help: own, programs }, args) {
  if (!asksForHelp(args)) return undefined;
  if (programs) {
    const [name] = args;
    return name.startsWith('-') ? programList(programs) : openingComment(join(root, program(programs, name)));
  }
  // The options of somebody's own program are that program's.
  if (own === undefined || !asksForHelp(args.slice(0, 1))) return undefined;
  return own.startsWith('scripts/') ? openingComment(join(root, own)) : own;
}

function programList(folder) {
  const known = readdirSync(join(root, folder)).filter((each) => each.endsWith('.ts') && !each.endsWith('.test.ts'));
  return `${folder} has: ${known.map((each) => each.slice(0, -3)).join(', ')}. A program of your own: npm run recipe -- mine.ts`;
}

/** The file of a program by its name: `grpo` → examples/grpo.ts. */
function program(folder, name) {
  const file = join(folder, `${name}.ts`);
  if (name !== undefined && existsSync(join(root, file))) return file;
  throw new Stop(programList(folder));
}

/**
 * The sanitizers' run time has to be in the process before node starts. Node itself never frees what it holds at exit,
 * so leaks are not looked for; a mapped file that shrinks is a SIGBUS that the engine itself handles
 * (native/door/mapping.cc). An allocation that is too large fails as it does without the sanitizers, because tests ask for one.
 */
function sanitizerEnvironment() {
  const libraries = ['libasan.so', 'libubsan.so'].map((name) => {
    const answer = spawnSync(process.env.CXX || 'g++', [`-print-file-name=${name}`], { encoding: 'utf8' });
    const path = (answer.stdout ?? '').trim();
    if (!path.includes('/')) throw new Stop(`the compiler has no ${name}: install its sanitizer libraries`);
    return path;
  });
  return {
    LD_PRELOAD: libraries.join(' '),
    ASAN_OPTIONS:
      'detect_leaks=0:handle_sigbus=0:allow_user_segv_handler=1:alloc_dealloc_mismatch=0:allocator_may_return_null=1',
    UBSAN_OPTIONS: 'print_stacktrace=1:halt_on_error=1',
  };
}

async function main([name, ...args]) {
  const target = targets[name];
  if (!target) throw new Stop(`unknown target "${name ?? ''}": one of ${Object.keys(targets).join(', ')}`);
  const answer = help(target, args);
  if (answer !== undefined) {
    console.log(answer);
    return 0;
  }
  if (target.programs) args.unshift(program(target.programs, args.shift()));
  await installPackages();
  const node = modernNode(root);
  if (!node) throw new Stop(NO_NODE);
  const env = { ...process.env, PATH: [dirname(node), process.env.PATH].join(delimiter) };
  // What Node compiled once is read again by every later process: half a second less at each start from the sources.
  env.NODE_COMPILE_CACHE ??= join(root, 'node_modules/.compile-cache');
  if (target.engine) {
    await installLibtorch();
    if (target.sanitize) env.ATTUNE_SANITIZE = '1';
    env.ATTUNE_ADDON = (await ensureAddon({ env, around: (work) => step('addon', work) })).path;
    if (target.sanitize) Object.assign(env, sanitizerEnvironment());
  }
  if (target.page || (name === 'attune' && args[0] === 'studio'))
    await ensurePage({ around: (work) => step("the studio's page", work) });
  if (target.work) return target.work(node);
  if (!target.command) return 0;
  const given = args.length > 0 ? args : (target.default ?? []);
  if (name === 'recipe' && args.length === 0) throw new Stop('name a program: npm run recipe -- mine.ts');
  const command = target.command.map((part, i) => (i > 0 || part.startsWith('-') ? part : resolve(root, part)));
  // npm goes to the package's folder; paths that a person types are meant from where they stand.
  const cwd = target.atUser ? (process.env.INIT_CWD ?? process.cwd()) : root;
  return runNode(node, [...command, ...given], { cwd, env });
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Stop || error instanceof BuildError || error instanceof LibtorchError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
