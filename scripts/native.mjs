/**
 * Builds the addon, `build/attune-<fingerprint>.node`, from native/ against the libtorch found here, and only when there
 * is none yet for these sources and that libtorch. Direct compiler calls: neither cmake nor node-gyp is needed.
 *
 *     node scripts/native.mjs [--quiet]                builds and says what it found
 *     const { path } = await ensureAddon({ log });     the same from a program
 *
 * Plain JavaScript for Node 20 without packages: it runs at install time, in the bundle and on closed machines.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  atLeast,
  cacheFolder,
  findCuda,
  findLibtorch,
  findNccl,
  hasC10d,
  LibtorchError,
  usesNewStringAbi,
} from './libtorch.mjs';
import { findPackage } from './node24.mjs';

export { findLibtorch, LibtorchError } from './libtorch.mjs';

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));

/** A build that could not be done: the fault in the first line of the message, then the compiler's words or what to do. */
export class BuildError extends Error {
  name = 'BuildError';
}

/** `vptr` would ask libtorch for type information that its binaries keep to themselves. */
const SANITIZE = ['-fsanitize=address,undefined', '-fno-sanitize=vptr', '-fno-sanitize-recover=undefined'];

/** What to type to get a libtorch, for messages. */
export const APT_PACKAGES = ['libtorch-dev', 'libgloo-dev', 'libopenblas0-pthread'];
export const NO_LIBTORCH = `no libtorch was found
One of these gives one:
  apt-get install -y ${APT_PACKAGES.join(' ')}     (Debian, Ubuntu; as root)
  pip install torch                                          (any Linux, and for CUDA)
  ATTUNE_LIBTORCH=<folder>                                   (an unpacked libtorch archive, or a torch wheel's folder)`;

/**
 * The addon for this machine, built first if need be.
 * @param {object} [options]
 * @param {(line: string) => void} [options.log]
 * @param {(work: (log: (line: string) => void) => Promise<void>) => Promise<void>} [options.around] wraps a build that has
 *   to be done, and is not called for one that is there already
 * @param {string} [options.root] the folder of the package
 * @param {NodeJS.ProcessEnv} [options.env]
 * @returns {Promise<{ path: string, libtorch: string, lib: string, version: string, libtorchHasCuda: boolean,
 *   cuda: boolean, kernels: boolean, kernelsLeftOut: boolean, source: string, fingerprint: string, built: boolean }>}
 */
export async function ensureAddon(options = {}) {
  const { log = () => {}, around = (work) => work(log), root = packageRoot, env = process.env } = options;
  if (process.platform !== 'linux') throw new BuildError(`attune runs on Linux, and this is ${process.platform}`);
  const libtorch = findLibtorch({ env });
  if (!libtorch) throw new LibtorchError(NO_LIBTORCH);
  const build = buildFolder(root, env);
  const plan = planBuild(root, build, libtorch, env);
  const path = join(build, `attune-${plan.fingerprint}.node`);
  const record = {
    path,
    libtorch: libtorch.root,
    lib: libtorch.lib,
    version: libtorch.version,
    libtorchHasCuda: libtorch.cuda,
    cuda: plan.cuda !== undefined,
    kernels: plan.kernels,
    kernelsLeftOut: plan.kernelsLeftOut,
    source: libtorch.source,
    fingerprint: plan.fingerprint,
  };
  let built = false;
  if (!existsSync(path)) {
    await around((say) =>
      withLock(join(build, `${plan.fingerprint}.lock`), say, async () => {
        if (existsSync(path)) return;
        await compile(plan, path, say);
        built = true;
        for (const folder of new Set([build, plan.shelf])) prune(folder, path);
      }),
    );
  }
  writeIfChanged(join(build, 'compile_commands.json'), `${JSON.stringify(compileCommands(root, plan), null, 1)}\n`);
  // addon.json names the one in use; the other stays true when two libtorches are used in turn.
  const text = `${JSON.stringify(record, null, 2)}\n`;
  for (const name of ['addon.json', `attune-${plan.fingerprint}.json`]) writeIfChanged(join(build, name), text);
  return { ...record, built };
}

/** build/ beside the sources, or a folder of the cache where the package's own cannot be written (a shared install). */
function buildFolder(root, env) {
  const folder = firstWritable([join(root, 'build'), join(cacheFolder(env), 'build', digest(root))]);
  return sanitizing(env) ? firstWritable([join(folder, 'sanitize')]) : folder;
}

/** A build with AddressSanitizer and UBSan has a folder of its own: addon.json must not name it for everyday use. */
function sanitizing(env) {
  return env.ATTUNE_SANITIZE === '1';
}

/** What clangd and other tools read to know how each source is compiled. */
function compileCommands(root, { objects }) {
  return objects.map(({ source, command }) => ({
    directory: root,
    file: source,
    arguments: [...command, '-c', source],
  }));
}

function firstWritable(folders) {
  for (const folder of folders) {
    try {
      mkdirSync(folder, { recursive: true });
      accessSync(folder, constants.W_OK);
      return folder;
    } catch {
      // The next one, then.
    }
  }
  throw new BuildError(`none of these folders can be written: ${folders.join(', ')}`);
}

/** Everything that decides what the addon is: sources, flags, libtorch. */
function planBuild(root, build, libtorch, env) {
  const folder = join(root, 'native');
  const files = existsSync(folder)
    ? readdirSync(folder, { recursive: true })
        .filter((name) => /\.(cc|cu|h|cuh)$/.test(name))
        .sort()
    : [];
  const cuda = findCuda(libtorch, env);
  const cudaSources = cuda ? files.filter((name) => name.endsWith('.cu')) : [];
  const kernelSources = cuda?.nvcc ? cudaSources : [];
  const kernels = kernelSources.length > 0;
  const sources = [...files.filter((name) => name.endsWith('.cc')), ...kernelSources].map((name) => join(folder, name));
  if (sources.length === 0) throw new BuildError(`there are no native sources in ${folder}.`);

  // -isystem keeps the warnings of torch's headers away; /usr/include is searched anyway and must not be named.
  const includes = [...libtorch.include, ...(cuda ? [cuda.include] : [])].filter((path) => path !== '/usr/include');
  const defines = [
    `-D_GLIBCXX_USE_CXX11_ABI=${usesNewStringAbi(libtorch.lib) ? 1 : 0}`,
    '-DNAPI_VERSION=9',
    ...(cuda ? ['-DATTUNE_CUDA=1'] : []),
    ...(kernels ? ['-DATTUNE_KERNELS=1'] : []),
  ];
  const shared = [
    `-std=c++${atLeast(libtorch.version, [2, 12]) ? 20 : 17}`,
    ...defines,
    ...includes.flatMap((path) => ['-isystem', path]),
  ];
  const compilers = {
    // Built where it runs, so for this CPU's own vector instructions (`cpuKind` keeps a shared cache honest).
    // OpenMP in at::parallel_for's inline part; the run time is the one that libtorch itself loads (see `link`).
    cc: [
      compiler(env),
      ...(sanitizing(env) ? ['-O1', '-g', '-fno-omit-frame-pointer', ...SANITIZE] : ['-O3']),
      '-march=native',
      '-fno-math-errno',
      '-fno-trapping-math',
      '-fPIC',
      '-fopenmp',
      '-Wall',
      '-Wextra',
      '-Wno-unknown-pragmas',
      ...shared,
    ],
    cu: kernels
      ? [
          cuda.nvcc,
          '-O3',
          '-Xcompiler',
          '-fPIC',
          '--expt-relaxed-constexpr',
          '--expt-extended-lambda',
          ...gencode(build, env),
          ...shared,
        ]
      : [],
  };
  const link = [
    compiler(env),
    ...(sanitizing(env) ? SANITIZE : []),
    '-shared',
    `-Wl,-rpath,${libtorch.lib}`,
    `-L${libtorch.lib}`,
    '-Wl,--no-as-needed',
    '-lc10',
    '-ltorch_cpu',
    '-ltorch',
    ...(cuda ? ['-lc10_cuda', '-ltorch_cuda', `-L${cuda.cudart.folder}`, `-l:${cuda.cudart.name}`] : []),
  ];

  const library = statSync(join(libtorch.lib, 'libtorch_cpu.so'));
  const distributed = distributedFlags(libtorch, cuda, library, build);
  const base = [libtorch.root, libtorch.version, library.size, Math.trunc(library.mtimeMs), process.arch, cpuKind()];
  // Objects are shared by every installation of this user: a second project with attune only links. So the key has what
  // decides the machine code (the source, the headers that it includes, the flags) and no path of this installation.
  const shelf = firstWritable([join(cacheFolder(env), 'objects'), build]);
  const nodeApi = nodeApiHeaders(root);
  const objects = sources.map((source) => {
    const inDist = dirname(source) === join(folder, 'dist');
    const command = source.endsWith('.cu') ? compilers.cu : [...compilers.cc, ...(inDist ? distributed : [])];
    const headers = headersOf(source, folder);
    const texts = [source, ...headers].map((path) => readFileSync(path));
    const name = `${basename(source)}-${digest(...base, ...command, ...texts)}.o`;
    // Includes are written from native/: "door/handles.h".
    const own = [folder, ...(inDist ? [join(folder, 'dist/gloo')] : []), nodeApi].map((path) => `-I${path}`);
    return { source, headers, command: [...command, ...own], object: join(shelf, name) };
  });
  const fingerprint = digest(...link, ...objects.map((each) => basename(each.object)));
  return {
    libtorch,
    cuda,
    kernels,
    kernelsLeftOut: cudaSources.length > kernelSources.length,
    folder,
    shelf,
    objects,
    link,
    fingerprint,
  };
}

/**
 * What the sources of native/dist are compiled with: c10d and NCCL, where this libtorch has them. Whether it has c10d is
 * read from its library, which is large: the answer is kept for as long as the library stays the same.
 */
function distributedFlags(libtorch, cuda, { size, mtimeMs }, build) {
  const kept = join(build, 'c10d.json');
  const library = `${libtorch.lib} ${size} ${Math.trunc(mtimeMs)}`;
  let c10d;
  try {
    const known = JSON.parse(readFileSync(kept, 'utf8'));
    if (known.library === library) c10d = known.c10d;
  } catch {
    // Not looked for yet.
  }
  c10d ??= hasC10d(libtorch);
  writeIfChanged(kept, JSON.stringify({ library, c10d }));
  const nccl = cuda && c10d ? findNccl(libtorch) : undefined;
  return [
    ...(c10d ? ['-DATTUNE_C10D=1'] : []),
    ...(nccl ? ['-DATTUNE_NCCL=1'] : []),
    ...(nccl && nccl !== '/usr/include' ? ['-isystem', nccl] : []),
  ];
}

/**
 * The headers of native/ that a source includes, directly or through others. Every `#include "…"` counts, whatever #if it
 * stands in: one header too many rebuilds too often, one too few would take a stale object for a fresh one.
 */
function headersOf(source, folder) {
  const found = new Set();
  const visit = (path) => {
    for (const [, name] of readFileSync(path, 'utf8').matchAll(/^[ \t]*#[ \t]*include[ \t]*"([^"]+)"/gm)) {
      const header = [join(dirname(path), name), join(folder, name)].find((candidate) => existsSync(candidate));
      if (header === undefined || found.has(header)) continue;
      found.add(header);
      visit(header);
    }
  };
  visit(source);
  return [...found].sort();
}

/** Holds the compiler's own list of what it read (-MMD) against ours, which the object's name is made of. */
function checkHeaders({ source, headers }, depfile, folder) {
  if (!existsSync(depfile)) return;
  const read = readFileSync(depfile, 'utf8')
    .replaceAll('\\\n', ' ')
    .split(/\s+/)
    .filter((path) => path.startsWith(`${folder}/`) && path !== source);
  rmSync(depfile);
  const unseen = read.filter((path) => !headers.includes(path));
  if (unseen.length > 0)
    throw new BuildError(
      `${basename(source)} includes ${unseen.join(', ')}, which scripts/native.mjs does not see: write the include as #include "folder/file.h"`,
    );
}

/** What -march=native sees: two machines with one home folder must not share objects if their CPUs differ. */
function cpuKind() {
  try {
    return readFileSync('/proc/cpuinfo', 'utf8').match(/^(?:flags|Features)\s*:.*$/m)?.[0] ?? '';
  } catch {
    return '';
  }
}

async function compile(plan, path, log) {
  const { objects, libtorch } = plan;
  const missing = objects.filter((each) => !existsSync(each.object));
  checkCompiler(plan.link[0]);
  log(
    `building the addon against libtorch ${libtorch.version} (${libtorch.root}): ${missing.length} of ${objects.length} files to compile`,
  );
  const waiting = [...missing];
  let done = 0;
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const temporary = `${next.object}.${process.pid}.o`;
      const depfile = `${temporary}.d`;
      const warnings = await call(
        [...next.command, '-MMD', '-MF', depfile, '-c', next.source, '-o', temporary],
        basename(next.source),
      );
      if (warnings !== '') log(`warnings in ${basename(next.source)}:\n${warnings}`);
      checkHeaders(next, depfile, plan.folder);
      renameSync(temporary, next.object);
      log(`compiled ${basename(next.source)} (${++done}/${missing.length})`);
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), missing.length) }, worker));
  const temporary = `${path}.${process.pid}`;
  const [linker, ...options] = plan.link;
  const split = options.indexOf('-Wl,--no-as-needed');
  const inputs = objects.map((each) => each.object);
  for (const object of inputs) touch(object);
  await call([linker, ...options.slice(0, split), '-o', temporary, ...inputs, ...options.slice(split)], 'linking');
  renameSync(temporary, path);
}

function call([command, ...args], what) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors += text;
    });
    child.on('error', (error) => reject(new BuildError(`${command} could not be started: ${error.message}`)));
    child.on('close', (status) => {
      if (status === 0) return resolve(errors.trim());
      // The first error is the cause; what follows it is mostly its echo through torch's templates.
      const lines = errors.trimEnd().split('\n');
      const first = Math.max(0, lines.findIndex((line) => /error[: ]/.test(line)) - 2);
      const shown =
        lines.length - first > 40 ? [...lines.slice(first, first + 25), '…', ...lines.slice(-14)] : lines.slice(first);
      reject(new BuildError(`${what} failed (${basename(command)} ended with ${status}):\n${shown.join('\n')}`));
    });
  });
}

/** One build at a time per fingerprint; a lock whose owner is gone, or that nobody has touched for a minute, is taken over. */
async function withLock(lock, log, work) {
  let told = false;
  while (true) {
    try {
      writeFileSync(lock, JSON.stringify({ pid: process.pid, host: hostname() }), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      if (isStale(lock)) {
        rmSync(lock, { force: true });
        continue;
      }
      if (!told) log('another process is building the addon: waiting for it');
      told = true;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  const heartbeat = setInterval(() => touch(lock), 5_000);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    rmSync(lock, { force: true });
  }
}

function isStale(lock) {
  try {
    if (Date.now() - statSync(lock).mtimeMs > 60_000) return true;
    const owner = JSON.parse(readFileSync(lock, 'utf8'));
    if (owner.host !== hostname()) return false;
    process.kill(owner.pid, 0);
    return false;
  } catch (error) {
    // ESRCH: the owner is dead. ENOENT: it has just finished. Half-written JSON: it has just begun.
    return error.code === 'ESRCH';
  }
}

function touch(path) {
  try {
    utimesSync(path, new Date(), new Date());
  } catch {
    // It went away under us: a lock is not needed for the atomic rename, and a missing object fails in the link.
  }
}

/** Addons and objects that nobody has used in a build for a week belong to sources long changed. */
function prune(build, keep) {
  const old = readdirSync(build)
    .filter((name) => /\.(o|node)$/.test(name) && join(build, name) !== keep)
    .map((name) => ({ path: join(build, name), age: Date.now() - statSync(join(build, name)).mtimeMs }))
    .filter((file) => file.age > 7 * 24 * 3600 * 1000);
  for (const file of old) rmSync(file.path, { force: true });
}

/** Only the header files of Node's C interface are needed, which are the same for every Node: no headers of this one. */
function nodeApiHeaders(root) {
  const folder = findPackage(root, 'node-api-headers');
  if (!folder) throw new BuildError(`the package node-api-headers is missing\nRun npm install in ${root}.`);
  return join(folder, 'include');
}

function compiler(env) {
  return env.CXX || 'g++';
}

function checkCompiler(command) {
  const answer = spawnSync(command, ['--version'], { encoding: 'utf8' });
  if (answer.error)
    throw new BuildError(`there is no C++ compiler (${command})\nOn Debian or Ubuntu, as root: apt-get install -y g++`);
}

/**
 * Machine code for the GPU that is here. nvidia-smi can take a second, so its answer is kept for as long as the driver
 * reports the same cards. ATTUNE_CUDA_ARCH (such as "80" or "90a") overrides it.
 */
function gencode(build, env) {
  const kept = join(build, 'gpu.json');
  const cards = readCards();
  let arch = env.ATTUNE_CUDA_ARCH;
  if (!arch) {
    try {
      const known = JSON.parse(readFileSync(kept, 'utf8'));
      if (known.cards === cards) arch = known.arch;
    } catch {
      // Not asked yet.
    }
  }
  if (!arch) {
    const answer = spawnSync('nvidia-smi', ['--query-gpu=compute_cap', '--format=csv,noheader'], { encoding: 'utf8' });
    arch =
      /^(\d+)\.(\d+)/
        .exec(answer.stdout ?? '')
        ?.slice(1)
        .join('') ?? '90';
    writeIfChanged(kept, JSON.stringify({ cards, arch }));
  }
  return ['-gencode', `arch=compute_${arch},code=sm_${arch}`];
}

function readCards() {
  const folder = '/proc/driver/nvidia/gpus';
  try {
    return readdirSync(folder)
      .map((name) => readFileSync(join(folder, name, 'information'), 'utf8'))
      .join('');
  } catch {
    return '';
  }
}

function writeIfChanged(path, text) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, text);
  renameSync(temporary, path);
}

function digest(...parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(typeof part === 'number' ? String(part) : part).update('\0');
  return hash.digest('hex').slice(0, 16);
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const started = Date.now();
  try {
    const { built, ...record } = await ensureAddon({ log: (line) => console.error(line) });
    if (process.argv.includes('--quiet')) process.exit();
    console.log(`${built ? 'built' : 'up to date'} in ${((Date.now() - started) / 1000).toFixed(1)} s`);
    console.log(JSON.stringify(record, null, 2));
  } catch (error) {
    if (!(error instanceof BuildError || error instanceof LibtorchError)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}
