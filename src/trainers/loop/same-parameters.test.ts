import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { checkSameParameters } from './same-parameters.ts';
import { configFile } from './state.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-same-parameters-'));
afterAll(() => rmSync(folder, { recursive: true }));
const before = { dtype: 'bfloat16', device: 'cpu', lora: true, lora_r: 16, lora_bias: 'none', lr: 1e-3 };
const check = (now: Record<string, unknown>, was: Record<string, unknown> = before) => {
  writeFileSync(join(folder, configFile), JSON.stringify(was));
  return () => checkSameParameters(folder, { ...was, ...now });
};

it('names the option that would make other parameters, and both values', () => {
  expect(check({ dtype: 'float32' })).toThrow(/with --dtype float32: it was trained with bfloat16\. Leave --dtype out/);
  expect(check({ lora_r: 8 })).toThrow(/with --lora-r 8: it was trained with 16/);
  expect(check({ lora_alpha: 64 }, { ...before, lora_alpha: 32 })).toThrow(/--lora-alpha 64: it was trained with 32/);
  expect(check({ lora: false })).toThrow(/with --lora false/);
});

it('knows that a base without a quantised type is a plain one', () => {
  expect(check({ quant_type: 'int4' })).toThrow(
    /with --quant-type int4: it was trained with none\. Leave --quant-type out/,
  );
  expect(check({ quant_type: 'int4' }, { ...before, quant_type: 'int8' })).toThrow(/it was trained with int8/);
  expect(check({ quant_type: 'int4' }, { ...before, quant_type: 'int4' })).not.toThrow();
  // without the option the family decides, possibly on the same modules
  expect(check({ lora_target_modules: ['q_proj'] })).not.toThrow();
});

it('takes a dtype by what it means on the device', () => {
  const auto = { dtype: 'auto', device: 'cpu' };
  expect(check({ dtype: 'float32' }, auto)).not.toThrow();
  expect(check({ dtype: 'bfloat16' }, auto)).toThrow(/--dtype bfloat16: it was trained with float32/);
  expect(check({ dtype: 'bfloat16' }, { dtype: 'auto', device: 'cuda:0' })).not.toThrow();
});

it('lets all else change, and knows nothing of a checkpoint without a config', () => {
  expect(check({ lr: 1e-4, device: 'cpu' })).not.toThrow();
  expect(check({ lora_r: 8 }, { ...before, lora: false })).not.toThrow();
  rmSync(join(folder, configFile));
  expect(() => checkSameParameters(folder, before)).not.toThrow();
});
