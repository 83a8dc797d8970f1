/**
 * `npm run bundle [-- --arch x64|arm64]`: the folder bundle/, which brings attune to machines without network, npm or Node.
 * It holds Node and the run-time packages (compressed), the JavaScript, the native sources and a launcher that unpacks what
 * it needs on first use and builds the addon against the torch that it finds there.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { compile } from './compile.mjs';
import { sayingMistakes } from './help.mjs';
import { cacheFolder } from './libtorch.mjs';
import { packageRoot as root } from './native.mjs';
import { ensurePage, pageFolder } from './page.mjs';

const LIMIT_MIB = 45;
const bundle = join(root, 'bundle');
const app = join(bundle, 'app');

const given = await sayingMistakes(() => parseArgs({ options: { arch: { type: 'string', default: process.arch } } }));
if (given === undefined) process.exit();
const { arch } = given.values;
if (arch !== 'x64' && arch !== 'arm64') {
  console.error(`--arch ${arch}: x64 or arm64`);
  process.exit(2);
}

const started = Date.now();
const say = (line) => console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(5)} s  ${line}`);

rmSync(bundle, { recursive: true, force: true });
mkdirSync(app, { recursive: true });

say('JavaScript');
compile('tsconfig.bundle.json', 'bundle/app');
dropOtherTests(join(app, 'src'));
for (const fixtures of ['src/nn/fixtures', 'tests/models/fixtures'])
  cpSync(join(root, fixtures), join(app, fixtures), { recursive: true }); // what they compare with
for (const part of ['assets', 'bin', 'docs/learn', 'models', 'native', 'package.json', 'LICENSE', 'README.md'])
  cpSync(join(root, part), join(app, part), { recursive: true });
for (const script of [
  'build-files.mjs',
  'build-plan.mjs',
  'help.mjs',
  'libtorch.mjs',
  'native.mjs',
  'node24.mjs',
  'precompiled.mjs',
])
  cpSync(join(root, 'scripts', script), join(app, 'scripts', script));

// The peers that benchmarks run beside us, and the recipes.
for (const name of readdirSync(join(root, 'benchmarks')).filter((file) => file.endsWith('.py')))
  cpSync(join(root, 'benchmarks', name), join(app, 'benchmarks', name));
for (const path of execFileSync('git', ['ls-files', 'recipes'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter(Boolean))
  cpSync(join(root, path), join(app, path));

say("the studio's page");
cpSync(await ensurePage(), join(app, pageFolder), { recursive: true });

say('packages');
packRuntimePackages();

say(`Node for ${arch} (compressing takes a minute the first time)`);
cpSync(compressedNode(), join(bundle, 'node.xz'));

cpSync(join(root, 'scripts/bundle-launcher.sh'), join(bundle, 'attune'));
chmodSync(join(bundle, 'attune'), 0o755);
writeFileSync(join(bundle, 'version'), `${fingerprint()}\n`);

const mib = folderBytes(bundle) / 2 ** 20;
say(`bundle/ is ready: ${mib.toFixed(1)} MiB for linux-${arch}`);
if (mib > LIMIT_MIB) {
  console.error(`that is more than the ${LIMIT_MIB} MiB which it may be`);
  process.exitCode = 1;
}

/** The engine's own tests and those of CUDA go along (`./attune test` runs them); the others need the repository. */
function dropOtherTests(folder) {
  for (const path of filesIn(folder)) {
    if (/\.test(-support)?\.js$/.test(path) && !/^(tensor|nn)\//.test(relative(folder, path))) rmSync(path);
  }
}

/** The packages of the lock file that are needed at run time on the target. */
function runtimePackages() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const fits = (wanted, value) => wanted === undefined || [wanted].flat().includes(value);
  return Object.entries(packages).filter(
    ([path, entry]) =>
      path.startsWith('node_modules/') &&
      !entry.dev &&
      !path.startsWith('node_modules/node-linux-') &&
      fits(entry.os, 'linux') &&
      fits(entry.cpu, arch) &&
      fits(entry.libc, 'glibc'),
  );
}

function packRuntimePackages() {
  const modules = join(bundle, 'node_modules');
  for (const [path, { version }] of runtimePackages()) {
    const installed = join(root, path);
    const source = existsSync(installed)
      ? installed
      : fetchPackage(path.slice(path.lastIndexOf('node_modules/') + 13), version);
    const entries = entryPoints(join(source, 'package.json'));
    cpSync(source, join(bundle, path), {
      recursive: true,
      filter: (file) => isNeeded(relative(source, file), entries),
    });
  }
  // The engine's tests import vitest, which is far too large to go along; this stands in for the part they use.
  mkdirSync(join(modules, 'vitest'), { recursive: true });
  cpSync(join(root, 'scripts/minitest.mjs'), join(modules, 'vitest/index.js'));
  writeFileSync(
    join(modules, 'vitest/package.json'),
    '{ "name": "vitest", "type": "module", "exports": "./index.js" }\n',
  );
  if (arch === process.arch) checkPackages();
  execFileSync('tar', ['-C', bundle, '-cJf', join(bundle, 'packages.tar.xz'), 'node_modules']);
  rmSync(modules, { recursive: true });
}

/** Imports every package from the bundle's own copy, to notice a file that was taken for dispensable and is not. */
function checkPackages() {
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const imports = Object.keys(dependencies).filter((name) => name !== 'node-api-headers');
  execFileSync(process.execPath, ['--input-type=module', '-e', imports.map((name) => `import '${name}';`).join('')], {
    cwd: bundle,
  });
}

/** Whether Node needs a package's file on the target: not types, maps, documents or binaries for other machines. */
function isNeeded(path, entries) {
  const name = basename(path);
  if (/\.(map|md|markdown|ts|mts|cts|flow|tsbuildinfo)$/.test(name) || /\.min\.m?js$/.test(name)) return false;
  if (/^(tests?|docs?|examples?)$/.test(path)) return false;
  if (/^tokenizers\..*\.node$/.test(name)) return name === `tokenizers.linux-${arch}-gnu.node`;
  if (/(^|\/)node_modules$/.test(path)) return false;
  return path !== 'src' || entries.some((entry) => entry.startsWith('./src/'));
}

/** The files by which Node, as opposed to a browser or a type checker, enters a package. */
function entryPoints(manifest) {
  const { main, exports } = JSON.parse(readFileSync(manifest, 'utf8'));
  const collect = (value) => {
    if (typeof value === 'string') return [value];
    if (value === null || typeof value !== 'object') return [];
    const used = ([key]) =>
      key.startsWith('.') || ['node', 'import', 'require', 'default', 'module-sync'].includes(key);
    return (Array.isArray(value) ? value.map((item) => ['default', item]) : Object.entries(value))
      .filter(used)
      .flatMap(([, item]) => collect(item));
  };
  return [...collect(exports), ...(main ? [main.startsWith('./') ? main : `./${main}`] : [])];
}

/** A package for another machine than this one, from the registry into the cache. */
function fetchPackage(name, version) {
  const folder = join(cacheFolder(), 'packages', `${name.replace('/', '-')}-${version}`);
  if (existsSync(folder)) return folder;
  const temporary = `${folder}.${process.pid}`;
  mkdirSync(temporary, { recursive: true });
  say(`fetching ${name}@${version}`);
  execFileSync('npm', ['pack', `${name}@${version}`, '--silent', '--pack-destination', temporary], {
    cwd: temporary,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [tarball] = readdirSync(temporary);
  execFileSync('tar', ['-C', temporary, '-xzf', join(temporary, tarball)]);
  renameSync(join(temporary, 'package'), folder);
  rmSync(temporary, { recursive: true });
  return folder;
}

/** Node's binary as .xz, kept in the cache: it changes only with the version in package.json. */
function compressedNode() {
  const name = `node-linux-${arch}`;
  const version = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).optionalDependencies[name];
  const kept = join(cacheFolder(), 'packages', `${name}-${version}.xz`);
  if (existsSync(kept)) return kept;
  const installed = join(root, 'node_modules', name);
  const folder = existsSync(installed) ? installed : fetchPackage(name, version);
  mkdirSync(dirname(kept), { recursive: true });
  const result = spawnSync(
    'sh',
    ['-c', 'xz -T0 -6 -c "$0" > "$1"', join(folder, 'bin/node'), `${kept}.${process.pid}`],
    { stdio: 'inherit' },
  );
  if (result.status !== 0) throw new Error('xz could not compress Node (apt-get install -y xz-utils)');
  renameSync(`${kept}.${process.pid}`, kept);
  return kept;
}

/** Tells the launcher whether what it unpacked before belongs to this bundle. */
function fingerprint() {
  const hash = createHash('sha256');
  for (const path of filesIn(bundle).sort()) hash.update(relative(bundle, path)).update(readFileSync(path));
  return hash.digest('hex').slice(0, 16);
}

function filesIn(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function folderBytes(folder) {
  return filesIn(folder).reduce((sum, path) => sum + statSync(path).size, 0);
}
