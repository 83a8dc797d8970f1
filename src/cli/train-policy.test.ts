/** What `attune train policy` says to input that cannot work: exit code 2, one clear sentence, and nothing begun. */
import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { loadModelFolder, saveModel } from '../models/index.ts';
import { openRun } from '../runs/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-bad-input-'));
const output = join(folder, 'out');
const at = (name: string) => join(folder, name);
beforeAll(async () => {
  await tinyModel(at('model'));
  const texts = ['quite other words make quite another vocabulary, said the walrus '.repeat(9)];
  await tinyModel(at('other'), { texts, vocabSize: 290 });
  await tinyModel(at('larger'), { texts, vocabSize: 320 });
  await tinyModel(at('same-size'), { texts, vocabSize: loadModelFolder(at('model')).decoder.spec.vocabSize });
  {
    using quantised = loadModelFolder(at('model'), { dtype: 'float32', quantType: 'int8' });
    saveModel(quantised, at('model8'));
    quantised.addHead('reward', 1);
    const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 512 };
    Object.assign(quantised.notes, { reward: { type: 'preference', step: 1, ...reading } });
    saveModel(quantised, at('rm8'));
    Object.assign(quantised.notes, { reward: { type: 'preference', step: 1, ...reading, maxLength: 4 } });
    saveModel(quantised, at('rm-short'));
  }
  for (const name of ['model8', 'rm8', 'rm-short']) cpSync(at('model/tokenizer.json'), at(`${name}/tokenizer.json`));
  const prompts = ['red', 'blue', 'yes', 'no'].map((prompt) => `${JSON.stringify({ prompt })}\n`);
  writeFileSync(at('prompts.jsonl'), prompts.join(''));
  writeFileSync(at('one.jsonl'), '{"prompt": "red"}\n');
  writeFileSync(
    at('answers.jsonl'),
    prompts.map((_, i) => `${JSON.stringify({ prompt: `${i} + 1 =`, answer: `${i + 1}` })}\n`).join(''),
  );
  writeFileSync(at('text.jsonl'), '{"text": "red"}\n');
  writeFileSync(at('broken.ts'), 'export default (batch => {');
  writeFileSync(at('silent.ts'), 'export const weight = 1;');
  writeFileSync(at('ones.ts'), 'export default (batch: unknown[]) => batch.map(() => 1);');
  writeFileSync(at('hanging.ts'), 'export default () => new Promise(() => {});');
});
afterAll(() => rmSync(folder, { recursive: true }));

const sizes = '--max-steps 1 --batch-size 1 --grad-accum 1 --group-size 2 --max-new-tokens 3 --lr 1e-3';
const heldOut = '--eval-num-prompts 2';
const train = (line: string, evaluation = heldOut) => {
  const words = line.split(' ').map((word) => word.replace('@', `${folder}/`));
  const places = ['--output-dir', output, '--log-dir', at('logs'), '--report-to', 'none'];
  return attune(
    'train',
    'policy',
    '--model',
    at('model'),
    ...places,
    ...sizes.split(' '),
    ...evaluation.split(' '),
    ...words,
  );
};

it.each([
  ['--task chian_sum:1', 'Unknown task "chian_sum". Did you mean "chain_sum"?'],
  ['--task chain_sum:9', 'difficulty 9 is not within 1 to 5'],
  ['--task chain_sum:x', 'expected name[:difficulty][*weight]'],
  ['--task gcd:1 --dataset @prompts.jsonl', 'from --task or from --dataset, not from both'],
  ['--eval-steps 1', 'There are no prompts: name tasks with --task'],
  ['--dataset @none.jsonl', 'none.jsonl: no such file or folder'],
  ['--dataset @text.jsonl', 'A prompts set needs prompt'],
  ['--dataset @one.jsonl', 'no prompts to train on: 1 held out for evaluation (--eval-num-prompts 2)'],
  ['--task gcd:1 --algorithm grop', 'no policy algorithm "grop". Did you mean "grpo"?'],
  ...['grpo', 'rloo', 'maxrl', 'raft'].map((name) => [
    `--task gcd:1 --algorithm ${name} --group-size 1`,
    `${name} compares the responses to one prompt: --group-size must be 2 or more`,
  ]),
  ['--task gcd:1 --algorithm grpo --gamma 0.9', '--gamma has no effect on grpo'],
  ['--task gcd:1 --algorithm opd', 'opd learns from a teacher: name a model with the same tokenizer'],
  ['--task gcd:1 --teacher @model8', '--teacher: has no effect here: grpo learns from rewards'],
  ['--task gcd:1 --algorithm opd --teacher @model', 'it has nothing to learn from itself'],
  ['--task gcd:1 --algorithm opd --teacher @nothing', 'nothing" does not exist'],
  ['--task gcd:1 --algorithm opd --teacher @rm8', 'is a reward model, not a policy'],
  ['--task gcd:1 --algorithm opd --teacher @larger', 'has another tokenizer than the model that is trained'],
  ['--task gcd:1 --algorithm opd --teacher @same-size', 'has another tokenizer than the model that is trained'],
  ['--task gcd:1 --algorithm opd --teacher @model8 --teacher-quant-type int4', 'int8 already and cannot become int4'],
  [
    '--task gcd:1 --algorithm opd --teacher @model8 --eos-penalty 1',
    '--eos-penalty: has no effect here: opd learns from',
  ],
  ['--task gcd:1 --algorithm opd --teacher @model8 --kl-coef 0.1', '--kl-coef has no effect on opd'],
  ['--task gcd:1 --algorithm opd --teacher @model8 --overlong-ramp 0.1', '--overlong-ramp has no effect on opd'],
  ['--task gcd:1 --distill-as loss', '--distill-as has no effect on grpo'],
  ['--task gcd:1 --algorithm raft --clip-low 0.1', '--clip-low has no effect on raft'],
  ['--task gcd:1-2,gcd:3-4 --curriculum', 'names gcd twice: name it once'],
  ['--task gcd:1 --lr -1', '--lr: expected a number at least 0, got -1'],
  ['--task gcd:1 --temperature 0', '--temperature: expected a number more than 0, got 0'],
  ['--task gcd:1 --top-p two', '--top-p: expected a number, got "two"'],
  ['--task gcd:1 --curriculm', "unknown option '--curriculm'"],
  ['--dataset @prompts.jsonl', 'There is no reward: give --reward-model-path, --reward-module'],
  ['--task gcd:1 --reward-model-path @model', 'is a language model: it has no reward head'],
  ['--task gcd:1 --reward-model-path @none', 'does not exist'],
  ['--task gcd:1 --reward-weights verifier', '"verifier" is not name=weight'],
  ['--task gcd:1 --reward-weights verfier=1', 'no reward "verfier". Did you mean "verifier"?'],
  ['--dataset @prompts.jsonl --reward-module @none.ts', 'There is no reward module'],
  ['--dataset @prompts.jsonl --reward-module @broken.ts', 'broken.ts cannot be loaded'],
  ['--dataset @prompts.jsonl --reward-module @silent.ts', 'exports no function'],
  ['--task gcd:1 --tokenizer @other', 'is not the one that'],
  ['--task gcd:1 --tokenizer @larger', 'they do not belong together'],
  ['--task gcd:1 --ref-quant-type int3', '--ref-quant-type: expected one of int8, int4, got "int3"'],
  ['--task gcd:1 --rm_quant_type int4', '--rm-quant-type int4: there is no reward model to quantise'],
  ['--task gcd:1 --kl-coef 0 --ref-quant-type int8', 'there is no reference to quantise'],
  ['--task gcd:1 --kl-coef 0.1 --ref-quant-type int8 --lora', "with LoRA the reference is the policy's own base"],
  ['--task gcd:1 --device tpu', 'There is no device "tpu"'],
  ['--task gcd:1 --lora --lora-target-modules q_prj', 'q_prj'],
])('%s', async (line, message) => {
  const { code, err } = await train(line);
  expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  expect(existsSync(output)).toBe(false);
});

it.each([
  ['--dataset @prompts.jsonl', 'There is no reward: give --reward-model-path, --reward-module'],
  ['--task gcd:1 --reward-model-path @model', 'is a language model: it has no reward head'],
  ['--task gcd:1 --reward-model-path @none', 'does not exist'],
  ['--dataset @prompts.jsonl --reward-module @none.ts', 'There is no reward module'],
  ['--task gcd:1 --kl-coef 0.1 --ref-model @none', 'does not exist'],
  ['--task gcd:1 --tokenizer @other', 'is not the one that'],
  ['--task gcd:1 --tokenizer @larger', 'they do not belong together'],
  ['--dataset @prompts.jsonl --reward-model-path @rm8 --reward-weights reward_model', 'is not name=weight'],
  ['--task gcd:1 --reward-model-path @rm8 --reward-weights verifier=2', 'There are: reward_model.'],
  ['--task gcd:1 --reward-model-path @rm8 --rm-quant-type int4', 'its weights are int8 already and cannot become int4'],
  ['--task gcd:1 --model @model8 --lora --quant-type int4', 'its weights are int8 already and cannot become int4'],
  ['--task gcd:1 --kl-coef 0.1 --ref-model @model8 --ref-quant-type int4', 'its weights are int8 already'],
  ['--task gcd:1 --algorithm opd', 'opd learns from a teacher'],
  ['--task gcd:1 --algorithm opd --teacher @model', 'it has nothing to learn from itself'],
  ['--task gcd:1 --algorithm opd --teacher @rm8', 'is a reward model, not a policy'],
  ['--task gcd:1 --algorithm opd --teacher @same-size', 'has another tokenizer than the model that is trained'],
])('a dry run finds it too: %s', async (line, message) => {
  const { code, err } = await train(`${line} --dry-run`);
  expect([code, err]).toEqual([2, expect.stringContaining(message)]);
});

it('stops a reward module that never answers', async () => {
  const { code, err } = await train('--dataset @prompts.jsonl --reward-module @hanging.ts --reward-timeout 0.1');
  expect([code, err]).toEqual([1, expect.stringContaining('"hanging" took longer than 0.1 s for a batch')]);
});

it('takes the answers of a set as its reward, with or without evaluation', async () => {
  for (const evaluation of [heldOut, '--eval-steps -1']) {
    const { code, out } = await train('--dataset @answers.jsonl --no-save-model', evaluation);
    expect(code).toBe(0);
    const [, run = ''] = /^saved (.+)$/m.exec(out) ?? [];
    expect(openRun(run).metrics().at(-1)).toHaveProperty('train/accuracy');
  }
});

it('says so when a resumed run is given a reward module that is not there', async () => {
  const { out } = await train('--dataset @prompts.jsonl --reward-module @ones.ts --save-steps 1');
  const [, saved = ''] = /^saved (.+)$/m.exec(out) ?? [];
  const resumed = ['train', 'policy', '--resume-from', join(saved, '..', 'step-1'), '--reward-module', at('nope.ts')];
  const { code, err } = await attune(...resumed);
  expect([code, err]).toEqual([2, expect.stringContaining(`There is no reward module ${at('nope.ts')}.`)]);
});

it('says how many prompts are too long, whatever made them so', async () => {
  writeFileSync(
    at('long.jsonl'),
    ['red', 'blue', 'yes '.repeat(300)].map((prompt) => `${JSON.stringify({ prompt })}\n`).join(''),
  );
  const line = '--dataset @long.jsonl --reward-module @ones.ts --eval-steps -1 --dry-run';
  const { code, err } = await train(line, '--max-new-tokens 300');
  expect([code, err]).toEqual([
    0,
    expect.stringContaining('prompts: 1 of 3 are longer than --prompt-max-length or the room'),
  ]);
});

it('counts the responses that the reward model cannot read whole, over a resume too', async () => {
  const line = '--dataset @prompts.jsonl --reward-model-path @rm-short --save-steps 1 --run-name cut';
  const { code, err } = await train(line);
  const told = (count: number) =>
    expect.stringMatching(
      `${count} of ${count} responses have, with their prompts, more than 4 tokens: the reward model`,
    );
  expect([code, err]).toEqual([0, told(2)]);
  expect(openRun(join(output, 'cut')).metrics().at(-1)).toMatchObject({
    'train/score_truncated': 1,
    'eval/score_truncated': 1,
  });
  const second = await attune('train', 'policy', '--resume-from', join(output, 'cut'), '--max-steps', '2');
  expect([second.code, second.err]).toEqual([0, told(4)]);
  const whole = await train('--dataset @prompts.jsonl --reward-model-path @rm8 --run-name uncut');
  expect([whole.code, whole.err]).toEqual([0, expect.not.stringContaining('more than')]);
  expect(openRun(join(output, 'uncut')).metrics().at(-1)).not.toHaveProperty('train/score_truncated');
});
