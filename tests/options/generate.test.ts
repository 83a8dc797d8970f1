/** Every option of `attune generate` does something or is refused; see command-walk.ts. */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { generateSchema } from '../../src/cli/generate.ts';
import { loadModel, saveModel } from '../../src/models/index.ts';
import { aten } from '../../src/tensor/index.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, removeFiles, templated } from './files.ts';

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  templated('chatting', '{% for m in messages %}good {{ m.content }} good{% endfor %}');
  using quantised = await loadModel(at('model'), { quantType: 'int8', dtype: 'float32' });
  saveModel(quantised, at('quantised'));
  copyFileSync(join(at('model'), 'tokenizer.json'), join(at('quantised'), 'tokenizer.json'));
});

const sampling = { temperature: 1 };
const tokens = { prompt: undefined, ids: '1,2,3' };
const greedy = /--temperature 0/;

walkCommand(['generate'], generateSchema, {
  base: () => ({ model: at('model'), prompt: 'What is 3', maxNewTokens: 6, json: true, dtype: 'float32' }),
  proofs: {
    model: changes(() => at('other')),
    tokenizer: mends(
      () => at('model'),
      () => ({ model: at('bare') }),
    ),
    dtype: changes('bfloat16'),
    device: fails('cuda:99', /cuda/i),
    quantType: [
      changes('int4'),
      fails('int4', /its weights are int8 already and cannot become int4/, () => ({ model: at('quantised') })),
    ],
    precision: [
      fails('quick', /exact.*fast/),
      // what is not faster is left as it is
      ...(aten<boolean>('attune::can_round') ? [changes('fast', () => ({ model: at('quantised') }))] : []),
    ],
    cacheDtype: [changes('int8'), fails('fp8', /model.*int8/)],
    prompt: changes('blue red'),
    ids: changes('4,5', { prompt: undefined, ids: '1,2,3' }),
    chat: [changes(true, () => ({ model: at('chatting') })), refused(true, /taken as they are/, tokens)],
    maxNewTokens: changes(3),
    temperature: changes(2),
    topK: [changes(2, sampling), refused(2, greedy)],
    topP: [changes(0.05, sampling), refused(0.5, greedy)],
    minP: [changes(0.9, sampling), refused(0.5, greedy)],
    repetitionPenalty: changes(5, { maxNewTokens: 20 }),
    stop: changes(['e', 'o', 'a', 's', ' '], { maxNewTokens: 20, ...sampling }),
    ignoreEos: changes(true, { maxNewTokens: 400, ...sampling }),
    samples: [changes(2, sampling), refused(2, greedy)],
    seed: changes(7, sampling),
    json: changes(false),
  },
});
