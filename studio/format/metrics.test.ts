import { describe, expect, it } from 'vitest';
import { colorOf, isConstant, isShare, labelOf, panelsOf, shareTopOf, sideOf, unitOf } from './metrics.ts';

describe('metrics as panels', () => {
  it('puts training and held-out of one name together, by groups, without duplicates', () => {
    const names = [
      'eval/accuracy',
      'train/kl',
      'train/accuracy',
      'train/reward',
      'train/reward_mean',
      'train/lr',
      'odd',
    ];
    expect(panelsOf(names)).toEqual([
      {
        title: 'Overview',
        panels: [
          { title: 'accuracy', names: ['train/accuracy', 'eval/accuracy'] },
          { title: 'reward', names: ['train/reward'] },
          { title: 'kl', names: ['train/kl'] },
        ],
      },
      { title: 'Optimiser', panels: [{ title: 'lr', names: ['train/lr'] }] },
      { title: 'More', panels: [{ title: 'odd', names: ['odd'] }] },
    ]);
  });

  it('shows first what a method is judged by', () => {
    const first = (names: string[]) => panelsOf(names)[0]?.panels.map(({ title }) => title);
    const policy = ['loss', 'reward', 'kl', 'entropy', 'length_mean', 'clip_fraction', 'grad_norm', 'accuracy'];
    expect(first(policy.map((name) => `train/${name}`))).toEqual([
      ...['accuracy', 'reward', 'kl', 'entropy', 'length_mean', 'clip_fraction'],
    ]);
    expect(first(['train/lr', 'train/loss', 'eval/loss'])).toEqual(['loss']);
  });

  it('tells units', () =>
    expect(
      ['train/old_kl', 'eval/length_mean', 'train/step_time', 'train/rollout_tokens_per_second', 'x'].map(unitOf),
    ).toEqual(['nats', 'tokens', 's', 'tokens/s', undefined]));

  it('gives a colour one meaning', () => {
    expect(['train/loss', 'eval/loss', 'train/reward_verifier_answer', 'eval/reward_model', 'x'].map(colorOf)).toEqual([
      '--training',
      '--held-out',
      '--gold',
      '--proxy',
      '--plain',
    ]);
  });

  it('knows shares and constants, and writes names as words', () => {
    const shares = [
      'train/accuracy',
      'eval/pass_at_8',
      'train/clip_fraction',
      'eval/accuracy_gcd',
      'eval/accuracy/gcd',
    ];
    expect([...shares, 'train/loss'].map(isShare)).toEqual([...shares.map(() => true), false]);
    expect(['eval/accuracy', 'train/clip_fraction', 'train/loss'].map(shareTopOf)).toEqual([1, 0.05, undefined]);
    expect([isConstant([[1, 1, null, 1]]), isConstant([[1, 1, 2]]), isConstant([[1]])]).toEqual([true, false, false]);
    expect([labelOf('train/length_mean'), labelOf('train/old_kl'), sideOf('eval/loss')]).toEqual([
      'length mean',
      'KL to the sampler',
      'held-out',
    ]);
  });
});
