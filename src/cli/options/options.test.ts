import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../runs/config/config.ts';
import { field } from '../../runs/config/fields.ts';
import { normalizeArguments } from './arguments.ts';
import { addSchemaOptions, schemaFlags } from './options.ts';

const schema = z.object({
  model: field(z.string(), { description: 'model to start from', group: 'Model', examples: ['Qwen/Qwen3-0.6B'] }),
  lr: field(z.number().positive().default(1e-5), { description: 'learning rate', group: 'Optimiser' }),
  gradAccum: field(z.number().int().positive().default(4), {
    description: 'micro-batches per step',
    group: 'Optimiser',
    aliases: ['gradAccumSteps'],
  }),
  lora: field(z.boolean().default(false), { description: 'train adapters', group: 'LoRA' }),
  shuffle: field(z.boolean().default(true), { description: 'shuffle every epoch' }),
  targets: field(z.array(z.string()).default(['q_proj', 'v_proj']), { description: 'adapted modules', group: 'LoRA' }),
  kind: field(z.enum(['preference', 'outcome']).default('preference'), { description: 'what is learnt' }),
  evalSteps: field(z.number().int().default(50), { description: 'steps between evaluations' }),
  dataset: field(z.object({ name: z.string().default('hh') }).prefault({}), { description: 'only in files' }),
});

function parse(...args: string[]) {
  const command = addSchemaOptions(new Command('train').exitOverride().configureOutput({ writeErr: () => {} }), schema);
  command.parse(normalizeArguments(args), { from: 'user' });
  return schemaFlags(command, schema);
}
const resolved = (...args: string[]) => resolveConfig(schema, { flags: parse('--model', 'm', ...args) }).config;

describe('options from a schema', () => {
  it('reads kebab, snake and alias spellings', () => {
    expect(resolved('--grad-accum', '8').gradAccum).toBe(8);
    expect(resolved('--grad_accum=8').gradAccum).toBe(8);
    expect(resolved('--grad_accum_steps', '2').gradAccum).toBe(2);
  });

  it('converts numbers, lists and switches, and leaves the rest at its default', () => {
    const config = resolved(
      '--lr',
      '3e-4',
      '--targets',
      'q_proj, k_proj',
      '--lora',
      '--no-shuffle',
      '--eval-steps',
      '-1',
    );
    expect(config).toMatchObject({
      lr: 3e-4,
      targets: ['q_proj', 'k_proj'],
      lora: true,
      shuffle: false,
      evalSteps: -1,
    });
    expect(parse('--model', 'm')).toEqual({ model: 'm' });
    expect(resolved()).toMatchObject({ lr: 1e-5, gradAccum: 4, lora: false, shuffle: true, kind: 'preference' });
  });

  it('reports every bad flag together, named as typed', () => {
    expect(() => resolved('--lr', 'fast', '--grad-accum', '0', '--kind', 'outcom')).toThrow(
      /3 faults:\n.*--lr: expected a number, got "fast"\.\n.*--grad-accum: expected a number more than 0, got 0\.\n.*--kind: expected one of preference, outcome, got "outcom"\. Did you mean "outcome"\?/,
    );
    expect(() => resolved('--grad-accum', '1', '--grad-accum-steps', '2')).toThrow(
      /--grad-accum: is given twice \(also as "--grad-accum-steps"\)/,
    );
  });

  it('groups the help and shows defaults, choices, aliases and the useful form of a switch', () => {
    const help = addSchemaOptions(new Command('train'), schema).configureHelp({ helpWidth: 200 }).helpInformation();
    const optimiser = help.slice(help.indexOf('Optimiser:'), help.indexOf('LoRA:'));
    expect(optimiser).toContain('--lr <number>');
    expect(optimiser).toContain('default: 1e-5');
    expect(optimiser).toContain('also --grad-accum-steps');
    expect(help).toContain('--model <value>');
    expect(help).toContain('required');
    expect(help).toMatch(/--no-shuffle +turns off: shuffle every epoch \(on by default\)/);
    expect(help).not.toContain('--no-lora');
    expect(help).toContain('one of: preference, outcome');
    expect(help).not.toContain('--dataset');
  });
});

describe('outputs', () => {
  it('are accepted under each of the names that commands have for them', async () => {
    for (const own of ['out', 'output', 'outputDir']) {
      const schema = z.object({ [own]: field(z.string().optional(), { description: 'where to write' }) });
      for (const typed of ['--out', '--output', '--output-dir']) {
        const command = addSchemaOptions(new Command('x').exitOverride(), schema);
        await command.parseAsync([typed, 'there'], { from: 'user' });
        const { config } = resolveConfig(schema, { flags: schemaFlags(command, schema) });
        expect(config).toEqual({ [own]: 'there' });
      }
    }
  });
});
