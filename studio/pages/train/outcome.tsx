/** What the form amounts to: the command line, the YAML, the memory plan; then the start. */
import { useSignal } from '@preact/signals';
import type { Job, StartAnswer, TrainCheck, TrainSchema } from '../../../src/studio/api.ts';
import { go } from '../../app/router.ts';
import { toast, toastFailure } from '../../app/toasts.ts';
import { Icon } from '../../parts/icons.tsx';
import { Command, CopyButton, Segments } from '../../parts/page-parts.tsx';
import { get, post, session } from '../../wire/requests.ts';
import { fieldsOf } from './values.ts';

interface OutcomeProps {
  schema: TrainSchema;
  values: Record<string, unknown>;
  check: TrainCheck | undefined;
  error: Error | undefined;
}

export function Outcome({ schema, values, check, error }: OutcomeProps) {
  const form = useSignal<'command' | 'yaml'>('command');
  const state = useSignal<'idle' | 'starting'>('idle');
  const lines = useSignal<readonly string[]>([]);
  const faults = check?.faults.length ?? 0;
  const flags = new Map(fieldsOf(schema).map(({ name, flag }) => [name, flag]));
  const start = async () => {
    state.value = 'starting';
    try {
      const { jobId, runId } = await post<StartAnswer>(`train/${schema.command}/start`, { values });
      const run =
        runId ??
        (await runOf(jobId, (more) => {
          lines.value = more;
        }));
      toast('Started. It is a process of its own: the studio may be closed.');
      go(['runs', run]);
    } catch (failure) {
      toastFailure(failure);
    }
    state.value = 'idle';
  };
  return (
    <aside class="outcome card stack tight" aria-label="What the form amounts to">
      <div class="spread">
        <h2>This starts</h2>
        <Segments
          label="Written as"
          value={form.value}
          choices={[
            ['command', 'Command'],
            ['yaml', 'YAML'],
          ]}
          onChange={(value) => {
            form.value = value;
          }}
        />
      </div>
      {check &&
        (form.value === 'command' ? (
          <Command text={check.commandLine} />
        ) : (
          <div class="command">
            <code>{check.yaml}</code>
            <CopyButton text={check.yaml} label="YAML" />
          </div>
        ))}
      <h2>Memory and work</h2>
      {check?.plan ? (
        <pre class="plan">{check.plan}</pre>
      ) : (
        <p class="muted small">
          {check?.planFailure ?? (faults > 0 ? 'Shown once the faults are mended.' : check ? 'No plan.' : 'Looking …')}
        </p>
      )}
      {check?.faults.map(({ field, message }) => (
        <p key={field + message} class="fault">
          {field !== '' && (
            <button
              type="button"
              class="link-button mono"
              onClick={() => document.getElementById(`field-${field}`)?.focus()}
            >
              {flags.get(field) ?? field}
            </button>
          )}{' '}
          {message}
        </p>
      ))}
      {error && (
        <p class="fault" role="alert">
          {error.message}
        </p>
      )}
      <div class="row end start-row">
        <span class="small muted" role="status">
          {faults > 0 && `${faults === 1 ? 'One fault' : `${faults} faults`} to mend first`}
        </span>
        <button
          type="button"
          class="button primary"
          disabled={!check || faults > 0 || state.value === 'starting' || session.value?.readOnly}
          onClick={start}
        >
          <Icon name="train" /> {state.value === 'starting' ? 'Starting …' : 'Start'}
        </button>
      </div>
      {state.value === 'starting' && lines.value.length > 0 && (
        <pre class="plan">{lines.value.slice(-8).join('\n')}</pre>
      )}
    </aside>
  );
}

/** The run's folder appears a moment after its process: asks the job until it does. */
async function runOf(jobId: string, onLines: (lines: readonly string[]) => void): Promise<string> {
  for (;;) {
    const job = await get<Job>(`jobs/${jobId}`);
    onLines(job.lines);
    if (job.runId) return job.runId;
    if (job.state !== 'running') throw new Error(job.error ?? (job.lines.slice(-6).join('\n') || 'It ended at once.'));
    await new Promise((resolve) => setTimeout(resolve, 600));
  }
}
