/** The pages that are pictured, and what is done on each before its picture is taken. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import type { RolloutsAnswer, RunRow } from '../../src/studio/api.ts';
import type { RunningStudio } from '../../src/studio/server.ts';
import type { Look } from './taking.ts';
import { tiny, type World } from './world.ts';

export interface PicturedPage {
  name: string;
  /** After `#/`. */
  place: string;
  /** It is complete when this is there. */
  seen: string;
  before?: (page: Page, isPhone: boolean) => Promise<void>;
  /** Its picture in docs/images. */
  docs?: { file: string; look: Look; height: number };
}

export async function pagesOf(studio: RunningStudio, { root, pairs }: World): Promise<PicturedPage[]> {
  const cookie = (await fetch(studio.newUrl(), { redirect: 'manual' })).headers.get('set-cookie')?.split(';')[0] ?? '';
  const ask = async (path: string) => (await fetch(`${studio.url}/api/${path}`, { headers: { cookie } })).json();
  const runs = (await ask('runs')) as RunRow[];
  const idOf = (name: string) => runs.find((run) => run.name === name)?.id ?? '';
  const id = idOf('arithmetic');
  const seeds = [1, 2, 3].map((seed) => idOf(`sorting-seed-${seed}`));
  // Filters and summaries wait for the index of the rollouts.
  while (((await ask(`runs/${id}/rollouts?limit=1`)) as RolloutsAnswer).indexed < 1) await sleep(200);
  // The wrong answer of the middle that its group told the most: others of it were right.
  const wrong = (await ask(`runs/${id}/rollouts?from=30&to=60&correct=0&sort=advantage&limit=1`)) as RolloutsAnswer;
  const { id: rollout, step } = wrong.rows[0] ?? { id: 1, step: 1 };
  const data = `data/${encodeURIComponent(pairs)}`;
  const final = join(root, 'policy', 'arithmetic', 'final');
  return [
    { name: 'runs', place: 'runs', seen: '.table-row' },
    { name: 'seeds', place: `runs?with=${[...seeds, idOf('sorting-too-fast')].join(',')}`, seen: '.chart canvas' },
    {
      ...{ name: 'run', place: `runs/${id}`, seen: '.chart canvas' },
      docs: { file: 'studio-run.png', look: 'light-1280', height: 1064 },
    },
    { name: 'run-collapsed', place: `runs/${idOf('sorting-too-fast')}`, seen: '.chart canvas' },
    { name: 'run-preference', place: `runs/${idOf('on-pairs')}`, seen: '.chart canvas' },
    { name: 'run-config', place: `runs/${id}?tab=config`, seen: '.plain-table' },
    { name: 'run-checkpoints', place: `runs/${id}?tab=checkpoints`, seen: '.plain-table' },
    { name: 'run-console', place: `runs/${id}?tab=console`, seen: '.console' },
    { name: 'rollouts', place: `rollouts/${id}`, seen: '.table-row:not(.blank)' },
    { name: 'rollouts-filtered', place: `rollouts/${id}?correct=no&sort=kl&dir=desc`, seen: '.table-row:not(.blank)' },
    { name: 'response', place: `rollouts/${id}?open=${rollout}`, seen: '.rollouts-detail pre' },
    {
      ...{
        name: 'tokens',
        place: `rollouts/${id}?step=${step}&open=${rollout}&view=tokens&checkpoint=step-80`,
        seen: '.token-text .token',
      },
      docs: { file: 'studio-tokens.png', look: 'light-1280', height: 860 },
    },
    {
      name: 'history',
      place: `rollouts/${id}?eval=1&open=2&view=time`,
      seen: '.rollouts-detail ins, .rollouts-detail .over-time, .rollouts-detail li',
    },
    {
      ...{ name: 'what-if', place: `rollouts/${id}?step=${step}&view=what-if`, seen: '.advantages tr' },
      before: asDrGrpo,
      docs: { file: 'studio-what-if.png', look: 'light-1280', height: 1180 },
    },
    {
      ...{ name: 'response-phone', place: `rollouts/${id}?open=${rollout}&view=tokens`, seen: '.token-text .token' },
      docs: { file: 'studio-phone.png', look: 'light-390', height: 844 },
    },
    { name: 'chat-blind', place: 'chat', seen: '.reply-text', before: (page) => askTwo(page, final) },
    { name: 'data', place: 'data', seen: '.page' },
    { name: 'data-explore', place: data, seen: 'button:has-text("Look again")' },
    { name: 'data-examples', place: `${data}?tab=examples`, seen: '.answers' },
    { name: 'rating', place: `${data}?tab=rate`, seen: '.rate-buttons' },
    { name: 'train-form', place: `train/policy?model=${encodeURIComponent(tiny)}&task=gcd`, seen: '.outcome .command' },
    { name: 'models', place: 'models', seen: '.table-row' },
    { name: 'model', place: `models?model=${encodeURIComponent(final)}`, seen: '.model-panel' },
    { name: 'keys', place: 'runs', seen: 'dialog', before: (page) => page.keyboard.press('?') },
  ];
}

async function asDrGrpo(page: Page): Promise<void> {
  await page.getByText('recorded: grpo').waitFor();
  await page.getByLabel('Algorithm').selectOption('drgrpo');
  await page.getByText('changed: drgrpo').waitFor();
}

async function askTwo(page: Page, second: string): Promise<void> {
  const model = page.getByRole('combobox', { name: 'Model', exact: true });
  // On a phone what was loaded before is folded into one line.
  await model
    .or(page.getByRole('button', { name: 'Change' }))
    .first()
    .waitFor();
  if (await model.isVisible()) {
    await model.fill(tiny);
    await page.getByRole('combobox', { name: 'Compare with' }).fill(second);
    const load = page.getByRole('button', { name: 'Load', exact: true });
    if (await load.isVisible()) await load.click();
  }
  await page
    .getByLabel('Your message')
    .fill('Sort from smallest to largest: 7 0 5. Answer with the numbers separated by spaces.');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('group', { name: 'Which reply is better?' }).waitFor();
}
