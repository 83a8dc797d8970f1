/** Every option of `attune export` does something; see command-walk.ts. */
import { afterAll, beforeAll } from 'vitest';
import { exportGgufSchema, exportMergedSchema } from '../../src/cli/export.ts';
import { addLora, loadModel, saveModel } from '../../src/models/index.ts';
import { noGrad } from '../../src/tensor/index.ts';
import { changes, fails, mends, walkCommand } from './command-walk.ts';
import { at, makeModels, removeFiles, there } from './files.ts';

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  using adapted = await loadModel(at('model'));
  const lora = addLora(adapted, { r: 2 });
  // A fresh adapter changes nothing.
  noGrad(() => {
    for (const [, tensor] of lora.parameters()) tensor.normal_(0, 0.1);
  });
  saveModel(adapted, at('trained-adapter'));
});

const source = {
  model: changes(() => at('other')),
  adapter: changes(() => at('trained-adapter')),
};

walkCommand(['export', 'merged'], exportMergedSchema, {
  base: () => ({ model: at('model') }),
  output: 'out',
  proofs: { ...source, dtype: changes('float16'), out: fails('/proc/nope/x', /--out/) },
});

walkCommand(['export', 'gguf'], exportGgufSchema, {
  base: () => ({ model: at('model') }),
  output: 'out',
  ending: '.gguf',
  proofs: {
    ...source,
    type: changes('f16'),
    out: fails('/proc/nope/x.gguf', /--out/),
    overwrite: mends(true, () => ({ out: there('x.gguf', 'GGUF') })),
  },
});
