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
  { name: 'chat', title: 'Chat', key: 'c', icon: 'chat', load: () => import('../pages/chat/chat.tsx') },
  { name: 'data', title: 'Data', key: 'd', icon: 'data', load: () => import('../pages/data/data.tsx') },
  { name: 'train', title: 'Train', key: 't', icon: 'train', load: () => import('../pages/train/train.tsx') },
  { name: 'models', title: 'Models', key: 'm', icon: 'models', load: () => import('../pages/models/models.tsx') },
];
