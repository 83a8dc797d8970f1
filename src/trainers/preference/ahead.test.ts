/** Starting work of the next step before a step's numbers are read, as on CUDA, changes only the order. */
import { describe, expect, it, vi } from 'vitest';
import { type Given, preferenceTrainings } from '../../../tests/support/preference-training.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { liveTensors, scope } from '../../tensor/index.ts';
import { StepBatches } from '../batches/step-batches.ts';
import { ModelReference } from '../reference/reference.ts';
import { PreferenceObjective } from './objective.ts';

const { start } = preferenceTrainings();

type Watched = { plain?: boolean; stopAfter?: number; worksAhead?: boolean };

/** `plain`: the next step's reference is not started early. */
async function train({
  plain = false,
  stopAfter = Number.POSITIVE_INFINITY,
  worksAhead = true,
  ...given
}: Given & Watched = {}) {
  using run = await start({ maxSteps: 5, ...given }, { worksAhead });
  const ahead = vi.spyOn(PreferenceObjective.prototype, 'startReference');
  if (plain) ahead.mockImplementation(() => {});
  const metrics: Record<string, number>[] = [];
  try {
    for await (const step of run) {
      const entries = Object.entries(step.metrics).filter(([name]) => !/time|per_second/.test(name));
      metrics.push(Object.fromEntries(entries));
      if (step.step === stopAfter) break;
    }
  } finally {
    ahead.mockRestore();
  }
  const weights = scope(() => Array.from(run.model.trainable(), ([name, weight]) => [name, weight.detach().numbers()]));
  return { metrics, weights: Object.fromEntries(weights), folder: run.folder };
}

const cases: Record<string, Given> = {
  'adapters, whose base is the reference': { lora: true, loraR: 4, loraDropout: 0.1 },
  'a reference that moves': { refModelUpdateFreq: 2 },
  'evaluations between steps, and a last step of fewer batches': { evalSteps: 2, maxSteps: undefined, epochs: 1.5 },
  'a loss whose baseline needs the policy': { loss: 'kto' },
};

describe('a step that starts the next one’s reference', () => {
  // runs first, before other tests leave tensors to the garbage collector
  it('goes on as if it had not been stopped, and leaves no tensors', async () => {
    const before = await settledTensors();
    const given = { saveSteps: 100, saveModel: true };
    const whole = await train({ ...given, plain: true });
    const stopped = await train({ ...given, stopAfter: 2 });
    expect(liveTensors()).toBe(before);
    const resumed = await train({ ...given, resumeFrom: stopped.folder });
    expect(liveTensors()).toBe(before);
    expect(resumed.metrics).toEqual(whole.metrics.slice(2));
    expect(resumed.weights).toEqual(whole.weights);
  });

  it.each(Object.entries(cases))('gives the same numbers: %s', async (_, given) => {
    const [one, other] = [await train({ ...given, plain: true }), await train(given)];
    expect(other.metrics).toEqual(one.metrics);
    expect(other.weights).toEqual(one.weights);
  });

  it('asks the reference once for each step, and for the second before the first has ended', async () => {
    using use = vi.spyOn(ModelReference.prototype, 'use');
    const calls = async (given: Watched) => {
      use.mockClear();
      await train(given);
      return use.mock.calls.length;
    };
    expect(await calls({ stopAfter: 1, plain: true })).toBe(1);
    expect(await calls({ stopAfter: 1 })).toBe(2);
    expect(await calls({})).toBe(5);
  });

  it('reads the next step’s batches only where something is started ahead', async () => {
    using peek = vi.spyOn(StepBatches.prototype, 'peek');
    await train({ worksAhead: false });
    expect(peek).not.toHaveBeenCalled();
    await train();
    expect(peek).toHaveBeenCalledTimes(4);
  });

  it('leaves an error of that work to the next step', async () => {
    const real = ModelReference.prototype.use;
    let asked = 0;
    using _ = vi.spyOn(ModelReference.prototype, 'use').mockImplementation(function (this: ModelReference, body) {
      if (++asked > 3) throw new Error('no memory left');
      return real.call(this, body) as never;
    });
    // of the fourth step: once started by the third, once by itself
    await expect(train()).rejects.toThrow('no memory left');
    expect(asked).toBe(5);
  });
});
