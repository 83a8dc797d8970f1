/** models/tiny with noise in its weights: it writes other responses, so that a vote decides between the two. */
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { loadModelFolder, saveModel } from '../../src/models/index.ts';
import { noGrad, randn, scope, seed } from '../../src/tensor/index.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');

/** Writes the model into `folder` and returns it. */
export function otherTiny(folder: string): string {
  cpSync(tiny, folder, { recursive: true });
  using model = loadModelFolder(tiny);
  seed(1);
  noGrad(() =>
    scope(() => {
      for (const [, weight] of model.decoder.parameters()) weight.add_(randn(weight.shape).mul(0.1).to(weight.dtype));
    }),
  );
  saveModel(model, folder);
  return folder;
}
