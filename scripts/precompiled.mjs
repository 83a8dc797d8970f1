/**
 * The headers of libtorch that most sources begin with, compiled once for all of them: half of a first build goes into
 * reading them again and again. They are 300 MB for each set of flags, and go when the build is done.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const HEADERS = ['ATen/ATen.h', 'torch/library.h', 'torch/csrc/autograd/custom_function.h'];
/** Compiling them takes as long as they save in three sources, and the other cores may have to wait for it. */
const SOURCES_PER_CORE = 4;
const ROOM = 2e9;
const SUFFIX = '.headers';

/**
 * The headers for each set of flags that enough sources have: `make` compiles one of them, `optionsFor` says what the
 * compiler is told for a source (once its headers are there), `done` deletes them.
 * @param {readonly { source: string, headers: readonly string[], command: readonly string[] }[]} missing
 * @param {{ build: string, cores: number, call: (command: string[], what: string) => Promise<string> }} options
 */
export function precompiled(missing, { build, cores, call }) {
  sweep(build);
  const folder = join(build, `${process.pid}${SUFFIX}`);
  const groups = new Map();
  if (understandsGcc(missing[0]?.command[0]) && hasRoom(build))
    for (const each of missing.filter(readsLibtorch)) {
      const flags = each.command.join('\0');
      groups.set(flags, [...(groups.get(flags) ?? []), each]);
    }
  const users = new Map();
  const make = [...groups.values()]
    .filter((sources) => sources.length >= SOURCES_PER_CORE * cores)
    .map((sources, i) => {
      const path = join(folder, `libtorch-${i}.h`);
      let tell;
      const made = new Promise((resolve) => {
        tell = resolve;
      });
      for (const each of sources) users.set(each, { made, path });
      return async () => tell(await tryMake(path, sources[0].command, folder, call));
    });
  return {
    make,
    has: (each) => users.has(each),
    async optionsFor(each) {
      const { made, path } = users.get(each) ?? {};
      return (await made) ? ['-include', path] : [];
    },
    done: () => remove(folder),
  };
}

/** Whether they are there now. They only save time: a source can do without. */
async function tryMake(path, command, folder, call) {
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, HEADERS.map((name) => `#include <${name}>\n`).join(''));
    await call([...command, '-x', 'c++-header', path, '-o', `${path}.gch`], 'libtorch.h');
    return existsSync(`${path}.gch`);
  } catch {
    remove(`${path}.gch`);
    return false;
  }
}

/** What is in the way is not worth a build. */
function remove(path) {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    // It goes with a later build.
  }
}

/** What builds left that were killed. */
function sweep(build) {
  for (const name of readdirSync(build).filter((each) => each.endsWith(SUFFIX))) {
    const { mtimeMs = 0 } = statSync(join(build, name), { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > 3600_000) remove(join(build, name));
  }
}

const readsLibtorch = ({ source, headers }) =>
  source.endsWith('.cc') && [source, ...headers].some((path) => readFileSync(path, 'utf8').includes('<ATen/ATen.h>'));

/** Clang has another kind of such headers. */
function understandsGcc(compiler) {
  if (compiler === undefined) return false;
  return /Free Software Foundation/.test(spawnSync(compiler, ['--version'], { encoding: 'utf8' }).stdout ?? '');
}

function hasRoom(build) {
  try {
    const { bavail, bsize } = statfsSync(build);
    return bavail * bsize > ROOM;
  } catch {
    return false;
  }
}
