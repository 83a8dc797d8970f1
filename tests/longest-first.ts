/**
 * The order of test files: the long ones first, the many short ones last, so that no core waits for another at the end. A fresh
 * clone knows of no earlier run: these took ten seconds or more on two cores.
 */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const long = [
  'tests/studio/browser',
  'tests/dist/data-parallel',
  'tests/examples',
  'tests/pack',
  'tests/dist/launch',
  'tests/loop/kill',
  'tests/dist/resume',
  'src/trainers/policy/policy',
  'src/dist/world',
  'tests/llama-cpp/tokenizers',
  'tests/studio/train',
  'src/trainers/batches/batch-task',
  'tests/loop/kill-policy',
  'src/tensor/hostile',
  'tests/dist/environments',
  'src/trainers/preference/preference',
  'tests/dist/evaluate',
  'tests/generate-graphs',
  'tests/loop/diverged',
  'tests/loop/terminal',
  'tests/options/policy',
  'tests/options/sft',
  'tests/options/preference',
  'tests/options/reward',
  'src/dist/leave',
  'src/dist/launch/launch',
  'src/dist/hang',
  'src/dist/place-in-store',
  'tests/options/evaluate-policy',
  'src/workflows/pipeline/pipeline',
  'src/workflows/story',
];

/** Projects of vitest.config.ts. Files of one that share processes stay together: they take over each other's. */
const projects = ['apart', 'together', 'shared'];

export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ project, moduleId }: TestSpecification) => {
      const found = long.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return projects.indexOf(project.name) * 1000 + (found === -1 ? long.length : found);
    };
    return (await super.sort(files)).toSorted((a, b) => place(a) - place(b));
  }
}
