/**
 * `npm run kernels [-- --arch 80,90]`: compiles every CUDA kernel of native/ for other GPUs than the one that is here, or for some
 * without any: needs nvcc and neither a GPU nor a CUDA libtorch. Nothing is kept. Exit code 1 if one does not compile.
 */
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { sayingMistakes } from './help.mjs';
import { packageRoot } from './native.mjs';

const given = await sayingMistakes(() => parseArgs({ options: { arch: { type: 'string', default: '80,90' } } }));
if (given !== undefined) await compileAll(given.values.arch.split(','));

async function compileAll(targets) {
  const folder = join(packageRoot, 'native');
  const sources = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.cu'));
  const work = targets.flatMap((arch) => sources.sort().map((source) => ({ arch, source })));
  let failed = 0;
  const worker = async () => {
    for (let next = work.shift(); next !== undefined; next = work.shift()) {
      const fault = await compile(folder, next.source, next.arch);
      if (fault !== undefined) failed++;
      console.log(`sm_${next.arch} ${next.source}${fault === undefined ? '' : `: ${fault}`}`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  console.log(failed === 0 ? 'all kernels compile' : `${failed} do not compile`);
  process.exitCode = failed === 0 ? 0 : 1;
}

/** What the compiler says of a source that it refuses. */
function compile(folder, source, arch) {
  const nvcc = process.env.CUDA_HOME ? join(process.env.CUDA_HOME, 'bin/nvcc') : 'nvcc';
  const own = arch === '90' ? '90a' : arch;
  const flags = [
    '-std=c++17',
    '--expt-relaxed-constexpr',
    '--expt-extended-lambda',
    '-DATTUNE_CUDA=1',
    '-DATTUNE_KERNELS=1',
  ];
  const command = [...flags, `-arch=sm_${own}`, `-I${folder}`, '-c', '-o', '/dev/null', join(folder, source)];
  return new Promise((resolve) => {
    execFile(nvcc, command, (error, _, errors) => {
      if (error?.code === 'ENOENT') resolve(`there is no ${nvcc}; CUDA_HOME names the toolkit's folder`);
      else resolve(error === null ? undefined : `\n${errors}`);
    });
  });
}
