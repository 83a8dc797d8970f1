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
import { existsSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { availableParallelism, constants } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  BuildError,
  canRead,
  canWrite,
  digest,
  firstWritable,
  prune,
  touch,
  withLock,
  writeIfChanged,
} from './build-files.mjs';
import { planBuild, sanitizing } from './build-plan.mjs';
import { cacheFolder, findLibtorch, LibtorchError } from './libtorch.mjs';
import { precompiled } from './precompiled.mjs';

export { BuildError } from './build-files.mjs';
export { findLibtorch, LibtorchError } from './libtorch.mjs';

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));

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
  const folders = buildFolders(root, env);
  const plan = planBuild(root, folders, libtorch, env);
  const name = `attune-${plan.fingerprint}.node`;
  const build = buildFolder(folders, name);
  const path = join(build, name);
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
        const shelf = firstWritable([join(cacheFolder(env), 'objects'), build]);
        await compile(plan, shelf, path, say);
        built = true;
        for (const folder of new Set([build, shelf])) prune(folder, path);
      }),
    );
  }
  // Another user's build is used as it is.
  if (!canWrite(build)) return { ...record, built };
  writeIfChanged(join(build, 'compile_commands.json'), `${JSON.stringify(compileCommands(root, plan), null, 1)}\n`);
  // addon.json names the one in use; the other stays true when two libtorches are used in turn.
  const text = `${JSON.stringify(record, null, 2)}\n`;
  for (const name of ['addon.json', `attune-${plan.fingerprint}.json`]) writeIfChanged(join(build, name), text);
  return { ...record, built };
}

/** build/ beside the sources, and a folder of the cache for where the package's own cannot be written (a shared install). */
function buildFolders(root, env) {
  const folders = [join(root, 'build'), join(cacheFolder(env), 'build', digest(root))];
  return sanitizing(env) ? folders.map((folder) => join(folder, 'sanitize')) : folders;
}

/** Where the addon lies, or is to be built. A folder that can only be read will do for one that is there. */
function buildFolder(folders, name) {
  const ready = folders.find((folder) => canRead(join(folder, name)));
  const found = ready === folders[0] ? ready : (firstWritable(folders) ?? ready);
  if (found !== undefined) return found;
  throw new BuildError(`the addon is not built yet for this machine, and none of these folders can be written: ${folders.join(', ')}
Run attune doctor once as a user who can write the first, or set XDG_CACHE_HOME to a folder that you can write.`);
}

/** What clangd and other tools read to know how each source is compiled. */
function compileCommands(root, { objects }) {
  return objects.map(({ source, command }) => ({
    directory: root,
    file: source,
    arguments: [...command, '-c', source],
  }));
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

async function compile(plan, shelf, path, log) {
  const { libtorch } = plan;
  const objects = plan.objects.map((each) => ({ ...each, object: join(shelf, each.name) }));
  const missing = objects.filter((each) => !existsSync(each.object));
  checkCompiler(plan.link[0]);
  log(
    `building the addon against libtorch ${libtorch.version} (${libtorch.root}): ${missing.length} of ${objects.length} files to compile`,
  );
  const cores = Math.min(availableParallelism(), missing.length);
  const shared = precompiled(missing, { build: dirname(path), cores, call });
  let done = 0;
  let fault;
  const compileOne = async (each) => {
    const temporary = `${each.object}.${process.pid}.o`;
    const depfile = `${temporary}.d`;
    const given = await shared.optionsFor(each);
    if (fault) return;
    const make = (options) =>
      call(
        [...each.command, ...options, '-MMD', '-MF', depfile, '-c', each.source, '-o', temporary],
        basename(each.source),
      );
    const warnings = await make(given).catch((error) => {
      // GCC before 13 needs them at the address of memory where they were made, which some systems do not give it ("had to relocate PCH").
      if (given.length > 0 && /\bPCH\b/.test(error.message)) return make([]);
      throw error;
    });
    if (warnings !== '') log(`warnings in ${basename(each.source)}:\n${warnings}`);
    checkHeaders(each, depfile, plan.folder);
    renameSync(temporary, each.object);
    log(`compiled ${basename(each.source)} (${++done}/${missing.length})`);
  };
  // Who needs no shared headers is compiled while they are.
  const sources = missing.toSorted((a, b) => Number(shared.has(a)) - Number(shared.has(b)));
  const waiting = [...shared.make, ...sources.map((each) => () => compileOne(each))];
  const worker = async () => {
    for (let work = waiting.shift(); work && !fault; work = waiting.shift())
      await work().catch((error) => {
        fault ??= error;
        for (const child of running) end(child.pid);
      });
  };
  await Promise.all(Array.from({ length: cores }, worker));
  shared.done();
  if (fault) throw fault;
  const temporary = `${path}.${process.pid}`;
  const [linker, ...options] = plan.link;
  const split = options.indexOf('-Wl,--no-as-needed');
  const inputs = objects.map((each) => each.object);
  for (const object of inputs) touch(object);
  const link = (before, libraries) =>
    call(
      [linker, ...before, ...options.slice(0, split), '-o', temporary, ...inputs, options[split], ...libraries].concat(
        options.slice(split + 1),
      ),
      'linking',
    );
  if (!(await linkSparing(plan, dirname(path), temporary, link, log))) await link([], []);
  renameSync(temporary, path);
}

/** Links with empty libraries; whether there are any, and the addon can be loaded with them. */
async function linkSparing({ spared, link: [linker] }, folder, addon, link, log) {
  if (spared.length === 0) return false;
  try {
    await link(['-Wl,-rpath,$ORIGIN/empty'], await emptyLibraries(linker, spared, join(folder, 'empty')));
    if (canLoad(addon)) return true;
  } catch {
    // They only make a start shorter.
  }
  log('linked with all libraries that libtorch names');
  return false;
}

/** Libraries with nothing in them. Whoever is loaded first under a name is it: the addon names them before libtorch does. */
function emptyLibraries(linker, names, folder) {
  mkdirSync(folder, { recursive: true });
  return Promise.all(
    names.map(async (name) => {
      const path = join(folder, name);
      const temporary = `${path}.${process.pid}`;
      await call(
        [linker, '-shared', '-nostdlib', `-Wl,-soname,${name}`, '-x', 'c', '/dev/null', '-o', temporary],
        name,
      );
      renameSync(temporary, path);
      return path;
    }),
  );
}

/** Whether every symbol that the addon and its libraries use is found. */
function canLoad(path) {
  const program = `process.dlopen({ exports: {} }, process.argv[1], ${constants.dlopen.RTLD_NOW})`;
  const env = { ...process.env, NODE_OPTIONS: '' };
  return spawnSync(process.execPath, ['-e', program, path], { stdio: 'ignore', env, timeout: 60_000 }).status === 0;
}

/** Compilers at work: one that fails ends the others. */
const running = new Set();

/** Ends a compiler and the programs that it has called, which do the work and would go on without it. */
function end(pid) {
  const called = calledBy(pid);
  try {
    process.kill(pid);
  } catch {
    // It has ended already.
  }
  for (const each of called) end(each);
}

/** The processes that this one has started; none where the system does not tell. */
function calledBy(pid) {
  try {
    return (readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').match(/\d+/g) ?? []).map(Number);
  } catch {
    return [];
  }
}

function call([command, ...args], what) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    running.add(child);
    child.on('exit', () => running.delete(child));
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

function checkCompiler(command) {
  const answer = spawnSync(command, ['--version'], { encoding: 'utf8' });
  if (answer.error)
    throw new BuildError(`there is no C++ compiler (${command})\nOn Debian or Ubuntu, as root: apt-get install -y g++`);
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
