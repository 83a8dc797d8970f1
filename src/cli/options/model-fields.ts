/** Fields of commands that use a model without training it. */
import { z } from 'zod';
import { cacheDtypes, precisions, quantTypes } from '../../models/index.ts';
import { field } from '../../runs/index.ts';

const group = 'Model';

/** The dtype of the weights; `auto` means the same as in training and evaluation, so that results agree. */
export const dtypeField = field(z.enum(['auto', 'float32', 'bfloat16', 'float16']).default('auto'), {
  description: 'how weights are held; auto is bfloat16 on a GPU and float32 on a CPU',
  group,
});

export const deviceField = field(z.string().default('auto'), {
  description: 'cpu, cuda:0, …; auto is the first GPU where there is one',
  group,
});

/** For commands that write text with a model as it is; a model that is saved in 8 or 4 bits needs no option. */
export const quantTypeField = field(z.enum(quantTypes).optional(), {
  description: 'hold the weights in 8 or 4 bits',
});

/** For commands that write text; a policy that is trained or evaluated is always exact. */
export const precisionField = field(z.enum(precisions).default('exact'), {
  description:
    "exact: log-probs as in training; fast: where that is quicker (ARM CPUs), a quantised model's activations are rounded to 8 bits a block, as llama.cpp does",
});

const cacheDtypeHelp = {
  description:
    "how keys and values of written tokens are held: in the model's dtype, or in 8 bits (half the memory of bfloat16 and faster for many or long responses on a GPU; log-probs change a little)",
};
/** For commands that write text. */
export const cacheDtypeField = field(z.enum(cacheDtypes).default('model'), cacheDtypeHelp);
/** For those that write text or not; `model` when left out. */
export const optionalCacheDtypeField = field(z.enum(cacheDtypes).optional(), {
  description: `${cacheDtypeHelp.description}; model when left out`,
});

export const modelField = field(z.string(), {
  description: 'a folder with a model, an adapter or a run, or a name on the hub (org/name[@revision])',
  group,
});

export const tokenizerField = field(z.string().optional(), {
  description: "folder or hub name of the tokenizer; the model's own when left out",
  group,
});

/** For commands that write one file. */
export const overwriteField = field(z.boolean().default(false), { description: 'replace an existing file' });

export const jsonField = field(z.boolean().default(false), { description: 'print the result as JSON' });
