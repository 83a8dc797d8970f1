/** Fields of commands that use a reward model. */
import { z } from 'zod';
import { stepAggregations } from '../../rewards/index.ts';
import { field } from '../../runs/index.ts';

export const stepsField = field(z.enum(stepAggregations).optional(), {
  description: "how a process model's step scores become one; min when left out",
  group: 'Model',
});
