/**
 * Checks a form as its command would: the same schema, the same rules, the same look at files, and the plan that
 * `--dry-run` shows. Every fault comes at the field it belongs to.
 */
import { UserError } from '../../errors.ts';
import { ConfigError, type ConfigSchema, camelCase, type ResolvedRun, resolveRun } from '../../runs/index.ts';
import type { FieldFault } from '../api/session.ts';
import type { TrainCheck } from '../api/train.ts';
import { commandLine, differences, yamlOf } from '../commands/command-line.ts';
import type { ModelPlaces } from '../commands/places.ts';
import type { TrainVerb } from '../commands/verbs.ts';
import { outsideFaults, resolvedFaults } from './confined.ts';

export type Values = Readonly<Record<string, unknown>>;

export async function checkForm(
  verb: TrainVerb,
  given: Values,
  places: ModelPlaces,
  attune: string,
  withPlan = true,
): Promise<TrainCheck> {
  const values = filled(given);
  const shown = {
    commandLine: commandLine(attune, `train ${verb.name}`, verb.schema, values),
    yaml: yamlOf(verb.schema, values),
  };
  const first = await checkedOnce(verb, values, places, withPlan);
  return { ...first, ...shown, faults: await furtherFaults(verb, values, places, withPlan, first.faults) };
}

type Checked = Pick<TrainCheck, 'faults' | 'plan' | 'planFailure'>;

async function checkedOnce(verb: TrainVerb, values: Values, places: ModelPlaces, withPlan: boolean): Promise<Checked> {
  // What is typed is looked at before any of it is opened.
  const outside = outsideFaults(values, places, verb.schema);
  if (outside.length > 0) return { faults: outside };
  const { faults, resolved } = await resolvedForm(verb, values);
  if (resolved !== undefined) faults.push(...resolvedFaults(resolved, places));
  if (faults.length > 0 || resolved === undefined || !withPlan) return { faults };
  try {
    return { faults, plan: await verb.plan(resolved) };
  } catch (error) {
    if (error instanceof UserError) return { faults: faultsOf(error, verb.schema, values) };
    return { faults, planFailure: (error as Error).message };
  }
}

/** Without these the rest would be checked against another model, other data or another algorithm. */
const deciding =
  /^(model|dataset|tokenizer|fromConfig|refModel|teacher|rewardModelPath|algorithm|loss|type|resumeFrom)$/;
/** Checked by themselves, whatever the algorithm is. */
const independent = /^(task|dataset|lr|batchSize|gradAccum|maxSteps|epochs|seed)$/;
const mostRounds = 6;

/**
 * A command stops at the first kind of fault: at texts that are no numbers before it looks at the rules, at rules before
 * it looks at data. A form shows them all: what is at fault is left out, and the rest is checked again.
 */
async function furtherFaults(
  verb: TrainVerb,
  values: Values,
  places: ModelPlaces,
  withPlan: boolean,
  first: readonly FieldFault[],
): Promise<FieldFault[]> {
  const all = [...first];
  const bad = new Set(all.map(({ field }) => field));
  for (let round = 0, before = 0; round < mostRounds && bad.size > before; round++) {
    before = bad.size;
    const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !bad.has(camelCase(name))));
    if (bad.has('') || Object.keys(rest).length === 0) break;
    const isDecided = [...bad].some((name) => deciding.test(name));
    const loads = [...bad].some((name) => /^(model|dataset|tokenizer|fromConfig)$/.test(name));
    const { faults } = await checkedOnce(verb, rest, places, withPlan && !loads);
    const newest = faults.filter(({ field }) => !bad.has(field) && Object.hasOwn(rest, field));
    all.push(...newest.filter(({ field }) => !isDecided || independent.test(field)));
    for (const { field } of newest) bad.add(field);
  }
  return all;
}

/** What a form leaves empty was not given. */
export const filled = (values: Values): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== ''),
  );

async function resolvedForm(
  verb: TrainVerb,
  values: Values,
): Promise<{ faults: FieldFault[]; resolved?: ResolvedRun<ConfigSchema> }> {
  try {
    const flags = { ...values, ...differences(verb.schema, values) };
    const resolved = await resolveRun(verb.schema, onlyDifferent(verb, flags), `train ${verb.name}`);
    verb.check?.(resolved);
    return { faults: [], resolved };
  } catch (error) {
    if (error instanceof UserError) return { faults: faultsOf(error, verb.schema, values) };
    throw error;
  }
}

/** Names that the schema does not know stay, so that they are reported; defaults are left out, as on a command line. */
function onlyDifferent({ schema }: TrainVerb, values: Values): Record<string, unknown> {
  const different = differences(schema, values);
  return Object.fromEntries(
    Object.entries(values).filter(
      ([name]) => Object.hasOwn(different, name) || !Object.hasOwn(schema.shape, camelCase(name)),
    ),
  );
}

/** Each fault of a config at its field; another error at the option, or the value of one, that its text names. */
function faultsOf(error: UserError, schema: ConfigSchema, values: Values): FieldFault[] {
  if (error instanceof ConfigError)
    return error.faults.map(({ path, message }) => ({ field: fieldOf(path.replace(/^--/, ''), schema), message }));
  const named = [...error.message.matchAll(/--([a-z][\w-]*)/g)].map(([, flag = '']) => fieldOf(flag, schema));
  const quoted = Object.entries(values).find(
    ([, value]) => typeof value === 'string' && value !== '' && error.message.includes(`"${value}"`),
  );
  const field = named.find((name) => name !== '') ?? fieldOf(quoted?.[0] ?? '', schema);
  return [{ field, message: error.message }];
}

function fieldOf(path: string, schema: ConfigSchema): string {
  const name = camelCase(path.split(/[.[]/)[0] as string);
  return Object.hasOwn(schema.shape, name) ? name : '';
}
