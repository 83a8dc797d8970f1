/**
 * The shared options that a run would not read, given its other options. Each trainer's schema adds its own rules
 * (withRules).
 */
import type { UnreadRule } from '../runs/index.ts';
import type { DataConfig, LoraConfig } from './setup.ts';

interface Cadence {
  evalSteps: number;
  saveSteps: number;
  saveTotalLimit?: number;
  metricForBestModel?: string;
  greaterIsBetter?: boolean;
  earlyStoppingPatience?: number;
  loadBestModelAtEnd: boolean;
  warmupRatio: number;
  warmupSteps?: number;
  reportTo: readonly string[];
  resumeFrom?: string;
  allowChangedData: boolean;
  wandbProject?: string;
}

const best = ['metricForBestModel', 'earlyStoppingPatience', 'loadBestModelAtEnd'] as const;

export const cadenceRules: readonly UnreadRule<Cadence>[] = [
  {
    options: [...best, 'greaterIsBetter'],
    unread: ({ evalSteps }) => evalSteps <= 0,
    because: 'nothing is evaluated with --eval-steps -1',
  },
  {
    options: ['saveTotalLimit'],
    unread: ({ saveSteps }) => saveSteps <= 0,
    because: 'no checkpoints are written on the way with --save-steps -1',
  },
  {
    options: ['warmupRatio'],
    unread: ({ warmupSteps }) => warmupSteps !== undefined,
    because: '--warmup-steps decides',
  },
  {
    options: ['allowChangedData'],
    unread: ({ resumeFrom }) => resumeFrom === undefined,
    because: 'nothing is resumed (--resume-from)',
  },
  {
    options: ['wandbProject'],
    unread: ({ reportTo }) => !reportTo.includes('wandb'),
    because: 'metrics go to W&B only with --report-to wandb',
  },
];

/** For trainers that keep a best model only if an option asks for one. */
export const bestRules: readonly UnreadRule<Cadence>[] = [
  {
    options: ['greaterIsBetter'],
    unread: (config) => best.every((name) => !config[name]),
    because: 'no best model is chosen; name a metric with --metric-for-best-model',
  },
];

export const loraRules: readonly UnreadRule<LoraConfig>[] = [
  {
    options: ['loraR', 'loraAlpha', 'loraDropout', 'loraTargetModules', 'loraBias', 'useRslora', 'useDora'],
    unread: ({ lora }) => !lora,
    because: 'all weights are trained; adapters come with --lora',
  },
];

type Batched = DataConfig & { tokenBudget?: number; batchSize: number };

const holdsOut = ({ evalDataset, validationSplit }: DataConfig) => evalDataset !== undefined || validationSplit > 0;

/** `readHeldOut`: options that only matter with held-out examples. */
export function dataRules<Config extends Batched>(
  readHeldOut: readonly (keyof Config & string)[] = [],
): readonly UnreadRule<Config>[] {
  return [
    {
      options: ['evalSplit'],
      unread: ({ evalDataset }) => evalDataset === undefined,
      because: 'it is a part of --eval-dataset, and there is none',
    },
    {
      options: ['validationSplit'],
      unread: ({ evalDataset }) => evalDataset !== undefined,
      because: 'held-out examples come from --eval-dataset',
    },
    {
      options: ['batchSize'],
      unread: ({ tokenBudget }) => tokenBudget !== undefined,
      because: '--token-budget decides how much a micro-batch holds',
    },
    {
      options: [...best, ...readHeldOut] as (keyof Config & string)[],
      unread: (config) => !holdsOut(config),
      because: 'nothing is held out with --validation-split 0',
    },
  ];
}
