/** The replications, in the order of the docs. */
import { atSize } from './at-size/study.ts';
import { directAlignment } from './direct-alignment/study.ts';
import { estimators } from './estimators/study.ts';
import { overOptimisation } from './over-optimisation/study.ts';
import { processReward } from './process-reward/study.ts';
import type { Study } from './study.ts';
import { zero } from './zero/study.ts';

export const studies: readonly Study[] = [overOptimisation, directAlignment, processReward, zero, estimators, atSize];
