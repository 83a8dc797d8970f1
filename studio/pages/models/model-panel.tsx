/** One model: what it is, and what can be done with it. */
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import type { Job, ModelInspection, ModelRow } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { toast, toastFailure } from '../../app/toasts.ts';
import { Icon } from '../../parts/icons.tsx';
import { Command, CopyButton, Waiting } from '../../parts/page-parts.tsx';
import { post, session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';

export function ModelPanel({ row, onClose, onJob }: { row: ModelRow; onClose: () => void; onJob: () => void }) {
  const inspection = useResource<ModelInspection>('models/inspect', { model: row.model });
  const now = session.value;
  const canChange = now?.readOnly !== true;
  const isReward = row.kind === 'reward';
  return (
    <article class="card stack tight model-panel" aria-label={row.name}>
      <div class="spread">
        <h2 class="wrap">{row.name}</h2>
        <button type="button" class="button quiet slim" aria-label="Close the model" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      <div class="row tight nowrap">
        <code class="wrap small">{row.model}</code>
        <CopyButton text={row.model} label="path" />
      </div>
      <div class="row tight">
        {now?.hasChat && !isReward && (
          <a class="button slim" href={href(['chat'], { model: row.model })}>
            Chat
          </a>
        )}
        {now?.hasTrain && canChange && !isReward && (
          <>
            <a class="button slim" href={href(['train', 'policy'], { model: row.model })}>
              Train by reward
            </a>
            <a class="button slim" href={href(['train', 'preference'], { model: row.model })}>
              Train on preferences
            </a>
          </>
        )}
        {now?.hasTrain && canChange && isReward && (
          <a class="button slim" href={href(['train', 'policy'], { rewardModelPath: row.model })}>
            Train a policy against it
          </a>
        )}
      </div>
      {!isReward && <Serve row={row} onJob={onJob} />}
      {canChange && row.kind !== 'quantised' && <Quantise row={row} onJob={onJob} />}
      {canChange && !isReward && <Export row={row} onJob={onJob} />}
      <h3>What it is</h3>
      {inspection.data ? <pre class="facts-text">{inspection.data.text}</pre> : <Waiting error={inspection.error} />}
    </article>
  );
}

/** One piece of work that a model can be put to. */
function JobForm({ title, start, children }: { title: string; start: () => void; children: ComponentChildren }) {
  return (
    <form
      class="stack tight"
      onSubmit={(event) => {
        event.preventDefault();
        start();
      }}
    >
      <h3>{title}</h3>
      {children}
    </form>
  );
}

/** A server of its own process, listed below the models until it is stopped; the same as a command to type. */
function Serve({ row, onJob }: { row: ModelRow; onJob: () => void }) {
  const port = useSignal('8000');
  const start = () => begin('models/serve', { model: row.model, port: Number(port.value) }, onJob);
  const usual = port.value.trim() === '8000' ? '' : ` --port ${port.value.trim()}`;
  return (
    <JobForm title="Serve to any OpenAI client" start={start}>
      {session.value?.readOnly !== true && (
        <div class="row nowrap">
          <label class="row tight nowrap">
            Port
            <input
              type="number"
              class="port"
              min="0"
              max="65535"
              required
              value={port.value}
              onInput={(event) => {
                port.value = event.currentTarget.value;
              }}
            />
          </label>
          <button type="submit" class="button">
            Serve
          </button>
        </div>
      )}
      <Command text={`${session.value?.attune ?? 'attune'} serve ${quoted(row.model)}${usual}`} />
    </JobForm>
  );
}

function Quantise({ row, onJob }: { row: ModelRow; onJob: () => void }) {
  const type = useSignal<'int8' | 'int4'>('int8');
  const isReward = row.kind === 'reward';
  // The copy is compared with the original: a policy on prompts, a reward model on pairs.
  const measure = useSignal(isReward ? '' : 'chain_sum');
  const start = () => {
    const on = measure.value.trim();
    const options = on === '' ? {} : isReward ? { dataset: on } : { task: on };
    const kind = isReward ? 'reward' : 'policy';
    return begin('models/quantise', { model: row.model, kind, quantType: type.value, options }, onJob);
  };
  return (
    <JobForm title="Quantise" start={start}>
      <div class="export">
        <select
          class="auto"
          aria-label="Type of the weights"
          value={type.value}
          onChange={(event) => {
            type.value = event.currentTarget.value as 'int8' | 'int4';
          }}
        >
          <option value="int8">int8: a quarter of f32, close to exact</option>
          <option value="int4">int4: an eighth of f32, a little worse</option>
        </select>
        <input
          type="text"
          aria-label={isReward ? 'Pairs to measure it on' : 'Tasks whose prompts it is measured on'}
          title={isReward ? 'Pairs to measure it on' : 'Tasks whose prompts it is measured on'}
          placeholder={isReward ? 'pairs: the usual dataset' : 'tasks: chain_sum'}
          value={measure.value}
          onInput={(event) => {
            measure.value = event.currentTarget.value;
          }}
        />
        <button type="submit" class="button">
          Quantise
        </button>
      </div>
    </JobForm>
  );
}

const ggufTypes = ['f16', 'bf16', 'f32', 'q8_0', 'q4_0'];

function Export({ row, onJob }: { row: ModelRow; onJob: () => void }) {
  const format = useSignal<'merged' | 'gguf'>('merged');
  const type = useSignal('f16');
  const out = useSignal('');
  const usual = `exports/${row.name.replaceAll(/[^\w.-]+/g, '-')}${format.value === 'gguf' ? `-${type.value}.gguf` : ''}`;
  const start = () =>
    begin(
      'models/export',
      {
        model: row.model,
        format: format.value,
        out: out.value.trim() || usual,
        ...(format.value === 'gguf' ? { type: type.value } : {}),
      },
      onJob,
    );
  return (
    <JobForm title="Export" start={start}>
      <div class="export">
        <select
          aria-label="Format"
          value={format.value}
          onChange={(event) => {
            format.value = event.currentTarget.value as 'merged' | 'gguf';
          }}
        >
          <option value="merged">one folder without adapters</option>
          <option value="gguf">GGUF, for llama.cpp and Ollama</option>
        </select>
        {format.value === 'gguf' && (
          <select
            aria-label="Type of the weights"
            value={type.value}
            onChange={(event) => {
              type.value = event.currentTarget.value;
            }}
          >
            {ggufTypes.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        )}
        <input
          type="text"
          aria-label="Where to, below the studio’s folder"
          placeholder={usual}
          value={out.value}
          onInput={(event) => {
            out.value = event.currentTarget.value;
          }}
        />
        <button type="submit" class="button">
          Export
        </button>
      </div>
    </JobForm>
  );
}

async function begin(path: string, body: unknown, onJob: () => void): Promise<void> {
  try {
    const job = await post<Job>(path, body);
    toast(`${job.title}: begun`);
  } catch (error) {
    toastFailure(error);
  }
  onJob();
}

const quoted = (text: string) => (/[^\w./:@-]/.test(text) ? `'${text.replaceAll("'", "'\\''")}'` : text);
