/**
 * Models to serve in tests: models/tiny as it ships, with a template that supports tools, with a reward head, with
 * adapters.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { addLora, loadModelFolder, saveAdapter, saveModel } from '../models/index.ts';
import type { RewardNotes } from '../rewards/index.ts';
import { rewardHeads } from '../rewards/reward-notes.ts';
import { noGrad, scope, seed } from '../tensor/index.ts';
import { Tokenizer } from '../text/index.ts';

export const tiny = join(import.meta.dirname, '../../models/tiny');
export const question = [{ role: 'user' as const, content: 'Spell "abu" backward. Answer with one word.' }];

/** Tools first, like Hermes, and past calls as tags. */
const hermes = `{% if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}
Call one as <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}{% for call in message['tool_calls'] or [] %}<tool_call>
{"name": "{{ call['function']['name'] }}", "arguments": {{ call['function']['arguments'] | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** models/tiny with a chat template of Hermes' kind. */
export function withTools(folder: string, template = hermes): string {
  cpSync(tiny, folder, { recursive: true });
  const path = join(folder, 'tokenizer_config.json');
  const config = JSON.parse(readFileSync(path, 'utf8')) as object;
  writeFileSync(path, JSON.stringify({ ...config, chat_template: template }));
  return folder;
}

/** A reward model with a random head: these tests need only scores that are the same each time. */
export async function rewardModel(folder: string): Promise<string> {
  using model = loadModelFolder(tiny, { dtype: 'float32' });
  const { kind, outputs } = rewardHeads.preference;
  const { weight } = model.addHead(kind, outputs);
  scope(() => void weight.detach().copy_(model.decoder.weights.embedding.weight.detach().narrow(0, 300, outputs)));
  const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 512 } as const;
  model.notes.reward = { type: 'preference', step: 1, mean: 0, std: 1, count: 1, ...reading } satisfies RewardNotes;
  saveModel(model, folder);
  await (await Tokenizer.load(tiny)).save(folder);
  return folder;
}

/** An adapter on models/tiny that changes its output. */
export function adapter(folder: string, number: number): string {
  mkdirSync(folder, { recursive: true });
  seed(number);
  using model = loadModelFolder(tiny, { dtype: 'float32' });
  addLora(model, { r: 4, alpha: 8, dropout: 0 });
  noGrad(() => {
    for (const [name, weight] of model.adapters?.parameters() ?? [])
      if (name.includes('lora_B')) weight.normal_(0, 0.05);
  });
  saveAdapter(model, folder);
  return folder;
}
