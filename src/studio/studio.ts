/** The parts of a studio put together: its routes over one folder, and what has to be closed at the end. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Session } from './api/session.ts';
import { ChatModels } from './chat/models.ts';
import { chatRoutes } from './chat/routes.ts';
import { Turns } from './chat/turns.ts';
import { jobRoutes } from './commands/job-routes.ts';
import { Jobs } from './commands/jobs.ts';
import { ModelPlaces } from './commands/places.ts';
import { Processes } from './commands/processes.ts';
import type { Above } from './commands/verbs.ts';
import { dataRoutes } from './data/routes.ts';
import { Root } from './http/folder.ts';
import { get, type Route } from './http/router.ts';
import { modelRoutes } from './models/routes.ts';
import { RolloutIndexes } from './rollouts/rollout-index.ts';
import { rolloutRoutes } from './rollouts/routes.ts';
import { TokenView } from './rollouts/tokens.ts';
import { Catalogue } from './runs/catalogue.ts';
import { MetricTables } from './runs/metric-table.ts';
import { runRoutes } from './runs/routes.ts';
import { trainRoutes } from './train/routes.ts';

export interface StudioOptions {
  /** Folder whose runs are shown. */
  root: string;
  version: string;
  /** What the layers above hand in. */
  above?: Above;
  readOnly?: boolean;
  /** How users type attune, for command lines that are shown. */
  attune?: string;
  /** Device of models that are loaded for chat. */
  device?: string;
  /** Models to offer first. */
  models?: readonly string[];
  /** Load them at once. */
  autoload?: boolean;
  /** Folders besides the root from which models may be loaded: those of the package, of the current folder. */
  modelFolders?: readonly string[];
  /** Folder for indexes and consoles; the user's cache unless given. */
  cache?: string;
}

export interface Studio {
  readonly routes: readonly Route[];
  close(): Promise<void>;
}

export function studioParts(options: StudioOptions): Studio {
  const { attune = 'attune', above = { verbs: [] }, device = 'cpu', models = [], readOnly = false } = options;
  const cache = options.cache ?? join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'attune', 'studio');
  const root = new Root(options.root);
  const catalogue = new Catalogue(root, options.cache === undefined ? undefined : join(cache, 'runs'));
  const tables = new MetricTables();
  const indexes = new RolloutIndexes(cache);
  const view = new TokenView();
  const jobs = new Jobs();
  const processes = new Processes({ launcher: above.launcher, attune, cache }, jobs);
  const places = new ModelPlaces(root, options.modelFolders ?? [], models);
  const chat = new ChatModels(jobs, places, device);
  if (options.autoload) chat.load(models, undefined);
  const session: Session = {
    version: options.version,
    root: resolve(options.root),
    readOnly,
    startedAt: Date.now(),
    hasChat: true,
    hasTrain: above.verbs.length > 0 && processes.available,
    hasWhatIf: above.whatIf !== undefined,
    device,
    attune,
    models: [...models],
  };
  return {
    routes: [
      get('/api/session', () => session),
      ...runRoutes({ catalogue, tables, above, processes, attune }),
      ...rolloutRoutes({ catalogue, indexes, view, above }),
      ...chatRoutes(root, chat, new Turns(chat)),
      ...dataRoutes({ places, jobs, scorer: () => chat.scorer }),
      ...trainRoutes({ catalogue, places, jobs, processes, above, attune }),
      ...modelRoutes({ catalogue, places, processes, above }),
      ...jobRoutes(jobs),
    ],
    async close() {
      processes[Symbol.dispose]();
      indexes[Symbol.dispose]();
      view[Symbol.dispose]();
      chat[Symbol.dispose]();
    },
  };
}
