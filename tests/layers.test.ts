/**
 * Every arrow points down: reads the imports of every source file, holds them against the design's layers, and fails on
 * files that import each other in a circle. Type imports count: a reader has to follow them too.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const engine = ['src/tensor', 'src/tensor/engine', 'src/tensor/safetensors', 'src/nn'];
const text = ['src/text', 'src/text/chat', 'src/text/tokenizer', 'src/text/grammar'];
const data = ['src/data', 'src/data/shapes', 'src/data/sources', 'src/data/tokens'];
const tasks = ['src/tasks', 'src/tasks/problems', 'src/tasks/parts'];
const environments = ['', '/parts', '/games', '/tools'].map((room) => `src/environments${room}`);
const algorithms = ['src/algorithms', 'src/algorithms/policy', 'src/algorithms/preference'];
const models = [
  'src/models',
  ...[
    'families',
    'decoder',
    'lora',
    'weights',
    'files',
    'generate',
    'generate/cache',
    'text',
    'export',
    'export/gguf',
  ].map((room) => `src/models/${room}`),
];
const runs = ['src/runs', ...['config', 'metrics', 'plots', 'store', 'catalogue'].map((room) => `src/runs/${room}`)];
const belowTrainers = [
  ...['src/dist', 'src/dist/shard', 'src/hub', 'src/rewards', 'src/rewards/program', 'src/rollouts'],
  ...['src/rollouts/episodes', 'src/rollouts/agents', 'src/serve', 'src/threads'],
  ...[engine, text, data, tasks, environments, algorithms, models, runs].flat(),
];
const trainerRooms = ['', '/loop', '/batches', '/reference', '/teacher'].map((room) => `src/trainers${room}`);
const trainers = [...trainerRooms, ...['sft', 'reward', 'preference', 'policy'].map((kind) => `src/trainers/${kind}`)];
const workflows = [
  'src/workflows',
  'src/workflows/pipeline',
  'src/workflows/compare',
  'src/workflows/quantize',
  'src/workflows/preferences',
];

/** Each folder and what it may import, besides itself and the leaf files. A folder's index.ts may import its rooms. */
const allowed: Record<string, string[]> = {
  'src/hub': [],
  'src/tensor/engine': [],
  'src/tensor': ['src/tensor/engine'],
  'src/tensor/safetensors': ['src/tensor', 'src/tensor/engine'],
  'src/nn': ['src/tensor'],
  'src/dist': engine,
  'src/dist/shard': ['src/dist', ...engine],
  'src/dist/launch': ['src/dist'],
  'src/text/chat': [],
  'src/text/tokenizer': ['src/text/chat'],
  'src/text/grammar': ['src/text/tokenizer'],
  'src/text': ['src/text/chat', 'src/text/tokenizer'],
  'src/data/sources': ['src/hub'],
  'src/data/shapes': ['src/data/sources', ...text],
  'src/data': ['src/data/shapes', 'src/data/sources', 'src/hub', ...text],
  'src/data/tokens': ['src/data', 'src/data/shapes', 'src/data/sources', ...text],
  'src/tasks/parts': [],
  'src/tasks/problems': ['src/tasks/parts'],
  'src/tasks': ['src/tasks/problems', 'src/tasks/parts'],
  'src/threads': [],
  'src/environments/parts': text,
  'src/environments/games': ['src/environments/parts'],
  'src/environments/tools': ['src/environments/parts', 'src/tasks/parts'],
  'src/environments': ['src/threads', ...environments, ...tasks, ...text],
  'src/algorithms': ['src/tensor'],
  'src/algorithms/policy': ['src/algorithms', 'src/tensor'],
  'src/algorithms/preference': ['src/algorithms', 'src/tensor'],
  'src/models/families': [],
  'src/models/decoder': ['src/models/families', ...engine],
  'src/models/lora': ['src/models/decoder', 'src/models/families', ...engine],
  'src/models': ['src/models/decoder', 'src/models/families', 'src/models/lora', ...engine],
  'src/models/weights': ['src/models', 'src/models/decoder', ...engine],
  'src/models/generate/cache': ['src/models/families', ...engine],
  'src/models/generate': [
    'src/models',
    'src/models/weights',
    'src/models/generate/cache',
    'src/models/decoder',
    'src/models/families',
    ...engine,
    ...text,
  ],
  'src/models/files': [
    'src/hub',
    'src/models',
    'src/models/decoder',
    'src/models/families',
    'src/models/lora',
    ...engine,
    ...text,
  ],
  'src/models/text': ['src/models', 'src/models/files', 'src/models/generate', 'src/hub', ...engine, ...text],
  'src/models/export/gguf': ['src/models', 'src/models/decoder', 'src/models/families', ...engine, ...text],
  'src/models/export': [
    'src/hub',
    'src/models',
    'src/models/export/gguf',
    'src/models/files',
    'src/models/lora',
    ...engine,
    ...text,
  ],
  'src/runs/config': [],
  'src/runs/metrics': [],
  'src/runs/plots': ['src/runs/metrics'],
  'src/runs/store': [],
  'src/runs/catalogue': ['src/runs', 'src/runs/metrics'],
  'src/runs': ['src/hub', 'src/runs/config', 'src/runs/metrics', 'src/runs/plots', 'src/runs/store', ...engine],
  'src/rewards': ['src/hub', ...models, ...tasks, ...text],
  'src/rewards/program': ['src/rewards', 'src/threads'],
  'src/rollouts': [
    'src/dist',
    'src/hub',
    'src/rewards',
    'src/rewards/program',
    'src/threads',
    ...algorithms,
    ...data,
    ...environments,
    ...models,
    ...tasks,
    ...text,
    ...runs,
    'src/tensor',
  ],
  'src/rollouts/episodes': ['src/rollouts', 'src/rewards', ...environments, ...models, ...text],
  // Agents call the policy as clients call the server: in its words.
  'src/rollouts/agents': [
    ...['src/rollouts', 'src/rollouts/episodes', 'src/serve', 'src/threads'],
    ...[environments, models, text].flat(),
  ],
  'src/evaluate': belowTrainers,
  'src/evaluate/instructions': ['src/data/shapes'],
  'src/evaluate/suites': ['src/evaluate', ...belowTrainers],
  'src/evaluate/benchmark': ['src/evaluate', 'src/evaluate/suites', 'src/evaluate/instructions', ...belowTrainers],
  'src/evaluate/ranked': ['src/evaluate', ...belowTrainers],
  'src/trainers': belowTrainers,
  'src/trainers/loop': ['src/trainers', ...belowTrainers],
  'src/trainers/batches': ['src/trainers', 'src/trainers/loop', ...belowTrainers],
  'src/trainers/reference': ['src/trainers', ...belowTrainers],
  'src/trainers/teacher': ['src/trainers', ...belowTrainers],
};
for (const kind of ['sft', 'reward', 'preference', 'policy'])
  allowed[`src/trainers/${kind}`] = [...belowTrainers, ...trainerRooms];
const evaluate = ['', '/instructions', '/suites', '/benchmark', '/ranked'].map((room) => `src/evaluate${room}`);
const belowWorkflows = [...belowTrainers, ...trainers, ...evaluate];
for (const room of workflows) allowed[room] = belowWorkflows;
allowed['src/serve'] = ['src/hub', 'src/rewards', 'src/tensor', ...models, ...text];
// The studio knows of training only what run folders say; what it needs from above is handed to it.
const belowStudio = [...belowTrainers, ...evaluate, 'src/serve'];
// What explore says crosses the wire as it is.
allowed['src/studio/api'] = ['src/evaluate'];
allowed['src/studio/http'] = [...belowStudio, 'src/studio/api'];
allowed['src/studio/commands'] = [...belowStudio, 'src/studio/api', 'src/studio/http'];
const studioGround = ['api', 'http', 'commands'].map((room) => `src/studio/${room}`);
allowed['src/studio/runs'] = [...belowStudio, ...studioGround];
const studioRooms = ['rollouts', 'chat', 'data', 'train', 'models'].map((room) => `src/studio/${room}`);
for (const room of studioRooms) allowed[room] = [...belowStudio, ...studioGround, 'src/studio/runs'];
const studio = ['src/studio', ...studioGround, 'src/studio/runs', ...studioRooms];
allowed['src/studio'] = [...belowStudio, ...studio];
allowed['src/learn/experiments'] = [...belowWorkflows, ...workflows];
allowed['src/learn'] = ['src/learn/experiments', 'src/runs/plots', 'src/algorithms', 'src/tensor/engine'];
const learn = ['src/learn', 'src/learn/experiments'];
const everything = [...belowWorkflows, ...workflows, 'src/dist/launch', 'src/serve', ...studio, ...learn];
for (const room of ['src/cli/terminal', 'src/cli/options', 'src/cli/machine', 'src/cli/chat'])
  allowed[room] = [...everything, 'src/cli/terminal'];
allowed['src/cli'] = [...everything, ...['terminal', 'options', 'machine', 'chat'].map((room) => `src/cli/${room}`)];
// The package's front door exports what programs may use.
allowed['src/index.ts'] = everything;

// The studio's page: it knows the server's wire types and the colours of plots, and nothing else of src/.
const wireTypes = ['src/studio', 'src/runs/plots'];
allowed['studio/format'] = [];
allowed['studio/app'] = ['studio/format'];
allowed['studio/wire'] = ['studio/app', 'studio/format', ...wireTypes];
const belowParts = ['studio/wire', 'studio/app', 'studio/format', ...wireTypes];
allowed['studio/parts'] = belowParts;
allowed['studio/parts/chart'] = ['studio/parts', ...belowParts];
const belowPages = ['studio/parts', 'studio/parts/chart', ...belowParts];
const pages = readdirSync('studio/pages').map((name) => `studio/pages/${name}`);
for (const page of pages) allowed[page] = belowPages;
allowed['studio/pages/runs'] = ['studio/pages/run', ...belowPages];
allowed['studio/shell'] = [...pages, 'studio', ...belowPages];
allowed['studio/look'] = wireTypes;
allowed.studio = ['studio/shell', 'studio/look', ...belowPages];

const leaves = [
  'src/arguments.ts',
  'src/errors.ts',
  'src/exit-codes.ts',
  'src/existing-file.ts',
  'src/expectation.ts',
  'src/folder.ts',
  'src/line-file.ts',
  'src/lookup.ts',
  'src/pattern.ts',
  'src/progress.ts',
  'src/random.ts',
  'src/shell.ts',
  'src/spelling.ts',
];

/** The layer a path belongs to: its folder, or the file itself where it lies at the root of src/. */
const layerOf = (path: string) => (dirname(path) === 'src' ? path : dirname(path));

/** src/trainers/loop/loop.ts → src/trainers */
const houseOf = (path: string) => path.split('/').slice(0, 2).join('/');

function importsOf(path: string, source: string): string[] {
  return [...source.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)['"](\.[^'"]*)['"]/g)].map(([, specifier]) =>
    relative('.', join(dirname(path), specifier ?? '')),
  );
}

/** What is wrong with the relative imports of one file (`path` from the repository's root). */
function faults(path: string, source: string): string[] {
  const from = layerOf(path);
  return importsOf(path, source).flatMap((target) => {
    const to = layerOf(target);
    if (to === from || leaves.includes(target)) return [];
    // What several tests share lies in tests/. A test may use its whole house, rooms above it included.
    if (path.endsWith('.test.ts') && (to.startsWith('tests') || houseOf(to) === houseOf(path))) return [];
    if (path.endsWith('/index.ts') && to.startsWith(`${from}/`)) return [];
    return allowed[from]?.includes(to) ? [] : [`${path} imports ${target}: ${from} may not use ${to}`];
  });
}

/**
 * Groups of files that import each other in a circle (Tarjan's strongly connected components of more than one file).
 */
function circles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (file: string) => {
    index.set(file, index.size);
    low.set(file, index.get(file) as number);
    stack.push(file);
    for (const next of graph.get(file) ?? []) {
      if (!index.has(next)) visit(next);
      if (stack.includes(next)) low.set(file, Math.min(low.get(file) as number, low.get(next) as number));
    }
    if (low.get(file) !== index.get(file)) return;
    const group = stack.splice(stack.indexOf(file));
    if (group.length > 1) found.push(group.sort());
  };
  for (const file of graph.keys()) if (!index.has(file)) visit(file);
  return found;
}

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

describe('layers', () => {
  const files = ['src', 'studio'].filter(existsSync).flatMap(sources);
  const texts = new Map(files.map((path) => [path, readFileSync(path, 'utf8')]));
  const isProduct = (path: string) => !/\.test(-support)?\.ts$/.test(path);

  it('finds the sources', () => expect(files.length).toBeGreaterThan(5));

  it('import only downward', () => {
    const product = files.filter((path) => !/test-support/.test(path));
    expect(product.flatMap((path) => faults(path, texts.get(path) as string))).toEqual([]);
  });

  it('no files import each other in a circle', () => {
    const graph = new Map(
      files.filter(isProduct).map((path) => [path, importsOf(path, texts.get(path) as string)] as const),
    );
    expect(circles(graph)).toEqual([]);
  });

  it('nobody below the command line asks which rank it is but src/dist', () => {
    const asks = /\breadPlace\b|\benv\.(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE)\b|\bSLURM_|\bTORCHELASTIC_/;
    const others = files.filter((path) => isProduct(path) && !/^src\/(dist|cli)\//.test(path));
    expect(others.filter((path) => asks.test(texts.get(path) as string))).toEqual([]);
  });

  it('every folder of src is known', () => {
    const layers = new Set(
      files.map(layerOf).filter((layer) => !leaves.some((leaf) => layer.startsWith(leaf.slice(0, -3)))),
    );
    expect([...layers].filter((layer) => !(layer in allowed))).toEqual([]);
  });

  it('no hall: a folder holds some fifteen files, unless they are siblings of one kind', () => {
    const siblings = ['src/models/families', 'src/tasks/problems', 'src/cli', 'src/algorithms/policy'];
    const counts = Map.groupBy(files.filter(isProduct), layerOf);
    const halls = [...counts].filter(([folder, inside]) => inside.length > 16 && !siblings.includes(folder));
    expect(halls.map(([folder, inside]) => `${folder}: ${inside.length} files`)).toEqual([]);
  });

  it('nor has native one', () => {
    const inside = readdirSync('native', { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    const counts = Map.groupBy(inside, ({ parentPath }) => parentPath);
    expect(inside.length).toBeGreaterThan(50);
    expect([...counts].filter(([, names]) => names.length > 16).map(([folder]) => folder)).toEqual([]);
  });

  it.each([
    ["import { x } from '../trainers/loop/loop.ts';", 'src/models/qwen.ts'],
    ["import type { T } from '../nn/module.ts';", 'src/tensor/op.ts'],
    ["export * from '../../data/dataset.ts';", 'src/text/chat/tokenizer.ts'],
    ["const m = await import('../cli/main.ts');", 'src/nn/linear.ts'],
    ["import '../trainers/index.ts';", 'src/evaluate/accuracy.ts'],
    ["import { load } from '../files/decoder.ts';", 'src/models/decoder/decoder.ts'],
    ["import { x } from '../policy/policy.ts';", 'src/trainers/preference/preference.ts'],
    ["import { t } from './tensor/index.ts';", 'src/errors.ts'],
    ["import { toy } from '../../../tests/loop/toy.ts';", 'src/trainers/loop/loop.ts'],
  ])('would see %s in %s', (source, path) => expect(faults(path, source)).toHaveLength(1));

  it.each([
    ["import { x } from './loop.ts';", 'src/models/qwen.ts'],
    ["import { UserError } from '../errors.ts';", 'src/tensor/dtype.ts'],
    ["import { Linear } from '../nn/index.ts';", 'src/models/qwen.ts'],
    ["import { z } from 'zod';", 'src/text/chat.ts'],
    ["export { x } from './lora/lora.ts';", 'src/models/index.ts'],
    ["import { toy } from '../../../tests/loop/toy.ts';", 'src/trainers/loop/loop.test.ts'],
  ])('allows %s in %s', (source, path) => expect(faults(path, source)).toEqual([]));

  it('would see a circle', () => {
    const graph = new Map([
      ['a', ['b']],
      ['b', ['c']],
      ['c', ['a']],
      ['d', ['a']],
    ]);
    expect(circles(graph)).toEqual([['a', 'b', 'c']]);
  });
});
