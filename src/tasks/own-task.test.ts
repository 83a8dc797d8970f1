import { describe, expect, it } from 'vitest';
import { defineTask, mixture, recipeText, task, useTask } from './index.ts';

const define = (name: string) =>
  defineTask<{ n: number }>({
    name,
    summary: 'twice a number',
    pose: (random) => ({ prompt: `2 * ${random.int(1, 99)}`, meta: { n: 1 } }),
    work: ({ n }, pen) => String(pen.number(2 * n)),
    check: (response, answer) => Number(response === answer),
  });

const parts = { pose: () => ({ prompt: '', meta: 0 }), work: () => '', check: () => 1 };

describe('a task of your own', () => {
  it('is drawn from, and known by its name once it was handed over', () => {
    expect(() => task('own_doubles')).toThrow(
      'A task of your own is known only to a program that hands over its object',
    );
    const own = define('own_doubles');
    const example = mixture(own).example(1, 0);
    expect(example).toMatchObject({ task: 'own_doubles', answer: '2' });
    expect(task(example.task).score('2', example)).toBe(1);
    expect(mixture('own_doubles:2').example(1, 0).difficulty).toBe(2);
    const listed = [
      { task: own, difficulty: [1, 3] as const },
      { task: 'gcd', weight: 2 },
    ];
    expect(recipeText(listed)).toBe('own_doubles:1-3,gcd*2');
    expect(recipeText(own)).toBe('own_doubles');
    const weighted = [...listed, { task: 'lcm', weight: 5e-7 }, { task: 'products', weight: 3e21 }];
    expect(mixture(recipeText(weighted)).parts).toEqual(mixture(weighted).parts);
  });

  it('has all that a task needs, by the right names', () => {
    expect(() => defineTask({ name: 'half' } as never)).toThrow(/pose is missing.*work is missing.*check is missing/);
    expect(() => defineTask(undefined as never)).toThrow(/defineTask takes an object with name/);
    expect(() => defineTask({ ...define('none'), ...parts, levels: 0 } as never)).toThrow(/levels 0: expected/);
    expect(() => defineTask({ name: 'odd', summary: '', ...parts, level: 2 } as never)).toThrow(
      /Did you mean "levels"/,
    );
    expect(() => mixture([{ task: 'gcd', wieght: 2 } as never])).toThrow(/"wieght". Did you mean "weight"/);
  });

  it('has a name of its own', () => {
    expect(() => useTask(define('gcd'))).toThrow("one of attune's own tasks");
    expect(() => useTask(define('two words'))).toThrow("cannot be a task's name");
    expect(() => mixture({ name: 'x', generate: () => {} } as never)).toThrow('score is missing');
  });
});
