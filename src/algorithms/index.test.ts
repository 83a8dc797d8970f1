import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import {
  policyAdvantages,
  policyAlgorithm,
  policyAlgorithms,
  policyOptions,
  preferenceLoss,
  preferenceLosses,
  usesReference,
} from './index.ts';

describe('the registries', () => {
  it('hold what the command line promises, each name once', () => {
    expect(policyAlgorithms.map(({ name }) => name)).toEqual(
      'reinforce rloo ppo grpo drgrpo gspo cispo dapo sapo maxrl raft opd'.split(' '),
    );
    expect(preferenceLosses.map(({ name }) => name)).toEqual(
      'dpo cdpo robust hinge ipo dpo-norm simpo orpo kto kto-pair apo-zero apo-down'.split(' '),
    );
    const names = [...preferenceLosses, ...policyAlgorithms].flatMap(({ name, aliases }) => [name, ...aliases]);
    expect(new Set(names).size).toBe(names.length);
    for (const { summary, paper } of [...preferenceLosses, ...policyAlgorithms]) {
      expect(summary.length).toBeGreaterThan(10);
      expect(paper).toMatch(/(19|20)\d\d/);
    }
  });

  it('find by name, by alias and in other spellings', () => {
    expect(policyAlgorithm('GRPO').name).toBe('grpo');
    expect(policyAlgorithm('dr_grpo').name).toBe('drgrpo');
    expect(preferenceLoss('sigmoid').name).toBe('dpo');
    expect(preferenceLoss('kto_pair').name).toBe('kto-pair');
    expect(preferenceLoss('apo_zero').name).toBe('apo-zero');
    expect(preferenceLoss('sigmoid_norm').name).toBe('dpo-norm');
  });

  it('say what was probably meant', () => {
    expect(() => policyAlgorithm('grppo')).toThrow(UserError);
    expect(() => policyAlgorithm('grppo')).toThrow(/Did you mean "grpo"\?/);
    expect(() => preferenceLoss('simp')).toThrow(/Did you mean "simpo"\?/);
  });
});

describe('options', () => {
  it('are the algorithm’s defaults with the changes', () => {
    const dapo = policyAlgorithm('dapo');
    expect(policyOptions(dapo)).toMatchObject({
      clipLow: 0.2,
      clipHigh: 0.28,
      aggregation: 'token',
      dropEqualGroups: true,
    });
    expect(policyOptions(policyAlgorithm('gspo'))).toMatchObject({ clipLow: 3e-4, clipHigh: 4e-4 });
    expect(policyOptions(policyAlgorithm('ppo'))).toMatchObject({
      gamma: 1,
      lambda: 0.95,
      valueCoef: 0.5,
      valueClip: 0.2,
    });
    expect(policyOptions(policyAlgorithm('grpo'), { clipHigh: 0.3, klCoef: undefined })).toMatchObject({
      clipHigh: 0.3,
      klCoef: 0.01,
    });
  });

  it('refuse what the algorithm does not read', () => {
    expect(() => policyOptions(policyAlgorithm('reinforce'), { clipHigh: 0.3 })).toThrow(
      /--clip-high has no effect on reinforce/,
    );
    expect(() => policyOptions(policyAlgorithm('reinforce'), { constructor: 1 } as never)).toThrow(
      /--constructor has no effect on reinforce/,
    );
    expect(() => policyOptions(policyAlgorithm('dapo'), { klCoef: 0.1 })).toThrow(UserError);
    expect(() => policyOptions(policyAlgorithm('opd'), { klCoef: 0.1 })).toThrow(/--kl-coef has no effect on opd/);
    for (const ofRewards of [{ dropEqualGroups: true }, { overlongRamp: 0.1 }])
      expect(() => policyOptions(policyAlgorithm('opd'), ofRewards)).toThrow(/has no effect on opd/);
  });

  it('decide whether a reference is needed', () => {
    const needs = (name: string, changes = {}) =>
      usesReference(policyAlgorithm(name), policyOptions(policyAlgorithm(name), changes));
    expect(policyAlgorithms.map(({ name }) => name).filter((name) => needs(name))).toEqual([
      'reinforce',
      'rloo',
      'ppo',
      'grpo',
    ]);
    expect(needs('grpo', { klCoef: 0 })).toBe(false);
    expect(needs('drgrpo', { klCoef: 0.1 })).toBe(true);
  });
});

describe('advantages of a step', () => {
  const step = { rewards: [1, 0, 3, 1], groups: [0, 0, 1, 1], lengths: [2, 1, 1, 2], k1: [0.1, 0.2, 0.5, -0.1, 0, 1] };
  const made = (name: string, changes = {}, more = {}) => {
    const algorithm = policyAlgorithm(name);
    return policyAdvantages(algorithm, policyOptions(algorithm, changes), { ...step, ...more });
  };
  const near = (values: ArrayLike<number> | undefined, wanted: number[]) => {
    expect(Array.from(values ?? [], (value) => Number(value.toFixed(9)))).toEqual(wanted);
  };

  it('repeat a response’s advantage over its tokens, with the KL off the reward where it belongs', () => {
    // R − 0.1·Σk1: 0.97, −0.05, 3.01, 0.9
    near(made('rloo', { klCoef: 0.1 }).perResponse, [1.02, -1.02, 2.11, -2.11]);
    near(made('rloo', { klCoef: 0.1 }).perToken, [1.02, 1.02, -1.02, 2.11, -2.11, -2.11]);
    near(made('reinforce', { klCoef: 0.1 }).perResponse, [-0.2375, -1.2575, 1.8025, -0.3075]);
    near(made('drgrpo', { klCoef: 0.1 }).perResponse, [0.5, -0.5, 1, -1]);
  });

  it('max-rl goes by correctness where there is one', () => {
    near(made('maxrl', {}, { correct: [true, false, true, true] }).perResponse, [1, -1, 0, 0]);
    expect(() => made('maxrl')).toThrow(/0 and 1/);
  });

  it('of PPO are token-wise, with returns', () => {
    const values = [0.5, 0.5, 0, 1, 1, 2];
    const got = made('ppo', { klCoef: 0.1, lambda: 1, whiten: false }, { values });
    near(got.returns, [0.97, 0.98, -0.05, 3.01, 0.9, 0.9]);
    near(got.perToken, [0.47, 0.48, -0.05, 2.01, -0.1, -1.1]);
    near(got.perResponse, [0.475, -0.05, 2.01, -0.6]);
  });

  it('count every kept response alike, whatever its reward', () => {
    near(made('raft').perResponse, [1, 1, 1, 1]);
    near(made('raft').perToken, [1, 1, 1, 1, 1, 1]);
  });

  it('lead towards a teacher token by token, and are 0 where its KL is the loss', () => {
    const teacher = [0.5, -1, 2, 0, -0.25, 0.75];
    const got = made('opd', { distillAs: 'advantage' }, { teacher });
    near(got.perToken, teacher);
    near(got.perResponse, [-0.25, 2, 0, 0.25]);
    near(made('opd').perToken, [0, 0, 0, 0, 0, 0]);
  });

  it('say what is missing', () => {
    expect(() => made('rloo', {}, { k1: undefined })).toThrow(/k1/);
    expect(() => made('ppo')).toThrow(/values/);
    expect(() => made('opd', { distillAs: 'advantage' })).toThrow(/opd learns from a teacher: it needs "teacher"/);
  });
});
