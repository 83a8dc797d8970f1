/** What the addon is made of on this machine: sources, compilers, flags, and the name that these give it. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { BuildError, digest, firstWritable, writeIfChanged } from './build-files.mjs';
import { atLeast, findCuda, findNccl, hasC10d, usesNewStringAbi } from './libtorch.mjs';
import { findPackage } from './node24.mjs';

/** `vptr` would ask libtorch for type information that its binaries keep to themselves. */
const SANITIZE = ['-fsanitize=address,undefined', '-fno-sanitize=vptr', '-fno-sanitize-recover=undefined'];

/** A build with AddressSanitizer and UBSan has a folder of its own: addon.json must not name it for everyday use. */
export function sanitizing(env) {
  return env.ATTUNE_SANITIZE === '1';
}

/**
 * Everything that decides what the addon is: sources, flags, libtorch. `folders` are those that it may lie in; none has to
 * be there, or writable.
 */
export function planBuild(root, folders, libtorch, env) {
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
    // What includes cpu/fused.h says where a product is fused with a sum, and the compiler does it nowhere else.
    cc: (saysFused) => [
      compiler(env),
      ...(sanitizing(env) ? ['-O1', '-g', '-fno-omit-frame-pointer', ...SANITIZE] : ['-O3']),
      '-march=native',
      '-fno-math-errno',
      '-fno-trapping-math',
      ...(saysFused ? ['-ffp-contract=off'] : []),
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
          ...gencode(folders, env),
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
  const spares = !sanitizing(env) && env.ATTUNE_EMPTY_LIBRARIES !== '0';
  const spared = spares ? sparedLibraries(libtorch, library, folders) : [];
  const distributed = distributedFlags(libtorch, cuda, library, folders);
  const base = [libtorch.root, libtorch.version, library.size, Math.trunc(library.mtimeMs), process.arch, cpuKind()];
  // Objects are shared by every installation of this user: a second project with attune only links. So the key has what
  // decides the machine code (the source, the headers that it includes, the flags) and no path of this installation.
  const nodeApi = nodeApiHeaders(root);
  const objects = sources.map((source) => {
    const inDist = dirname(source) === join(folder, 'dist');
    const headers = headersOf(source, folder);
    const cc = compilers.cc(headers.includes(join(folder, 'cpu/fused.h')));
    const command = source.endsWith('.cu') ? compilers.cu : [...cc, ...(inDist ? distributed : [])];
    const texts = [source, ...headers].map((path) => readFileSync(path));
    const name = `${basename(source)}-${digest(...base, ...command, ...texts)}.o`;
    // Includes are written from native/: "door/handles.h".
    const own = [folder, ...(inDist ? [join(folder, 'dist/gloo')] : []), nodeApi].map((path) => `-I${path}`);
    return { source, headers, command: [...command, ...own], name };
  });
  const fingerprint = digest(...link, spares ? 'spares' : '', ...objects.map((each) => each.name));
  return {
    libtorch,
    cuda,
    kernels,
    kernelsLeftOut: cudaSources.length > kernelSources.length,
    folder,
    objects,
    link,
    spared,
    fingerprint,
  };
}

/**
 * What the sources of native/dist are compiled with: c10d and NCCL, where this libtorch has them. Whether it has c10d is
 * read from its library, which is large: the answer is kept for as long as the library stays the same.
 */
function distributedFlags(libtorch, cuda, { size, mtimeMs }, folders) {
  const library = `${libtorch.lib} ${size} ${Math.trunc(mtimeMs)}`;
  const c10d =
    known(folders, 'c10d.json', (kept) => (kept.library === library ? kept.c10d : undefined)) ?? hasC10d(libtorch);
  remember(folders, 'c10d.json', { library, c10d });
  const nccl = cuda && c10d ? findNccl(libtorch) : undefined;
  return [
    ...(c10d ? ['-DATTUNE_C10D=1'] : []),
    ...(nccl ? ['-DATTUNE_NCCL=1'] : []),
    ...(nccl && nccl !== '/usr/include' ? ['-isystem', nccl] : []),
  ];
}

/**
 * Debian's libtorch names libraries for pictures and films that it calls nothing of. With what they need in turn they are 250, and
 * half of a start goes into loading them: empty ones of their names take their places (see native.mjs). A process that loads the real ones itself,
 * later, would get the empty ones: ATTUNE_EMPTY_LIBRARIES=0 builds without (docs/troubleshooting.md).
 */
function sparedLibraries({ lib }, { size, mtimeMs }, folders) {
  const library = `${lib} ${size} ${Math.trunc(mtimeMs)}`;
  const kept = known(folders, 'spared.json', (each) => (each.library === library ? each.spared : undefined));
  if (kept !== undefined) return kept;
  const { status, stdout } = spawnSync('readelf', ['-d', join(lib, 'libtorch_cpu.so')], { encoding: 'utf8' });
  if (status !== 0) return [];
  const needed = [...stdout.matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name);
  const spared = needed.filter((name) => /^lib(opencv_\w+|avcodec|avformat|avutil|swscale|swresample)\.so/.test(name));
  remember(folders, 'spared.json', { library, spared });
  return spared;
}

/** An answer that an earlier build wrote down, in the first folder that has one which still holds. */
function known(folders, name, answer) {
  for (const folder of folders) {
    try {
      const found = answer(JSON.parse(readFileSync(join(folder, name), 'utf8')));
      if (found !== undefined) return found;
    } catch {
      // Not asked yet, or not to be read.
    }
  }
  return undefined;
}

/** Writes an answer down where that is possible; elsewhere it is asked for again. */
function remember(folders, name, answer) {
  const text = JSON.stringify(answer);
  if (known(folders, name, (kept) => JSON.stringify(kept) === text || undefined)) return;
  const folder = firstWritable(folders);
  if (folder !== undefined) writeIfChanged(join(folder, name), text);
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

/** What -march=native sees: two machines with one home folder must not share objects if their CPUs differ. */
function cpuKind() {
  try {
    return readFileSync('/proc/cpuinfo', 'utf8').match(/^(?:flags|Features)\s*:.*$/m)?.[0] ?? '';
  } catch {
    return '';
  }
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

/**
 * Machine code for the GPU that is here. nvidia-smi can take a second, so its answer is kept for as long as the driver
 * reports the same cards. ATTUNE_CUDA_ARCH (such as "80" or "90a") overrides it.
 */
function gencode(folders, env) {
  const cards = readCards();
  const kept = () => known(folders, 'gpu.json', (each) => (each.cards === cards ? each.arch : undefined));
  let arch = env.ATTUNE_CUDA_ARCH || kept();
  if (!arch) {
    const answer = spawnSync('nvidia-smi', ['--query-gpu=compute_cap', '--format=csv,noheader'], { encoding: 'utf8' });
    arch =
      /^(\d+)\.(\d+)/
        .exec(answer.stdout ?? '')
        ?.slice(1)
        .join('') ?? '90';
    remember(folders, 'gpu.json', { cards, arch });
  }
  const own = arch === '90' ? '90a' : arch; // with what only this architecture has: copies to several blocks at once
  return ['-gencode', `arch=compute_${own},code=sm_${own}`];
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
