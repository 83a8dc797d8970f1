/** The pages of the studio: their names, keys and sources, each loaded when it is first opened. */
import type { FunctionComponent } from 'preact';
import type { IconName } from '../parts/icons.tsx';

export interface Place {
  name: string;
  title: string;
  /** Second key after `g`. */
  key: string;
  icon: IconName;
  load: () => Promise<{ default: FunctionComponent }>;
}

export const places: readonly Place[] = [
  { name: 'runs', title: 'Runs', key: 'r', icon: 'runs', load: () => import('../pages/runs/runs.tsx') },
  {
    name: 'rollouts',
    title: 'Rollouts',
    key: 'o',
    icon: 'rollouts',
    load: () => import('../pages/rollouts/rollouts.tsx'),
  },
];
