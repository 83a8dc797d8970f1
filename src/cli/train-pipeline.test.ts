import { expect, it } from 'vitest';
import { resumeCommand } from './train-pipeline.ts';

it('tells the command that finds the same run again', () => {
  expect(resumeCommand({ config: 'a.yaml' })).toBe('attune train --config a.yaml --resume');
  expect(resumeCommand({ config: 'a.yaml', modelIndex: '1', outputDir: 'out', resume: true })).toBe(
    'attune train --config a.yaml --model-index 1 --output-dir out --resume',
  );
  expect(resumeCommand({ config: "ada's runs/a.yaml" })).toBe("attune train --config 'ada'\\''s runs/a.yaml' --resume");
});
