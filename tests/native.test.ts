/** Finding libtorch and building the addon: on file systems made for the purpose, and with toy sources for the build. */
import { execFile } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, hostname, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
// @ts-expect-error plain JavaScript that runs before any types are installed
import { findCuda, findLibtorch, usesNewStringAbi } from '../scripts/libtorch.mjs';
import { liveTensors } from '../src/tensor/index.ts';

const run = promisify(execFile);
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-native-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function file(path: string, text = ''): string {
  const full = join(folder, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  return full;
}

/** A wheel's layout: lib/, include/, version.py. */
function wheel(name: string, version: string): string {
  file(`${name}/lib/libtorch_cpu.so`);
  file(`${name}/lib/libc10.so`, '_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE');
  file(`${name}/include/torch/csrc/api/include/torch/torch.h`);
  file(`${name}/version.py`, `__version__ = '${version}'\n`);
  return join(folder, name);
}

function debian(): void {
  file('usr/include/torch/csrc/api/include/torch/torch.h');
  file(
    'usr/include/torch/csrc/api/include/torch/version.h',
    '#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH 0\n',
  );
  file('usr/lib/x86_64-linux-gnu/libtorch_cpu.so');
}

function find(env: Record<string, string> = {}, python?: string) {
  return findLibtorch({ env: { HOME: folder, ...env }, fileRoot: folder, arch: 'x64', pythonTorch: () => python });
}

describe('findLibtorch', () => {
  it('takes the environment, then Python, then the system, then the cache', () => {
    const named = wheel('named', '2.11.0+cu130');
    const python = wheel('python/torch', '2.13.0+cpu');
    const cached = wheel('.cache/attune/libtorch', '2.5.1');
    debian();
    expect(find({ ATTUNE_LIBTORCH: named }, python)).toMatchObject({
      source: 'environment',
      root: named,
      version: '2.11.0+cu130',
    });
    expect(find({}, python)).toMatchObject({ source: 'python', root: python, lib: join(python, 'lib'), cuda: false });
    expect(find()).toMatchObject({
      source: 'system',
      version: '1.13.0',
      lib: join(folder, 'usr/lib/x86_64-linux-gnu'),
    });
    rmSync(join(folder, 'usr'), { recursive: true });
    expect(find()).toMatchObject({ source: 'cache', root: cached });
    rmSync(cached, { recursive: true });
    expect(find()).toBeUndefined();
  });

  it('refuses a named folder that is none, instead of taking another', () => {
    debian();
    expect(() => find({ ATTUNE_LIBTORCH: join(folder, 'missing') })).toThrow(/no such folder/);
    expect(() => find({ ATTUNE_LIBTORCH: folder })).toThrow(/no lib\/libtorch_cpu.so/);
    expect(() => find({ ATTUNE_LIBTORCH: wheel('old', '1.9.0') })).toThrow(/libtorch 1.9.0, and 1.13 is the oldest/);
  });

  it('passes over a Python torch that is too old or has no headers', () => {
    debian();
    expect(find({}, wheel('old', '1.12.1'))).toMatchObject({ source: 'system' });
    file('bare/lib/libtorch_cpu.so');
    expect(find({}, join(folder, 'bare'))).toMatchObject({ source: 'system' });
  });

  it('reads the version of an archive and sees CUDA inside', () => {
    const archive = wheel('libtorch', 'x');
    rmSync(join(archive, 'version.py'));
    file('libtorch/build-version', '2.7.1+cu128\n');
    file('libtorch/lib/libtorch_cuda.so');
    expect(find({ ATTUNE_LIBTORCH: archive })).toMatchObject({ version: '2.7.1+cu128', cuda: true });
  });

  it('knows the string ABI by a mangled name', () => {
    const torch = wheel('torch', '2.1.0');
    expect(usesNewStringAbi(join(torch, 'lib'))).toBe(true);
    file('torch/lib/libc10.so', '_ZN3c106detail14torchCheckFailEPKcS2_jRKSs');
    expect(usesNewStringAbi(join(torch, 'lib'))).toBe(false);
  });
});

describe('findCuda', () => {
  it("takes a wheel's own parts where there is no toolkit, without nvcc", () => {
    const torch = wheel('site/torch', '2.11.0+cu130');
    file('site/torch/lib/libtorch_cuda.so');
    const include = dirname(file('site/nvidia/cu13/include/cuda_runtime.h'));
    file('site/nvidia/cu13/lib/libcudart.so.13');
    const found = findCuda(find({ ATTUNE_LIBTORCH: torch }), { CUDA_HOME: join(folder, 'none'), PATH: '' });
    // This machine may have a toolkit of its own in /usr/local/cuda, which goes first.
    if (!existsSync('/usr/local/cuda/include/cuda_runtime.h'))
      expect(found).toMatchObject({ include, nvcc: undefined });
    expect(found.cudart.name).toMatch(/^libcudart\.so/);
  });

  it('takes CUDA_HOME with its nvcc, and nothing for a CPU libtorch', () => {
    const torch = wheel('torch', '2.11.0+cu130');
    const include = dirname(file('cuda/include/cuda_runtime.h'));
    file('cuda/lib64/libcudart.so');
    const nvcc = file('cuda/bin/nvcc');
    const env = { CUDA_HOME: join(folder, 'cuda'), PATH: '' };
    expect(findCuda(find({ ATTUNE_LIBTORCH: torch }), env)).toBeUndefined();
    file('torch/lib/libtorch_cuda.so');
    expect(findCuda(find({ ATTUNE_LIBTORCH: torch }), env)).toMatchObject({
      include,
      nvcc,
      cudart: { name: 'libcudart.so' },
    });
  });
});

/** A package of toy sources and a compiler that notes each call, so that what is rebuilt when can be counted. */
describe('ensureAddon', () => {
  function toyPackage(): {
    build: (
      env?: Record<string, string>,
      user?: { uid?: number; gid?: number },
    ) => Promise<{ path: string; built: boolean; version: string }>;
    calls: () => string[];
  } {
    const root = join(folder, 'package');
    cpSync('scripts', join(root, 'scripts'), { recursive: true });
    symlinkSync(join(process.cwd(), 'node_modules'), join(root, 'node_modules'));
    file('package/native/a.cc', 'int a;');
    file('package/native/b.cc', '#include "deep/b.h"\nint b;');
    file('package/native/deep/b.h', '#include "c.h"');
    file('package/native/deep/c.h', '// of b.cc alone');
    const torch = wheel('torch', '2.11.0+cpu');
    const log = join(folder, 'calls');
    writeFileSync(log, '');
    const compiler = file(
      'g++',
      `#!/bin/sh
case "$*" in --version) echo 'Free Software Foundation'; exit 0;; esac
echo "$@" >> ${log}
case "$*" in *" -include "*) echo "cc1plus: fatal error: had to relocate PCH" >&2; exit 1;; esac
if [ -f ${folder}/slow ]; then
  case "$*" in
    *b.cc*) sleep 120 & echo begun > ${folder}/slow; wait;;
    *) for i in 1 2 3 4 5 6 7 8 9 10; do [ -s ${folder}/slow ] || sleep 0.5; done;;
  esac
fi
case "$*" in *a.cc*) grep -q broken ${root}/native/a.cc && { echo "a.cc:1: error: broken is not a type" >&2; exit 1; };; esac
while [ $# -gt 0 ]; do
  case "$1" in
    -o) echo made > "$2";;
    -MF) [ -f ${folder}/depfile ] && cp ${folder}/depfile "$2";;
  esac
  shift
done
exit 0
`,
    );
    chmodSync(compiler, 0o755);
    return {
      calls: () => readFileSync(log, 'utf8').trim().split('\n').filter(Boolean),
      build: async (env = {}, user = {}) => {
        const script = `import { ensureAddon } from ${JSON.stringify(join(root, 'scripts/native.mjs'))};
          ensureAddon().then((r) => console.log(JSON.stringify(r)), (e) => { console.error(e.message); process.exitCode = 1; });`;
        const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], {
          env: { ...process.env, CXX: compiler, ATTUNE_LIBTORCH: torch, XDG_CACHE_HOME: join(folder, 'cache'), ...env },
          ...user,
        });
        return JSON.parse(stdout);
      },
    };
  }

  it('builds once, and again only what a change touches', async () => {
    const toy = toyPackage();
    const first = await toy.build();
    expect(first).toMatchObject({ built: true, version: '2.11.0+cpu' });
    expect(toy.calls()).toHaveLength(3);
    expect(toy.calls()[0]).toContain('-std=c++17');
    expect(JSON.parse(readFileSync(join(folder, 'package/build/addon.json'), 'utf8')).path).toBe(first.path);

    expect(await toy.build()).toMatchObject({ built: false, path: first.path });
    expect(toy.calls()).toHaveLength(3);

    file('package/native/a.cc', 'int changed;');
    const second = await toy.build();
    expect(second.path).not.toBe(first.path);
    expect(toy.calls()).toHaveLength(5);

    // a header rebuilds what includes it, and nothing else
    file('package/native/deep/c.h', '// changed');
    await toy.build();
    expect(toy.calls()).toHaveLength(7);
    expect(toy.calls().at(-2)).toContain('/b.cc');
  });

  it('links with empty libraries for those that libtorch only names, and without them what could not be loaded so', async () => {
    const toy = toyPackage();
    const lib = join(folder, 'torch/lib');
    const made = (name: string, ...more: string[]) =>
      run('g++', ['-shared', '-nostdlib', '-x', 'c', '/dev/null', '-o', join(lib, name), '-x', 'none', ...more]);
    await made('libopencv_core.so.406', '-Wl,-soname,libopencv_core.so.406');
    await made('libtorch_cpu.so', '-Wl,--no-as-needed', join(lib, 'libopencv_core.so.406'));
    expect(await toy.build()).toMatchObject({ built: true });
    const [empty, first, second] = toy.calls().slice(-3) as [string, string, string];
    expect(toy.calls()).toHaveLength(5);
    expect(empty).toContain('-soname,libopencv_core.so.406');
    // The toy's addon is a text.
    expect([first, second].map((call) => call.includes('empty/libopencv_core.so.406'))).toEqual([true, false]);
  });

  const spares = process.env.ATTUNE_SANITIZE !== '1' && process.env.ATTUNE_EMPTY_LIBRARIES !== '0';
  it.runIf(spares)("loads none of the libraries that Debian's libtorch only names", () => {
    expect(liveTensors()).toBeGreaterThanOrEqual(0);
    const loaded = readFileSync('/proc/self/maps', 'utf8');
    expect(loaded).toContain('libtorch_cpu');
    expect(loaded).not.toMatch(/libQt5Core|libgdal/);
  });

  it('compiles without the shared headers where the compiler cannot use them', async () => {
    const toy = toyPackage();
    const count = 4 * availableParallelism();
    for (let i = 0; i < count; i++) file(`package/native/torch${i}.cc`, `#include <ATen/ATen.h>\nint t${i};`);
    expect(await toy.build()).toMatchObject({ built: true });
    expect(toy.calls().filter((call) => call.includes(' -include '))).toHaveLength(count);
    expect(toy.calls()).toHaveLength(1 + 2 * count + 2 + 1); // the headers, each source twice, the others, the link
  });

  it('ends the compilers that are still at work when one fails', async () => {
    const toy = toyPackage();
    file('package/native/a.cc', 'broken;');
    file('slow');
    const began = Date.now();
    await expect(toy.build()).rejects.toThrow(/a\.cc:1: error: broken is not a type/);
    expect(Date.now() - began).toBeLessThan(60_000);
  });

  it('writes compile_commands.json for editors', async () => {
    const toy = toyPackage();
    file('package/native/cpu/c.cc', '#include "cpu/fused.h"\nint c;');
    file('package/native/cpu/fused.h', '');
    await toy.build();
    const commands = JSON.parse(readFileSync(join(folder, 'package/build/compile_commands.json'), 'utf8'));
    expect(commands.map((each: { file: string }) => each.file.split('/').at(-1))).toEqual(['a.cc', 'b.cc', 'c.cc']);
    expect(commands[0].arguments).toContain(`-I${join(folder, 'package/native')}`);
    // If the compiler fused as it likes, a product's rows would depend on their neighbours.
    expect(commands.map((each: { arguments: string[] }) => each.arguments.includes('-ffp-contract=off'))).toEqual([
      false,
      false,
      true,
    ]);
  });

  it('refuses a header that the compiler read and the key does not have', async () => {
    const toy = toyPackage();
    file('depfile', `any.o: ${join(folder, 'package/native/deep/b.h')}\n`);
    await expect(toy.build()).rejects.toThrow(/a\.cc includes .*deep\/b\.h, which scripts\/native\.mjs does not see/);
  });

  it('builds for the sanitizers in a folder of its own', async () => {
    const toy = toyPackage();
    const everyday = await toy.build();
    const checked = await toy.build({ ATTUNE_SANITIZE: '1' });
    expect(dirname(checked.path)).toBe(join(folder, 'package/build/sanitize'));
    expect(toy.calls().at(-1)).toContain('-fsanitize=address,undefined');
    expect(JSON.parse(readFileSync(join(folder, 'package/build/addon.json'), 'utf8')).path).toBe(everyday.path);
  });

  it('builds again for another libtorch, as C++20 from 2.12', async () => {
    const toy = toyPackage();
    const first = await toy.build();
    const second = await toy.build({ ATTUNE_LIBTORCH: wheel('newer', '2.13.0+cpu') });
    expect(second.path).not.toBe(first.path);
    expect(toy.calls().at(-3)).toContain('-std=c++20');
    expect(await toy.build()).toMatchObject({ built: false, path: first.path });
  });

  it('uses what is built where nothing can be written, and says what to do where nothing is', async () => {
    const toy = toyPackage();
    const { path } = await toy.build();
    const [build, home] = [join(folder, 'package/build'), join(folder, 'home')];
    mkdirSync(home);
    chmodSync(folder, 0o755);
    rmSync(join(build, 'c10d.json'));
    // For root every folder can be written: there another user tries it.
    const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
    chmodSync(home, 0o555);
    chmodSync(build, 0o555);
    try {
      const env = { XDG_CACHE_HOME: home };
      // Of a libtorch that was used in turn; it cannot be corrected here, and need not be.
      writeFileSync(join(build, 'addon.json'), '{}');
      expect(await toy.build(env, user)).toMatchObject({ built: false, path });
      expect(toy.calls()).toHaveLength(3);

      const other = { ...env, ATTUNE_LIBTORCH: wheel('newer', '2.13.0+cpu') };
      await expect(toy.build(other, user)).rejects.toThrow(
        /not built yet.*none of these folders can be written: .*\nRun attune doctor once as a user who can write the first, or set XDG_CACHE_HOME/,
      );
      // A cache that can be written takes the build; the next start finds it there.
      chmodSync(home, 0o777);
      chmodSync(join(folder, 'calls'), 0o666);
      const own = await toy.build(other, user);
      expect([own.built, own.path.startsWith(home)]).toEqual([true, true]);
      expect(await toy.build(other, user)).toMatchObject({ built: false, path: own.path });
    } finally {
      chmodSync(build, 0o755);
    }
  });

  it('lets two processes that start at once build once', async () => {
    const toy = toyPackage();
    const results = await Promise.all([toy.build(), toy.build(), toy.build()]);
    expect(results.filter((result) => result.built)).toHaveLength(1);
    expect(toy.calls()).toHaveLength(3);
  });

  it('takes over the lock of a process that died', async () => {
    const toy = toyPackage();
    const { path } = await toy.build();
    rmSync(path);
    const lock = path.replace(/attune-(\w+)\.node$/, '$1.lock');
    writeFileSync(lock, JSON.stringify({ pid: 2 ** 22 + 1, host: hostname() }));
    expect(await toy.build()).toMatchObject({ built: true });

    rmSync(path);
    writeFileSync(lock, JSON.stringify({ pid: 1, host: 'elsewhere' }));
    utimesSync(lock, new Date(0), new Date(0));
    expect(await toy.build()).toMatchObject({ built: true });
    expect(existsSync(lock)).toBe(false);
  });

  it("gives the compiler's own words when it fails, and leaves no addon", async () => {
    const toy = toyPackage();
    file('package/native/a.cc', 'broken');
    await expect(toy.build()).rejects.toThrow(/a\.cc failed.*\n.*broken is not a type/);
    expect(existsSync(join(folder, 'package/build/addon.json'))).toBe(false);
  });
});
