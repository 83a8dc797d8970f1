/** Writes a model in bfloat16, half its size: npm run recipe -- recipes/tiny-model/to-bfloat16.ts <model> <folder> */
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel, saveModel } from '../../src/models/index.ts';

const [from, to] = process.argv.slice(2);
if (from === undefined || to === undefined)
  throw new Error('usage: npm run recipe -- recipes/tiny-model/to-bfloat16.ts <model> <folder>');
using model = await loadModel(from, { dtype: 'bfloat16' });
mkdirSync(to, { recursive: true });
await saveModel(model, to);
for (const file of ['tokenizer.json', 'tokenizer_config.json']) cpSync(join(from, file), join(to, file));
