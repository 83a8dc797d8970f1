/**
 * The headers of libtorch that most sources begin with, compiled once for all of them: half of a first build goes into
 * reading them again and again. They are 300 MB for each set of flags, and go when the build is done.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const HEADERS = ['ATen/ATen.h', 'torch/library.h', 'torch/csrc/autograd/custom_function.h'];
/** Compiling them takes as long as they save in three sources, and the other cores may have to wait for it. */
const SOURCES_PER_CORE = 4;
const ROOM = 2e9;

/**
 * The headers for each set of flags that enough sources have: `make` compiles one of them, `optionsFor` says what the
 * compiler is told for a source (once its headers are there), `done` deletes them.
 * @param {readonly { source: string, headers: readonly string[], command: readonly string[] }[]} missing
 * @param {{ folder: string, cores: number, call: (command: string[], what: string) => Promise<string> }} options
 */
export function precompiled(missing, { folder, cores, call }) {
  const groups = new Map();
  if (understandsGcc(missing[0]?.command[0]) && hasRoom(folder))
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
    done: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Whether they are there now. They only save time: a source can do without. */
async function tryMake(path, command, folder, call) {
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, HEADERS.map((name) => `#include <${name}>\n`).join(''));
    await call([...command, '-x', 'c++-header', path, '-o', `${path}.gch`], 'libtorch.h');
    return true;
  } catch {
    rmSync(folder, { recursive: true, force: true });
    return false;
  }
}

const readsLibtorch = ({ source, headers }) =>
  source.endsWith('.cc') && [source, ...headers].some((path) => readFileSync(path, 'utf8').includes('<ATen/ATen.h>'));

/** Clang has another kind of such headers. */
function understandsGcc(compiler) {
  if (compiler === undefined) return false;
  return /Free Software Foundation/.test(spawnSync(compiler, ['--version'], { encoding: 'utf8' }).stdout ?? '');
}

function hasRoom(folder) {
  try {
    const { bavail, bsize } = statfsSync(join(folder, '..'));
    return bavail * bsize > ROOM;
  } catch {
    return false;
  }
}
