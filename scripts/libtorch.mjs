/**
 * Which libtorch this machine has, first that works: ATTUNE_LIBTORCH (a folder) → a torch that python3 can import →
 * the system's → a cache folder. Nothing is loaded or imported to find out, so a broken one costs nothing.
 *
 *     const libtorch = findLibtorch();   // { root, include, lib, version, cuda, source, … } or undefined
 *
 * Plain JavaScript for Node 20 without packages: it runs before anything is installed.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

/** Debian 12's version: the oldest that the shim is built and tested against. */
export const OLDEST = [1, 13];

/** Thrown where a libtorch was asked for by name and cannot be used: falling back would hide the mistake. */
export class LibtorchError extends Error {
  name = 'LibtorchError';
}

/**
 * @typedef {object} Libtorch
 * @property {string} root      the folder that was found
 * @property {string[]} include header folders, in order
 * @property {string} lib       the folder of libtorch_cpu.so
 * @property {string} version   such as "2.13.0+cpu" or "1.13.0"
 * @property {boolean} cuda     whether this libtorch has CUDA inside
 * @property {'environment' | 'python' | 'system' | 'cache'} source
 */

/**
 * @param {object} [options]
 * @param {NodeJS.ProcessEnv} [options.env]
 * @param {string} [options.fileRoot] stands for `/` when the system's folders are searched (tests give their own)
 * @param {(env: NodeJS.ProcessEnv) => string | undefined} [options.pythonTorch] the folder of python3's torch
 * @param {string} [options.arch]
 * @returns {Libtorch | undefined}
 */
export function findLibtorch(options = {}) {
  const { env = process.env, fileRoot = '/', pythonTorch = folderOfPythonTorch, arch = process.arch } = options;
  if (env.ATTUNE_LIBTORCH) {
    const folder = env.ATTUNE_LIBTORCH;
    const found = fromFolder(folder, 'environment');
    if (found) return found;
    throw new LibtorchError(`ATTUNE_LIBTORCH=${folder} cannot be used: ${faultOfFolder(folder)}
Give the folder of a libtorch archive or of a torch wheel (the one that holds lib/ and include/), or unset it.`);
  }
  const python = pythonTorch(env);
  return (
    (python && fromFolder(python, 'python')) ||
    fromSystem(fileRoot, arch) ||
    fromFolder(join(cacheFolder(env), 'libtorch'), 'cache')
  );
}

/** Where attune keeps what it fetched or built outside of its own folder. */
export function cacheFolder(env = process.env) {
  return join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), '.cache'), 'attune');
}

/** [major, minor] of a version text, or undefined. */
export function majorMinor(version) {
  const match = /^(\d+)\.(\d+)/.exec(version ?? '');
  return match ? [Number(match[1]), Number(match[2])] : undefined;
}

export function atLeast(version, [major, minor]) {
  const found = majorMinor(version);
  return found !== undefined && (found[0] > major || (found[0] === major && found[1] >= minor));
}

function fromFolder(folder, source) {
  if (faultOfFolder(folder)) return undefined;
  const root = realpathSync(folder);
  const lib = join(root, 'lib');
  return {
    root,
    include: [join(root, 'include'), join(root, 'include/torch/csrc/api/include')],
    lib,
    version: versionOf(root, join(root, 'include')),
    cuda: existsSync(join(lib, 'libtorch_cuda.so')),
    source,
  };
}

/** What keeps a folder from being a libtorch, or undefined when nothing does. */
function faultOfFolder(folder) {
  if (!isFolder(folder)) return 'there is no such folder';
  if (!existsSync(join(folder, 'lib/libtorch_cpu.so'))) return 'it has no lib/libtorch_cpu.so';
  if (!existsSync(join(folder, 'include/torch/csrc/api/include/torch/torch.h')))
    return 'its include/ has no torch headers';
  const version = versionOf(folder, join(folder, 'include'));
  if (!version) return 'its version cannot be read';
  if (!atLeast(version, OLDEST)) return `it is libtorch ${version}, and ${OLDEST.join('.')} is the oldest that works`;
  return undefined;
}

/** Debian's layout: headers under /usr/include/torch, libraries under /usr/lib/<triplet>. */
function fromSystem(fileRoot, arch) {
  const triplet = `${{ x64: 'x86_64', arm64: 'aarch64' }[arch] ?? arch}-linux-gnu`;
  for (const prefix of ['usr/local', 'usr']) {
    const include = join(fileRoot, prefix, 'include');
    if (!existsSync(join(include, 'torch/csrc/api/include/torch/torch.h'))) continue;
    for (const name of [join('lib', triplet), 'lib64', 'lib']) {
      const lib = join(fileRoot, prefix, name);
      if (!existsSync(join(lib, 'libtorch_cpu.so'))) continue;
      const version = versionOf(undefined, include);
      if (!version || !atLeast(version, OLDEST)) continue;
      return {
        root: join(fileRoot, prefix),
        include: [include, join(include, 'torch/csrc/api/include')],
        lib,
        version,
        cuda: existsSync(join(lib, 'libtorch_cuda.so')),
        source: 'system',
      };
    }
  }
  return undefined;
}

/** A wheel says it in version.py, an archive in build-version, and every one in its headers (which lack the "+cu130"). */
function versionOf(root, include) {
  if (root) {
    const wheel = /__version__\s*=\s*['"]([^'"]+)['"]/.exec(read(join(root, 'version.py')));
    if (wheel) return wheel[1];
    const archive = read(join(root, 'build-version')).trim();
    if (majorMinor(archive)) return archive;
  }
  for (const header of ['torch/headeronly/version.h', 'torch/csrc/api/include/torch/version.h']) {
    const text = read(join(include, header));
    const part = (name) => new RegExp(`#define TORCH_VERSION_${name} (\\d+)`).exec(text)?.[1];
    if (part('MAJOR')) return `${part('MAJOR')}.${part('MINOR')}.${part('PATCH') ?? 0}`;
  }
  return undefined;
}

/** Asks python3 where its torch is without importing it: importing takes seconds and can fail for reasons of its own. */
function folderOfPythonTorch(env) {
  // An empty entry of sys.path is the current folder, where a folder "torch" would be taken for the package.
  const script =
    'import sys, importlib.util as u; sys.path = [p for p in sys.path if p]; s = u.find_spec("torch"); ' +
    'print(s.submodule_search_locations[0] if s and s.origin else "")';
  const answer = spawnSync('python3', ['-c', script], { env, encoding: 'utf8', timeout: 20_000 });
  return answer.status === 0 ? answer.stdout.trim() || undefined : undefined;
}

/**
 * The CUDA toolkit that goes with a CUDA libtorch: { include, lib, cudart, nvcc } or undefined. A wheel's toolkit parts
 * lie beside it in site-packages/nvidia; those have no nvcc, and libcudart only under its full name.
 */
export function findCuda(libtorch, env = process.env) {
  if (!libtorch.cuda) return undefined;
  const nvccOnPath = (env.PATH ?? '').split(':').find((folder) => folder && existsSync(join(folder, 'nvcc')));
  const site = dirname(libtorch.root);
  const homes = [
    env.CUDA_HOME,
    env.CUDA_PATH,
    '/usr/local/cuda',
    nvccOnPath && dirname(dirname(realpathSync(join(nvccOnPath, 'nvcc')))),
    ...children(join(site, 'nvidia')).filter((folder) => /\/(cu\d+|cuda_runtime)$/.test(folder)),
  ].filter(Boolean);
  const home = homes.find((folder) => cudaHeaders(folder));
  if (!home) return undefined;
  const libraries = homes.flatMap((folder) =>
    ['lib64', 'lib', 'targets/x86_64-linux/lib', 'targets/sbsa-linux/lib'].map((name) => join(folder, name)),
  );
  let cudart;
  for (const folder of libraries) {
    const name = children(folder)
      .map((path) => path.slice(folder.length + 1))
      .filter((file) => /^libcudart\.so(\.\d+)*$/.test(file))
      .sort()[0];
    if (name) {
      cudart = { folder, name };
      break;
    }
  }
  if (!cudart) return undefined;
  const nvcc = [...homes.map((folder) => join(folder, 'bin/nvcc')), nvccOnPath && join(nvccOnPath, 'nvcc')].find(
    (path) => path && existsSync(path),
  );
  return { include: cudaHeaders(home), cudart, nvcc };
}

/** Whether this libtorch was built with c10d and Gloo: some builds leave both out, and keep the headers all the same. */
export function hasC10d({ include, lib }) {
  const headers = include.some((folder) =>
    existsSync(join(folder, 'torch/csrc/distributed/c10d/ProcessGroupGloo.hpp')),
  );
  return headers && readFileSync(join(lib, 'libtorch_cpu.so')).includes('N4c10d16ProcessGroupGlooE');
}

/** The folder of nccl.h, which c10d's NCCL backend needs: a wheel's lies beside it in site-packages/nvidia. */
export function findNccl({ root, include }) {
  const beside = [join(dirname(root), 'nvidia/nccl/include'), '/usr/include', '/usr/local/cuda/include'];
  const header = include.some((folder) => existsSync(join(folder, 'torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp')));
  return header ? beside.find((folder) => existsSync(join(folder, 'nccl.h'))) : undefined;
}

function cudaHeaders(home) {
  return ['include', 'targets/x86_64-linux/include', 'targets/sbsa-linux/include']
    .map((name) => join(home, name))
    .find((folder) => existsSync(join(folder, 'cuda_runtime.h')));
}

/**
 * Which C++ string ABI the libraries were built with (torch wheels up to 2.6 used the old one). A function of c10 that
 * takes a std::string has it in its mangled name: "Ss" is the old.
 */
export function usesNewStringAbi(lib) {
  return !readFileSync(join(lib, 'libc10.so')).includes('torchCheckFailEPKcS2_jRKSs');
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function isFolder(path) {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function children(folder) {
  return isFolder(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
}
