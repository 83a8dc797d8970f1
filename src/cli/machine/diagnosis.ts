/**
 * Finds problems in the doctor's findings: pure functions, so that other machines can be tested.
 *
 *     const problems = diagnose(findings);   // [{ severity: 'warning', what: 'BLAS …', remedy: 'apt-get …' }]
 */
import type { Addon } from './engine.ts';
import type { Cpu, HubCache, Memory } from './machine.ts';
import type { EngineFacts } from './probe.ts';

export interface Findings {
  node: string;
  arch: string;
  cpu: Cpu;
  memory: Memory;
  hub: HubCache;
  nvidiaCard: boolean;
  addon?: Addon;
  /** Why the addon could not be built: the fault in the first line, the remedy in the rest. */
  buildError?: string;
  /** Why it could not be loaded. */
  engineError?: string;
  engine?: EngineFacts;
  /** The kernel family that OpenBLAS chose. */
  openblasCore?: string;
  /** OMP_NUM_THREADS or ATTUNE_THREADS, if set. */
  threadsAsked?: number;
  /** Processes of one training that share this machine's cores, where this is one of them. */
  ranks?: number;
}

export interface Problem {
  /** `error`: attune cannot run; `warning`: it runs, but does not use all that the machine offers. */
  severity: 'error' | 'warning';
  what: string;
  remedy: string;
}

export interface Blas {
  name: 'OpenBLAS' | 'MKL' | 'reference BLAS' | 'BLIS' | 'NVPL' | 'Arm Performance Libraries' | 'unknown';
  path?: string;
  core?: string;
  fits?: boolean;
}

/** The BLAS that computes matrix products. Debian's libtorch uses libblas.so.3, whatever is loaded after it. */
export function blasOf(findings: Findings): Blas {
  const { engine, openblasCore: core, cpu } = findings;
  const libraries = engine?.libraries ?? [];
  const generic = libraries.find((path) => /\/libblas[^/]*$/.test(path));
  if (generic && !/openblas|mkl|blis/.test(generic)) return { name: 'reference BLAS', path: generic, fits: false };
  const openblas =
    libraries.find((path) => /\/libopenblas[^/]*$/.test(path)) ?? libraries.find((path) => path.includes('openblas'));
  if (openblas)
    return { name: 'OpenBLAS', path: openblas, core, fits: core === undefined ? undefined : coreFits(core, cpu) };
  const names = { libmkl: 'MKL', libnvpl: 'NVPL', libarmpl: 'Arm Performance Libraries', libblis: 'BLIS' } as const;
  for (const [file, name] of Object.entries(names)) {
    const path = libraries.find((library) => library.includes(`/${file}`));
    if (path) return { name: name as Blas['name'], path, fits: true };
  }
  // x86 wheels have MKL inside libtorch_cpu.so; only the build's description shows it.
  if (/BLAS_INFO=mkl|Math Kernel Library/.test(engine?.config ?? '')) return { name: 'MKL', fits: true };
  return { name: 'unknown' };
}

/** Whether OpenBLAS's kernels fit the CPU. Names as in its CPU detection, compared without case. */
function coreFits(core: string, cpu: Cpu): boolean {
  const name = core.toLowerCase();
  if (cpu.features.avx512) return ['skylakex', 'cooperlake', 'sapphirerapids'].includes(name);
  if (cpu.features.avx2) return ['haswell', 'zen', 'excavator', 'skylakex'].includes(name);
  // The generic ARM kernels are half as fast as those for the cores that servers have.
  if (cpu.model.startsWith('Neoverse')) return name !== 'armv8';
  return true;
}

export function diagnose(findings: Findings): Problem[] {
  return [
    ...engineProblems(findings),
    ...blasProblems(findings),
    ...threadProblems(findings),
    ...cudaProblems(findings),
    ...spaceProblems(findings),
  ];
}

function engineProblems({ node, buildError, engineError }: Findings): Problem[] {
  const problems: Problem[] = [];
  if (Number.parseInt(node, 10) < 24) {
    problems.push({
      severity: 'error',
      what: `Node ${node} is too old`,
      remedy: 'install Node 24, or start attune by its launcher, which brings one',
    });
  }
  if (buildError) {
    const [what = '', ...rest] = buildError.split('\n');
    problems.push({ severity: 'error', what, remedy: rest.join('\n') || 'mend that and run attune doctor again' });
  }
  if (engineError) {
    problems.push({
      severity: 'error',
      what: `the engine does not load: ${engineError}`,
      remedy:
        'remove the folder build/ and run attune doctor again; if that changes nothing, install libtorch again or name another with ATTUNE_LIBTORCH',
    });
  }
  return problems;
}

function blasProblems(findings: Findings): Problem[] {
  if (!findings.engine) return [];
  const blas = blasOf(findings);
  const triplet = findings.arch === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
  if (blas.name === 'reference BLAS') {
    return [
      {
        severity: 'warning',
        what: `matrix products run on the reference BLAS (${blas.path}), many times slower than OpenBLAS`,
        remedy: `apt-get install -y libopenblas0-pthread; if it is installed: update-alternatives --auto libblas.so.3-${triplet}`,
      },
    ];
  }
  if (blas.fits === false) {
    const wanted = findings.cpu.features.avx512 ? 'SkylakeX' : findings.cpu.features.avx2 ? 'Haswell' : 'NEOVERSEN1';
    return [
      {
        severity: 'warning',
        what: `OpenBLAS runs its ${blas.core} kernels, which leave this CPU's instructions unused`,
        remedy: `unset OPENBLAS_CORETYPE and attune chooses one, or set OPENBLAS_CORETYPE=${wanted}`,
      },
    ];
  }
  return [];
}

function threadProblems({ engine, cpu, threadsAsked, ranks = 1 }: Findings): Problem[] {
  const share = Math.max(1, Math.floor(cpu.cores / ranks));
  if (!engine || engine.threads >= share) return [];
  if (threadsAsked === engine.threads && engine.threads > 1) return [];
  const cause = threadsAsked === undefined ? 'libtorch chose so' : 'ATTUNE_THREADS or OMP_NUM_THREADS says so';
  return [
    {
      severity: 'warning',
      what: `${engine.threads * ranks} of ${cpu.cores} CPU cores are used (${ranks > 1 ? `${ranks} processes; ` : ''}${cause})`,
      remedy: `set ATTUNE_THREADS=${share}, unless the other cores are meant for other work`,
    },
  ];
}

function cudaProblems({ nvidiaCard, addon, engine }: Findings): Problem[] {
  if (!nvidiaCard || !engine || !addon) return [];
  if (!addon.libtorchHasCuda) {
    return [
      {
        severity: 'warning',
        what: `there is an NVIDIA card, but libtorch ${addon.version} has no CUDA inside`,
        remedy: 'pip install torch (the CUDA wheel), or point ATTUNE_LIBTORCH to a CUDA libtorch',
      },
    ];
  }
  if (!addon.cuda) {
    return [
      {
        severity: 'warning',
        what: 'libtorch has CUDA, but no CUDA toolkit (cuda_runtime.h, libcudart) was found to build the engine with',
        remedy: 'install the CUDA toolkit of that version, or set CUDA_HOME to it',
      },
    ];
  }
  if (addon.kernelsLeftOut) {
    return [
      {
        severity: 'warning',
        what: "nvcc was not found, so attune's own CUDA kernels are left out and libtorch's stand in",
        remedy: 'install the CUDA toolkit with nvcc, or set CUDA_HOME to it',
      },
    ];
  }
  if (engine.cards.length === 0) {
    return [
      {
        severity: 'warning',
        what: 'the engine has CUDA but sees no card',
        remedy: 'check nvidia-smi and CUDA_VISIBLE_DEVICES',
      },
    ];
  }
  return [];
}

const GIB = 2 ** 30;

function spaceProblems({ memory, hub }: Findings): Problem[] {
  const problems: Problem[] = [];
  if (memory.availableBytes < GIB) {
    problems.push({
      severity: 'warning',
      what: `only ${(memory.availableBytes / GIB).toFixed(1)} GiB of memory is available`,
      remedy: 'end other programs, or give the container more',
    });
  }
  if (hub.freeBytes !== undefined && hub.freeBytes < 2 * GIB) {
    problems.push({
      severity: 'warning',
      what: `only ${(hub.freeBytes / GIB).toFixed(1)} GiB is free on the disk of the hub cache`,
      remedy: 'make room, or set HF_HOME to a folder on another disk',
    });
  }
  return problems;
}
