import { lookup } from '../../lookup.ts';

/**
 * Fields of other libraries' config files that have no single equivalent here, with what to write instead. Fields that
 * mean the same under another name are aliases of the field itself.
 */
const advice: Record<string, string> = {
  data: 'Name tasks or a dataset: task: "spell_backward:1", or dataset: <file or hub name>.',
  promptsPerStep: 'Prompts of a step are batch_size × grad_accum here.',
  trainBatchSize: 'Responses are packed: micro_batch_tokens says how many tokens go through the model at once.',
  batchAcc: 'Responses are packed: micro_batch_tokens says how many tokens go through the model at once.',
  rolloutBatchSize: 'rollout_slots says how many responses are sampled at the same time.',
  modelDeviceId: 'Write device: "cuda:0".',
  refModelDeviceId: 'The reference is on the device of the model: leave this out.',
  valModelDeviceId: 'The value head is on the device of the model: leave this out.',
  fp16: 'float16 overflows without loss scaling: write dtype: bfloat16.',
};

/** Advice for an unknown field that another library has. */
export const adviceOn = (name: string): string | undefined => lookup(advice, name);
