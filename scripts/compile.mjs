/** `npm run build`: src/ to JavaScript with types in dist/. Node does not strip types under node_modules, so a package needs it. */
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from './native.mjs';

/** Compiles a project file of the repository into a fresh folder. */
export function compile(project, folder) {
  rmSync(join(packageRoot, folder), { recursive: true, force: true });
  const tsc = join(packageRoot, 'node_modules/typescript/lib/tsc.js');
  const result = spawnSync(process.execPath, [tsc, '-p', project, '--outDir', folder], {
    cwd: packageRoot,
    stdio: 'inherit',
  });
  if (result.status !== 0) throw new Error(`tsc -p ${project} found errors`);
}

if (import.meta.main) {
  try {
    compile('tsconfig.build.json', 'dist');
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
