import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { headline, writePolicyReport } from './report.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-report-'));
afterAll(() => rmSync(folder, { recursive: true }));

const row = (step: number, values: Record<string, number>) => ({ step, time: 0, ...values });

it('begins with what the run changed', () => {
  const rows = [row(0, { 'eval/accuracy': 0.55, 'eval/reward': 0.1 }), row(9, { 'eval/accuracy': 0.951 })];
  expect(headline(rows)).toEqual(['55 % → 95 %', 'of held-out prompts answered right']);
  expect(headline([row(1, { 'train/reward': -0.25 }), row(2, { 'train/reward': 1.23456 })])?.[0]).toBe('-0.25 → 1.23');
  // A change takes two measurements.
  expect(headline([row(1, { 'eval/accuracy': 0.5 })])).toBeUndefined();
});

it('shows headline, curves and settings on the page', async () => {
  const run = join(folder, 'run');
  mkdirSync(run);
  writeFileSync(join(run, 'run.json'), JSON.stringify({ name: 'run', command: 'train policy', status: 'finished' }));
  const config = { algorithm: 'grpo', model: 'tiny', lr: 0.0002, output_dir: '/elsewhere', loss_weights: ['a=1'] };
  writeFileSync(join(run, 'config.json'), JSON.stringify(config));
  const rows = [
    row(1, { 'eval/accuracy': 0.2, 'train/reward': 0 }),
    row(2, { 'eval/accuracy': 0.8, 'train/reward': 1 }),
  ];
  writeFileSync(join(run, 'metrics.jsonl'), rows.map((each) => `${JSON.stringify(each)}\n`).join(''));
  const html = readFileSync(await writePolicyReport(run), 'utf8');
  expect(html).toContain('<strong>20 % → 80 %</strong>');
  expect(html.indexOf('20 % → 80 %')).toBeLessThan(html.indexOf('<svg'));
  for (const cell of ['<td>lr</td><td>0.0002</td>', '<td>algorithm</td><td>grpo</td>']) expect(html).toContain(cell);
  expect(html).not.toContain('/elsewhere');
  // A wide table scrolls horizontally.
  expect(html).toMatch(/<div class="wide"><table>/);
  expect(html).toMatch(/\.wide \{[^}]*max-width: 100%;[^}]*overflow-x: auto/);
});
