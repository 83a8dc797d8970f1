/** Fields of commands that use a reward model. */
import { z } from 'zod';
import { stepAggregations } from '../../rewards/index.ts';
import { field } from '../../runs/index.ts';

export const stepsField = field(z.enum(stepAggregations).optional(), {
  description: 'how step scores of a process model are combined; min when left out',
  group: 'Model',
});
