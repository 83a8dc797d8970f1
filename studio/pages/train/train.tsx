/** Start a training: a form made from the command's own schema, with the command line, YAML and memory plan it stands for. */
import { useEffect } from 'preact/hooks';
import type { TrainCommand, TrainSchema } from '../../../src/studio/api.ts';
import { href, route } from '../../app/router.ts';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import { TrainForm } from './form.tsx';
import './train.css';

export default function Train() {
  const commands = useResource<TrainCommand[]>('train/commands');
  const now = session.value;
  if (now && !now.hasTrain)
    return (
      <div class="page">
        <h1>Train</h1>
        <Empty icon="train" title="This studio cannot start trainings">
          <p>It was started by a program, not by attune studio. Runs can be watched all the same.</p>
        </Empty>
      </div>
    );
  if (!commands.data) return <Waiting error={commands.error} />;
  const name = route.value.path[1] ?? 'policy';
  const chosen = commands.data.find((command) => command.name === name) ?? commands.data[0];
  return (
    <div class="page">
      <div class="spread">
        <h1>Train</h1>
        {now?.readOnly && <span class="tag note">This studio is read only: nothing can be started</span>}
      </div>
      <nav class="tabs" aria-label="What to train">
        {commands.data.map((command) => (
          <a
            key={command.name}
            href={href(['train', command.name])}
            aria-current={command.name === chosen?.name ? 'true' : undefined}
          >
            {command.name}
          </a>
        ))}
      </nav>
      {chosen && <CommandForm key={chosen.name} command={chosen} />}
    </div>
  );
}

function CommandForm({ command }: { command: TrainCommand }) {
  const { query } = route.value;
  const schema = useResource<TrainSchema>(`train/${command.name}/schema`, { run: query.run });
  useEffect(() => {
    document.title = `${command.title} · attune studio`;
  }, [command]);
  if (!schema.data) return <Waiting error={schema.error} />;
  return <TrainForm schema={schema.data} description={command.description} />;
}
