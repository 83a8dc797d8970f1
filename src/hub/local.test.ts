import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { resolveModel } from './hub.ts';

let run = '';
const put = (path: string) => {
  mkdirSync(dirname(join(run, path)), { recursive: true });
  writeFileSync(join(run, path), '{}');
};
beforeEach(() => {
  run = mkdtempSync(join(tmpdir(), 'attune-run-'));
  put('run.json');
  put('config.json');
});
afterEach(() => rmSync(run, { recursive: true }));

it('a run stands for its final model, else for the best, else for the newest checkpoint', async () => {
  await expect(resolveModel(run)).rejects.toThrow('is a run that has saved no model yet');
  put('step-9/model.safetensors');
  put('step-10/model.safetensors');
  put('superseded-step-12/model.safetensors');
  expect(await resolveModel(run)).toBe(join(run, 'step-10'));
  put('best_model/model.safetensors');
  expect(await resolveModel(run)).toBe(join(run, 'best_model'));
  put('final/adapter_model.safetensors');
  expect(await resolveModel(run)).toBe(join(run, 'final'));
  expect(await resolveModel(run, { tokenizerOnly: true })).toBe(join(run, 'final'));
});

it('a folder with weights is itself, whatever else lies there', async () => {
  put('model.safetensors');
  put('final/model.safetensors');
  expect(await resolveModel(run)).toBe(run);
});

it('a folder without a model is refused, and the model in it named', async () => {
  const model = join(run, 'taken');
  put('taken/notes.txt');
  await expect(resolveModel(model)).rejects.toThrow(/taken" holds no model: .* It holds: notes\.txt\.$/);
  put('taken/inner/config.json');
  await expect(resolveModel(model, { tokenizerOnly: true })).rejects.toThrow(`Did you mean "${model}/inner"?`);
});

it('says once which model of a run without a final one is used', async () => {
  const notes: string[] = [];
  const done = (text?: string) => void notes.push(text ?? '');
  const progress = { start: () => ({ advance() {}, done }) };
  put('step-2/model.safetensors');
  for (const options of [{ tokenizerOnly: true }, {}, {}]) await resolveModel(run, { ...options, progress });
  expect(notes).toEqual(['the run has no final model; step-2 is used']);
  put('final/model.safetensors');
  await resolveModel(run, { progress });
  expect(notes).toHaveLength(1);
});
