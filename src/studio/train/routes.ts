/** Routes of the train form: commands, their fields, the check, the start. */
import { join } from 'node:path';
import { z } from 'zod';
import { camelCase, defaultValue, readJson } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { TrainCommand } from '../api/train.ts';
import { differences } from '../commands/command-line.ts';
import type { Jobs } from '../commands/jobs.ts';
import type { ModelPlaces } from '../commands/places.ts';
import type { Processes } from '../commands/processes.ts';
import type { Above, TrainVerb } from '../commands/verbs.ts';
import { type Asked, get, parsed, post, Refused, type Route } from '../http/router.ts';
import { shownHere } from '../http/shown.ts';
import type { Catalogue } from '../runs/catalogue.ts';
import { checkForm, filled } from './check.ts';
import { trainSchema } from './fields.ts';
import { startTraining } from './start.ts';

const request = z.object({ values: z.record(z.string().max(100), z.unknown()), plan: z.boolean().default(true) });

export interface TrainParts {
  catalogue: Catalogue;
  places: ModelPlaces;
  jobs: Jobs;
  processes: Processes;
  above: Above;
  attune: string;
}

export function trainRoutes(parts: TrainParts): Route[] {
  const { catalogue, places, above, attune } = parts;
  const verbOf = ({ params }: Asked): TrainVerb => {
    const verb = above.verbs.find(({ name }) => name === params.command);
    if (verb === undefined) throw new ApiError(404, `There is no "train ${params.command}".`, { code: 'not_found' });
    return verb;
  };
  return [
    get('/api/train/commands', () =>
      above.verbs.map(
        ({ name, description, examples = [] }): TrainCommand => ({
          name,
          title: `train ${name}`,
          description,
          examples: [...examples],
        }),
      ),
    ),
    get('/api/train/:command/schema', (asked) => {
      const verb = verbOf(asked);
      const from = asked.query.get('run');
      return trainSchema(verb, from === null ? startValues(verb, parts) : valuesOf(verb, from, catalogue));
    }),
    post('/api/train/:command/check', (asked) => {
      const { values, plan } = parsed(request, asked.body);
      return checkForm(verbOf(asked), values, places, attune, plan);
    }),
    post('/api/train/:command/start', async (asked) => {
      const verb = verbOf(asked);
      const { values } = parsed(request, asked.body);
      const { faults } = await checkForm(verb, values, places, attune);
      if (faults.length > 0)
        throw new Refused(400, faults.map(({ field, message }) => `${field}: ${message}`).join('\n'), faults);
      return startTraining(verb, filled(values), parts);
    }),
  ];
}

/** Where the default would be written outside of the studio's folder, a folder inside is filled in. */
function startValues({ name, schema }: TrainVerb, { catalogue: { root } }: TrainParts): Record<string, unknown> {
  const type = schema.shape.outputDir;
  const usual = type === undefined ? undefined : defaultValue(type as never);
  if (typeof usual !== 'string' || root.holds(join(process.cwd(), usual))) return {};
  return { outputDir: shownHere(join(root.path, name)) };
}

/** The options of a run, to begin another from; what belongs to that one alone is left out. */
function valuesOf({ schema, name }: TrainVerb, id: string, catalogue: Catalogue): Record<string, unknown> {
  const run = catalogue.find(id);
  if (run.kind !== name) throw new ApiError(409, `${run.name} is a run of train ${run.kind}.`, { code: 'conflict' });
  const config = readJson<Record<string, unknown>>(join(run.path, 'config.json')) ?? {};
  const { runName: _, ...values } = differences(
    schema,
    Object.fromEntries(Object.entries(config).map(([key, value]) => [camelCase(key), value])),
  );
  return values;
}
