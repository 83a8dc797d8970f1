/** The output folder of a quantised model and its measurements. */
import { copyFileSync, existsSync, readdirSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import { resolveModel } from '../../hub/hub.ts';
import { type Model, type QuantType, saveModel } from '../../models/index.ts';
import { type Chart, grid, readJson, toPng } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';

export const RESULTS = 'evaluation_results.json';

/** `C/quantized_int4` for a folder C, `./quantized_models/NAME_int4` for a hub model, or the requested folder. */
export function outputFolder(source: string, type: QuantType, asked?: string): string {
  const local = existsSync(source);
  const folder = resolve(
    asked ??
      (local
        ? join(source, `quantized_${type}`)
        : join('quantized_models', `${basename(source.split('@')[0] as string)}_${type}`)),
  );
  if (local && resolve(source) === folder)
    throw new UserError(`--output-dir ${asked}: that is the model itself; results go to a folder of their own.`);
  if (existsSync(folder) && !existsSync(join(folder, RESULTS)))
    throw new UserError(
      `${folder} is there already and is not a result of attune quantize. Name another with --output-dir.`,
    );
  return folder;
}

/** The config that a checkpoint (or an adapter, not its base) was trained with. Empty for other models. */
export async function trainedWith(source: string): Promise<Record<string, unknown>> {
  return readJson<Record<string, unknown>>(join(await resolveModel(source), 'train_config.json')) ?? {};
}

export interface QuantisedOutput {
  results: object;
  report: string;
  charts: Chart[];
  title: string;
  /** null: writes only the measurements. */
  model: { model: Model; tokenizer: Tokenizer } | null;
}

/**
 * Writes to a temporary folder and renames it, so that the folder is complete or absent. An earlier run's folder is
 * replaced. If only measurements are written, a model in it stays.
 */
export async function writeOutput(folder: string, output: QuantisedOutput): Promise<void> {
  const partial = join(dirname(folder), `.${basename(folder)}.${process.pid}`);
  rmSync(partial, { recursive: true, force: true });
  makeFolder(partial);
  try {
    if (output.model !== null) {
      const { model, tokenizer } = output.model;
      saveModel(model, partial);
      await tokenizer.save(partial);
      const generation = join(model.folder ?? '', 'generation_config.json');
      if (model.folder !== undefined && existsSync(generation))
        copyFileSync(generation, join(partial, 'generation_config.json'));
    }
    writeFileSync(join(partial, RESULTS), `${JSON.stringify(output.results, null, 2)}\n`);
    writeFileSync(join(partial, 'quantization_report.txt'), output.report);
    writeFileSync(
      join(partial, 'quantization.png'),
      await toPng(grid(output.charts, { columns: 3, title: output.title })),
    );
    if (output.model === null && existsSync(folder)) {
      for (const name of readdirSync(partial)) renameSync(join(partial, name), join(folder, name));
      rmdirSync(partial);
      return;
    }
    rmSync(folder, { recursive: true, force: true });
    renameSync(partial, folder);
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    throw error;
  }
}
