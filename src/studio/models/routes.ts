/** Routes of models: the list, what one is, and its quantised and exported copies, which are made by processes. */
import { existsSync, lstatSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { suggestion } from '../../errors.ts';
import { kebabCase } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { Job, ModelInspection } from '../api/models.ts';
import type { ModelPlaces } from '../commands/places.ts';
import type { Processes } from '../commands/processes.ts';
import type { Above } from '../commands/verbs.ts';
import type { Root } from '../http/folder.ts';
import { get, parsed, post, type Route } from '../http/router.ts';
import { shownHere } from '../http/shown.ts';
import type { Catalogue } from '../runs/catalogue.ts';
import { listModels } from './list.ts';

const model = z.string().min(1).max(1000);
const scalar = z.union([z.string().max(1000), z.number(), z.boolean()]);
const quantiseRequest = z.object({
  model,
  kind: z.enum(['reward', 'policy']),
  quantType: z.enum(['int8', 'int4']),
  options: z.record(z.string().regex(/^[a-z][A-Za-z]{0,40}$/), scalar).default({}),
});
/** Options of `attune quantize`, by these names alone: another name of one (`out`, `datasetName`) would pass its check by. */
const quantiseOptions: readonly string[] = [
  ...['dataset', 'split', 'subset', 'onBadRow', 'task', 'evalBatchSize', 'evalNumBatches', 'maxLength', 'seed'],
  ...['numPrompts', 'promptFormat', 'system', 'maxNewTokens', 'temperature', 'promptMaxLength'],
  ...['skipSave', 'outputDir', 'dtype', 'device', 'json'],
];
const exportRequest = z.object({
  model,
  format: z.enum(['merged', 'gguf']),
  out: z.string().min(1).max(500),
  type: z.enum(['f32', 'f16', 'bf16', 'q8_0', 'q4_0']).optional(),
});

const serveRequest = z.object({ model, port: z.number().int().min(0).max(65535).default(8000) });

export interface ModelParts {
  catalogue: Catalogue;
  places: ModelPlaces;
  processes: Processes;
  above: Above;
}

export function modelRoutes({ catalogue, places, processes, above }: ModelParts): Route[] {
  const { root } = catalogue;
  return [
    get('/api/models', async () => ({ models: await listModels(catalogue, places) })),
    get('/api/models/inspect', async ({ query }): Promise<ModelInspection> => {
      const name = query.get('model') ?? '';
      if (above.inspect === undefined)
        throw new ApiError(501, 'This studio cannot inspect models: it was not opened by `attune studio`.');
      return { model: name, ...(await above.inspect(places.find(name))) };
    }),
    post('/api/models/quantise', ({ body }): Job => {
      const { model: name, kind, quantType, options } = parsed(quantiseRequest, body);
      const source = places.find(name);
      const given = Object.keys(options).find((key) => !quantiseOptions.includes(key));
      if (given !== undefined)
        throw new ApiError(400, `options.${given} is not taken here.${suggestion(given, quantiseOptions)}`, {
          code: 'invalid',
          param: `options.${given}`,
        });
      if (typeof options.dataset === 'string') options.dataset = shownHere(places.find(options.dataset));
      if (typeof options.outputDir === 'string') options.outputDir = newPath(root, options.outputDir);
      const flags = Object.entries(options).flatMap(([key, value]) => flag(key, value));
      const from = [kind === 'reward' ? '--checkpoint' : '--model', shownHere(source)];
      const args = ['quantize', kind, ...from, '--quant-type', quantType, ...flags];
      return processes.run('quantise', `${name} in ${quantType}`, args).job;
    }),
    post('/api/models/export', ({ body }): Job => {
      const { model: name, format, out, type } = parsed(exportRequest, body);
      const source = places.find(name);
      const path = newPath(root, out);
      const args = ['export', format, '--model', shownHere(source), '--out', shownHere(path)];
      if (format === 'gguf' && type !== undefined) args.push('--type', type);
      return processes.run('export', `${name} as ${format}`, args, () => ({ path: shownHere(path) })).job;
    }),
    post('/api/models/serve', ({ body }): Job => {
      const { model: name, port } = parsed(serveRequest, body);
      return processes.serve(`${name} served`, ['serve', shownHere(places.find(name)), '--port', String(port)]).job;
    }),
  ];
}

function flag(name: string, value: string | number | boolean): string[] {
  if (typeof value === 'boolean') return [value ? `--${kebabCase(name)}` : `--no-${kebabCase(name)}`];
  return [`--${kebabCase(name)}=${value}`];
}

/** A path to be written: below the root, and so is the folder that it comes into, and what is there, with all links followed. */
function newPath(root: Root, given: string): string {
  const path = resolve(root.path, given);
  let folder = dirname(path);
  while (!existsSync(folder) && dirname(folder) !== folder) folder = dirname(folder);
  const isOwn = (place: string) => root.find(place) !== undefined;
  if (
    given.includes('\0') ||
    !isOwn(folder) ||
    !root.holds(path) ||
    path === root.path ||
    (isLink(path) && !isOwn(path))
  )
    throw new ApiError(400, `"${given.slice(0, 200)}" is no path below the studio's folder.`, {
      code: 'invalid',
      param: 'out',
    });
  return path;
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
  } catch {
    return false; // below a file
  }
}
