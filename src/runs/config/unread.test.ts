import { expect, it } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from './config.ts';
import { field } from './fields.ts';
import { refuseUnread, withRules } from './unread.ts';

const schema = withRules(
  z.object({
    lora: field(z.boolean().default(false), { description: 'x' }),
    loraR: field(z.number().default(16), { description: 'x' }),
    useDora: field(z.boolean().default(false), { description: 'x' }),
  }),
  [
    { options: ['loraR', 'useDora'], unread: ({ lora }) => !lora, because: 'there is no adapter' },
    { options: ['loraR'], unread: ({ loraR }) => loraR > 99, because: ({ loraR }) => `${loraR} is too many` },
  ],
);
const refused = (sources: Parameters<typeof resolveConfig>[1]) => () =>
  refuseUnread(schema, resolveConfig(schema, sources));

it('refuses by name what was given and is not read, all at once', () => {
  expect(refused({ flags: { loraR: 16, useDora: true } })).toThrow(
    'The configuration has 2 faults:\n  --lora-r: has no effect here: there is no adapter.\n  --use-dora: has no effect here: there is no adapter.',
  );
  expect(refused({ file: { lora_r: 8 } })).toThrow(
    'lora_r: has no effect here: there is no adapter. (in the config file)',
  );
  expect(refused({ flags: { lora: true, loraR: 100 } })).toThrow('100 is too many');
});

it('lets pass what is read, what nobody gave, what a checkpoint saved, and a file’s spelt-out default', () => {
  expect(refused({ flags: { lora: true, loraR: 8 } })).not.toThrow();
  expect(refused({ flags: {} })).not.toThrow();
  expect(refused({ flags: { useDora: false } })).not.toThrow();
  expect(refused({ checkpoint: { lora_r: 8 } })).not.toThrow();
  expect(refused({ file: { lora_r: 16 } })).not.toThrow();
});
