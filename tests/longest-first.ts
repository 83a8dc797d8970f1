/**
 * The order of test files: the long ones first, the many short ones last, so that no core waits for another at the end. A fresh
 * clone knows of no earlier run: these took ten seconds or more on two cores.
 */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const long = [
  'tests/studio/browser',
  'tests/dist/data-parallel',
  'tests/examples',
  'tests/dist/launch',
  'src/dist/world',
  'tests/dist/resume',
  'tests/dist/environments',
  'src/trainers/policy/policy',
  'tests/options/policy',
  'tests/dist/machines',
  'tests/attune',
  'tests/studio/train',
  'src/tensor/hostile',
  'tests/loop/terminal',
  'tests/cuda/quantised',
  'tests/llama-cpp/tokenizers',
  'tests/options/preference',
  'tests/options/reward',
  'tests/loop/kill',
  'tests/loop/kill-policy',
  'tests/cuda/plan',
  'tests/native/programs',
  'tests/dist/evaluate',
  'src/dist/hang',
  'tests/options/sft',
  'src/trainers/preference/preference',
  'src/trainers/policy/resume',
  'src/trainers/policy/distillation',
  'tests/cuda/shared-prompts',
  'src/dist/place-in-store',
  'tests/library-docs',
  'src/trainers/batches/batch-task',
  'src/trainers/policy/episodes',
  'src/trainers/policy/agents',
  'src/tensor/safetensors/fuzz',
  'src/cli/train-policy',
  'src/cli/train',
  'tests/options/evaluate-policy',
  'src/dist/shard/saving',
  'src/dist/leave',
  'tests/dist/restart',
  'tests/generate-graphs',
  'src/dist/launch/launch',
  'tests/pack',
  'tests/loop/diverged',
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
