import { describe, expect, it } from 'vitest';
import { blasOf, diagnose, type Findings } from './diagnosis.ts';
import { readCpu, readHubCache, readMemory } from './machine.ts';
import { mappedLibraries } from './probe.ts';

const GIB = 2 ** 30;

/** A Xeon with Debian's libtorch on which nothing is wrong; each case spoils one thing. */
function healthy(): Findings {
  return {
    node: '24.21.0',
    arch: 'x64',
    cpu: { model: 'Xeon', cores: 8, features: { avx2: true, avx512: true, amx: false } },
    memory: { totalBytes: 32 * GIB, availableBytes: 20 * GIB },
    hub: { folder: '/h', exists: true, sizeBytes: 0, freeBytes: 100 * GIB },
    nvidiaCard: false,
    addon: {
      path: '/a.node',
      libtorch: '/usr',
      lib: '/usr/lib',
      version: '1.13.0',
      source: 'system',
      libtorchHasCuda: false,
      cuda: false,
      kernels: false,
      kernelsLeftOut: false,
    },
    engine: {
      libtorch: '1.13.0',
      cuda: false,
      cards: [],
      threads: 8,
      config: 'BLAS_INFO=open',
      libraries: ['/usr/lib/openblas-pthread/libblas.so.3', '/usr/lib/openblas-pthread/libopenblasp-r0.3.21.so'],
    },
    openblasCore: 'SkylakeX',
  };
}

function spoiled(change: (findings: Findings) => void): string[] {
  const findings = healthy();
  change(findings);
  return diagnose(findings).map((problem) => `${problem.severity}: ${problem.what} → ${problem.remedy}`);
}

describe('diagnose', () => {
  it('finds nothing wrong with a healthy machine', () => expect(spoiled(() => {})).toEqual([]));

  it('sees OpenBLAS take a Xeon for a Prescott', () => {
    const [problem] = spoiled((findings) => {
      findings.openblasCore = 'Prescott';
    });
    expect(problem).toMatch(/^warning: OpenBLAS runs its Prescott kernels.*OPENBLAS_CORETYPE=SkylakeX/);
  });

  it('accepts Haswell kernels only where there is no AVX-512', () => {
    const haswell = (avx512: boolean) => (findings: Findings) => {
      findings.openblasCore = 'Haswell';
      findings.cpu.features.avx512 = avx512;
    };
    expect(spoiled(haswell(false))).toEqual([]);
    expect(spoiled(haswell(true))).toHaveLength(1);
  });

  it('sees the reference BLAS in front of OpenBLAS', () => {
    const [problem] = spoiled((findings) => {
      findings.engine?.libraries.splice(0, 1, '/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0');
    });
    expect(problem).toMatch(/^warning: .*reference BLAS.*update-alternatives --auto libblas.so.3-x86_64-linux-gnu/);
  });

  it('sees idle cores', () => {
    const [problem] = spoiled((findings) => {
      if (findings.engine) findings.engine.threads = 1;
    });
    expect(problem).toMatch(/^warning: 1 of 8 CPU cores.*ATTUNE_THREADS=8/);
  });

  it('expects of one of several processes its share of the cores', () => {
    const found = (threads: number, ranks: number) =>
      spoiled((findings) => {
        Object.assign(findings, { ranks, threadsAsked: threads });
        if (findings.engine) findings.engine.threads = threads;
      });
    expect([...found(4, 2), ...found(1, 8), ...found(1, 16)]).toEqual([]);
    expect(found(1, 2)).toEqual([expect.stringMatching(/^warning: 2 of 8 CPU cores.*2 processes.*ATTUNE_THREADS=4/)]);
  });

  it('says how to get a libtorch where there is none, and that attune cannot run', () => {
    const [problem] = spoiled((findings) => {
      delete findings.engine;
      findings.buildError = 'no libtorch was found\nOne of these gives one: apt-get …';
    });
    expect(problem).toMatch(/^error: no libtorch was found → .*apt-get/);
  });

  it.each([
    ['a CPU libtorch beside a card', false, false, false, /has no CUDA inside.*pip install torch/],
    ['a CUDA libtorch without the toolkit', true, false, false, /cuda_runtime.h.*CUDA_HOME/],
    ['a toolkit without nvcc', true, true, true, /nvcc was not found/],
    ['a card that the driver hides', true, true, false, /sees no card.*nvidia-smi/],
  ])('sees %s', (_, libtorchHasCuda, cuda, kernelsLeftOut, wanted) => {
    const [problem] = spoiled((findings) => {
      findings.nvidiaCard = true;
      Object.assign(findings.addon ?? {}, { libtorchHasCuda, cuda, kernelsLeftOut });
    });
    expect(problem).toMatch(wanted);
  });

  it('sees a full disk and full memory', () => {
    const found = spoiled((findings) => {
      findings.memory.availableBytes = GIB / 2;
      findings.hub.freeBytes = GIB;
    });
    expect(found).toHaveLength(2);
    expect(found.join()).toMatch(/0\.5 GiB of memory.*1\.0 GiB is free.*HF_HOME/s);
  });
});

describe('blasOf', () => {
  it('knows MKL inside a wheel by its build description', () => {
    const findings = healthy();
    if (findings.engine)
      Object.assign(findings.engine, { libraries: [], config: 'Intel(R) oneAPI Math Kernel Library Version 2024.2' });
    expect(blasOf(findings)).toEqual({ name: 'MKL', fits: true });
  });
});

describe('the machine', () => {
  it('reads x86 flags', () => {
    const cpu = readCpu('processor: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu avx2 avx512f amx_bf16\n', 'x64');
    expect(cpu).toMatchObject({ model: 'Intel(R) Xeon(R)', features: { avx2: true, avx512: true, amx: true } });
  });

  it('reads ARM features and names the core', () => {
    const cpu = readCpu('Features\t: fp asimd bf16\nCPU part\t: 0xd0c\n', 'arm64');
    expect(cpu).toMatchObject({ model: 'Neoverse N1', features: { asimd: true, sve: false, bf16: true } });
  });

  it("takes a container's limit for the memory", () => {
    expect(readMemory('MemAvailable: 4194304 kB\n', GIB)).toEqual({ totalBytes: GIB, availableBytes: GIB });
  });

  it('finds the hub cache by the same variables as Python', () => {
    expect(readHubCache({ HF_HOME: '/nowhere/hf' })).toMatchObject({
      folder: '/nowhere/hf/hub',
      exists: false,
      sizeBytes: 0,
    });
    expect(readHubCache({ HOME: '/nowhere' }).folder).toBe('/nowhere/.cache/huggingface/hub');
  });

  it('finds the libraries of linear algebra among the mapped files', () => {
    const maps = `ffff0000-ffff1000 r-xp 00000000 fe:00 12 /usr/lib/openblas-pthread/libblas.so.3
ffff2000-ffff3000 r--p 00000000 fe:00 12 /usr/lib/openblas-pthread/libblas.so.3
ffff4000-ffff5000 r-xp 00000000 fe:00 13 /usr/lib/libtorch_cpu.so.1.13
ffff6000-ffff7000 rw-p 00000000 00:00 0
`;
    expect(mappedLibraries(maps)).toEqual(['/usr/lib/openblas-pthread/libblas.so.3']);
  });
});
