/** Reward models of every type made from models/tiny, without training. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadModelFolder, saveModel } from '../../src/models/index.ts';
import { type RewardNotes, type RewardType, rewardHeads } from '../../src/rewards/reward-notes.ts';
import { Tokenizer } from '../../src/text/index.ts';

const tiny = fileURLToPath(new URL('../../models/tiny', import.meta.url));

/** Its head is some of the embedding: random enough, and the same each time. Returns the model's folder. */
export async function tinyRewardModel(parent: string, type: RewardType): Promise<string> {
  const path = join(parent, `rm-${type}`);
  using model = loadModelFolder(tiny, { dtype: 'float32' });
  const { kind, outputs } = rewardHeads[type];
  const { weight } = model.addHead(kind, outputs);
  weight.detach().copy_(model.decoder.weights.embedding.weight.detach().narrow(0, 300, outputs));
  const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 512 } as const;
  model.notes.reward = { type, step: 1, mean: 0, std: 1, count: 1, ...reading } satisfies RewardNotes;
  saveModel(model, path);
  await (await Tokenizer.load(tiny)).save(path);
  return path;
}
