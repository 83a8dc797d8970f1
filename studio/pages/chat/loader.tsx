/** Which models answer, and which reward model scores them. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { ChatLoadRequest, ChatState, Job, ModelList } from '../../../src/studio/api.ts';
import { href, route, setQuery } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { toastFailure } from '../../app/toasts.ts';
import { shortModel } from '../../format/models.ts';
import { Command } from '../../parts/page-parts.tsx';
import { post, session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';

export function Loader({ state, onChange }: { state: ChatState; onChange: () => void }) {
  const models = useResource<ModelList>('models');
  const job = useResource<Job>(
    `jobs/${state.loading?.jobId ?? ''}`,
    {},
    { when: state.loading !== undefined, every: 800 },
  );
  const first = useSignal(state.slots[0]?.model ?? session.value?.models[0] ?? '');
  const second = useSignal(state.slots[1]?.model ?? session.value?.models[1] ?? '');
  const reward = useSignal(state.rewardModel ?? '');
  const load = async () => {
    const request: ChatLoadRequest = {
      slots: [first.value, second.value].map((model) => model.trim()).filter(Boolean),
      ...(reward.value.trim() === '' ? {} : { rewardModel: reward.value.trim() }),
    };
    try {
      await post<Job>('chat/load', request);
    } catch (error) {
      toastFailure(error);
    }
    onChange();
  };
  // A link from a run or a model brings its name.
  const { model: linked } = route.value.query;
  useEffect(() => {
    const { model, with: other } = route.peek().query;
    if (model === undefined) return;
    first.value = model;
    if (other !== undefined) second.value = other;
    setQuery({ model: undefined, with: undefined });
    if (state.slots[0]?.model !== model) void load();
  }, [linked]);
  const loaded = [...state.slots.map(({ model }) => model), state.rewardModel ?? ''];
  const wanted = [...[first.value, second.value].filter(Boolean), reward.value];
  const isLoaded = loaded.join('\n') === wanted.join('\n') && state.slots.length > 0;
  const busy = state.loading !== undefined;
  const progress = job.data?.progress;
  const folded = useSignal(true);
  // On a phone the conversation needs the room.
  if (isSmall.value && isLoaded && folded.value)
    return (
      <div class="card spread loaded">
        <span class="small wrap">{[...loaded].filter(Boolean).map(shortModel).join(', ')}</span>
        <button
          type="button"
          class="button slim"
          onClick={() => {
            folded.value = false;
          }}
        >
          Change
        </button>
      </div>
    );
  return (
    <form
      class="card loader"
      onSubmit={(event) => {
        event.preventDefault();
        void load();
      }}
    >
      <ModelField label="Model" value={first} models={models.data} />
      <ModelField label="Compare with" value={second} models={models.data} placeholder="none" />
      <ModelField label="Reward model" value={reward} models={models.data} placeholder="none" rewards />
      <button type="submit" class="button primary" disabled={busy || first.value.trim() === '' || isLoaded}>
        {busy ? 'Loading …' : isLoaded ? 'Loaded' : 'Load'}
      </button>
      {busy && (
        <p class="loader-state small muted" role="status">
          {progress
            ? `${progress.label} ${progress.done}${progress.total ? ` of ${progress.total}` : ''}`
            : (job.data?.title ?? '')}
        </p>
      )}
    </form>
  );
}

/** The newest models to begin with; where there are none, what to type. */
export function Suggestions() {
  const models = useResource<ModelList>('models');
  if (!models.data) return null;
  const able = models.data.models.filter(({ kind }) => kind !== 'reward').toSorted((a, b) => b.modified - a.modified);
  if (able.length === 0)
    return (
      <>
        <p>There is none here yet. A name of the hub above is fetched when it is loaded, or start with one:</p>
        <Command text={`${session.value?.attune ?? 'attune'} studio --model Qwen/Qwen3-0.6B`} />
      </>
    );
  return (
    <div class="row tight suggestions">
      {able.slice(0, 4).map(({ model, name }) => (
        <a key={model} class="button slim" href={href(['chat'], { model })} title={model}>
          {name}
        </a>
      ))}
    </div>
  );
}

interface ModelFieldProps {
  label: string;
  value: { value: string };
  models: ModelList | undefined;
  placeholder?: string;
  rewards?: boolean;
}

function ModelField({
  label,
  value,
  models,
  placeholder = 'folder, run or hub name',
  rewards = false,
}: ModelFieldProps) {
  const list = rewards ? 'chat-rewards' : 'chat-models';
  return (
    <label class="field">
      <span class="name">{label}</span>
      <input
        type="text"
        list={list}
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder}
        value={value.value}
        onInput={(event) => {
          value.value = event.currentTarget.value;
        }}
      />
      {label !== 'Compare with' && (
        <datalist id={list}>
          {models?.models
            .filter(({ kind }) => (kind === 'reward') === rewards)
            .map(({ model, name }) => (
              <option key={model} value={model}>
                {name}
              </option>
            ))}
        </datalist>
      )}
    </label>
  );
}
