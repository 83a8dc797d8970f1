/** A DPO step as `attune train preference` takes it: 16 pairs, the reference asked anew each step, AdamW. */
import { preferenceLoss, preferenceOptions } from '../../src/algorithms/index.ts';
import { addLora, initModel, type Model } from '../../src/models/index.ts';
import { AdamW } from '../../src/nn/index.ts';
import type { TrainTask } from '../../src/trainers/loop/task.ts';
import { type PreferenceExample, PreferenceObjective } from '../../src/trainers/preference/objective.ts';
import { AdapterReference } from '../../src/trainers/reference/adapters.ts';
import { ModelReference } from '../../src/trainers/reference/reference.ts';
import { CPU_LENGTHS, GPU_LENGTHS, randomIds } from '../support/shapes.ts';
import { type Measured, measuredStep, type StepWork, unsaved } from './measured.ts';

const PAIRS = 16;
export const LORA = { r: 16, alpha: 32, targetModules: ['q_proj', 'k_proj', 'v_proj', 'o_proj'] };

/** `make` gives another model than that of the peers; `prompt` is how many tokens every sequence begins with in addition. */
export async function dpoSteps(
  work: StepWork,
  lora: boolean,
  { make, prompt = 0 }: { make?: () => Model; prompt?: number } = {},
): Promise<Measured & { tokens: number }> {
  const { shape } = work;
  const lengths = (work.cuda ? GPU_LENGTHS : CPU_LENGTHS).slice(0, 2 * PAIRS).map((length) => length + prompt);
  const device = work.cuda ? 'cuda:0' : 'cpu';
  // what the peers are given: on the CPU pairs with prompts of 8 tokens, on CUDA sequences that are scored from their second token on
  const promptLength = prompt + (work.cuda ? 1 : 8);
  using model = make?.() ?? initModel(shape, { seed: 0, device });
  if (lora) addLora(model, LORA);
  else model.decoder.requiresGrad_();
  const reference = lora
    ? new AdapterReference(model)
    : new ModelReference(initModel(shape, { seed: 0, device }), model);
  const algorithm = preferenceLoss('dpo');
  const objective = new PreferenceObjective({
    model,
    algorithm,
    options: preferenceOptions(algorithm, {}),
    reference,
    limits: { examples: PAIRS },
    maxLength: shape.max_position_embeddings,
  });
  using optimizer = new AdamW(model.trainable(), { lr: 1e-6 });
  // a run reads its next examples ahead
  const prepared = pairs(lengths, promptLength, shape.vocab_size);
  const fresh = () => prepared.map((pair) => pair.map((response) => ({ ...response })));
  let next = fresh();
  const task: TrainTask = {
    ...unsaved,
    optimizer,
    totalSteps: work.steps + 1,
    async step(_, { update }) {
      const examples = next;
      next = fresh();
      const totals = await objective.totals(examples);
      const ahead = async () => () => objective.startReference(next);
      await update([examples], (part) => objective.backward(part, totals), { ahead });
      return { examples: PAIRS, epoch: 0 };
    },
  };
  const measured = await measuredStep(task, work, { lr: 1e-6, maxGradNorm: 1 });
  objective.dispose();
  reference.dispose();
  return { ...measured, tokens: lengths.reduce((a, b) => a + b, 0) };
}

function pairs(lengths: readonly number[], promptLength: number, vocabulary: number): PreferenceExample[] {
  return Array.from({ length: PAIRS }, (_, pair) => {
    const response = (at: number, chosen: boolean) => {
      const ids = Int32Array.from(randomIds(lengths[at] as number, vocabulary, at));
      ids.set(randomIds(promptLength, vocabulary, pair));
      return { ids, promptLength, chosen };
    };
    return [response(pair, true), response(PAIRS + pair, false)];
  });
}
