/** The models and data of the runs in which options are proven: small, and made anew for each test. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addLora, loadModel, saveModel } from '../../src/models/index.ts';
import { setThreads } from '../../src/tensor/index.ts';
import { trainReward } from '../../src/trainers/reward/reward.ts';
import { tinyModel } from '../support/tiny-model.ts';

// Many tiny runs: threads would only wait for one another.
setThreads(1);

export const folder = mkdtempSync(join(tmpdir(), 'attune-options-'));
export const at = (name: string) => {
  mkdirSync(folder, { recursive: true }); // another file's tests may have ended with removing it
  return join(folder, name);
};
export const removeFiles = () => rmSync(folder, { recursive: true, force: true });

export function writeRows(name: string, rows: readonly unknown[]): string {
  mkdirSync(join(at(name), '..'), { recursive: true });
  writeFileSync(at(name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return at(name);
}

/** A file of an earlier run. */
export function there(name: string, text = '{}\n'): string {
  writeFileSync(at(name), text);
  return at(name);
}

const size = { hiddenSize: 16, layers: 1 };

/** `model`, `other` (other weights), `bare` (no tokenizer), `biased` (with biases), `adapted` (with an adapter), `options.yaml`. */
export async function makeModels(): Promise<void> {
  await tinyModel(at('model'), size);
  await tinyModel(at('other'), { ...size, seed: 2 });
  await tinyModel(at('biased'), { ...size, config: { model_type: 'qwen2', architectures: ['Qwen2ForCausalLM'] } });
  using bare = await loadModel(at('model'));
  saveModel(bare, at('bare'));
  using adapted = await loadModel(at('model'));
  addLora(adapted, { r: 2 });
  saveModel(adapted, at('adapted'));
  writeFileSync(at('options.yaml'), 'lr: 0.5\n');
}

/** A copy of `model` with this chat template. */
export function templated(name: string, template: string): void {
  cpSync(at('model'), at(name), { recursive: true });
  const file = join(at(name), 'tokenizer_config.json');
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), chat_template: template }));
}

/** A reward model that was trained for one step on `model`, in the folder of this name. */
export async function makeRewardModel(name: string, type: 'preference' | 'process' = 'preference'): Promise<void> {
  const rows = { preference: pairs, process: stepRows }[type];
  const short = { maxSteps: 1, analysisSamples: 0, evalSteps: -1, saveSteps: -1, reportTo: ['none' as const] };
  const place = { outputDir: folder, runName: name, validationSplit: 0 };
  await trainReward(
    { model: at('model'), type, dataset: rows, ...place, ...short },
    { cache: false, run: { curves: false } },
  );
}

export const questions = Array.from({ length: 16 }, (_, i) => `What is ${i} + ${i % 3}?`);
export const reply = (i: number) => (i % 2 === 0 ? 'The answer is red' : `blue ${'good '.repeat(i)}`);
export const pairs = questions.map((prompt, i) => ({ prompt, chosen: reply(i), rejected: 'no' }));
export const stepRows = questions.map((prompt, i) => ({
  prompt,
  completions: ['red good', 'no', reply(i)],
  labels: [true, false, i % 2 === 0],
}));

/** A module of an agent that asks once; its reward is the reply's length times `reward`. */
export const agentOf = (reward: number) => `export default {
  name: 'one', start: ({ random }) => 'red ' + random.int(1, 1e6),
  async run({ baseURL, apiKey, problem }) {
    const body = JSON.stringify({ messages: [{ role: 'user', content: problem }] });
    const headers = { 'Content-Type': 'application/json', Authorization: 'Bearer ' + apiKey };
    const answer = await (await fetch(baseURL + '/chat/completions', { method: 'POST', headers, body })).json();
    return { reward: ${reward} * answer.choices[0].message.content.length };
  },
};`;
