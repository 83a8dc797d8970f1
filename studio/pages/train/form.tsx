/** The fields by group and, beside them, what they amount to. */
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { DataList, ModelList, TrainCheck, TrainSchema } from '../../../src/studio/api.ts';
import { kept } from '../../app/kept.ts';
import { useKeys } from '../../app/keys.ts';
import { route, setQuery } from '../../app/router.ts';
import { post } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import { Field } from './field.tsx';
import { Outcome } from './outcome.tsx';
import { asTyped, fieldsOf, matches, type Typed, toSend } from './values.ts';

/** What was typed outlives a reload, by command. */
const typedBy: Record<string, ReturnType<typeof kept<Typed>>> = {};

export function TrainForm({ schema, description }: { schema: TrainSchema; description: string }) {
  typedBy[schema.command] ??= kept<Typed>(`train-${schema.command}`, {});
  const typed = typedBy[schema.command] as ReturnType<typeof kept<Typed>>;
  const check = useSignal<TrainCheck | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const words = useSignal('');
  const search = useRef<HTMLInputElement>(null);
  const models = useResource<ModelList>('models');
  const datasets = useResource<DataList>('data');
  useFilledIn(schema, typed);
  const groups = useMemo(() => schema.groups.toSorted((a, b) => late(a.name) - late(b.name)), [schema]);
  useKeys('Train', [{ keys: '/', what: 'find an option', run: () => search.current?.focus() }]);

  const values = useMemo(() => toSend(schema, typed.value), [schema, typed.value]);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        check.value = await post<TrainCheck>(`train/${schema.command}/check`, { values }, abort.signal);
        error.value = undefined;
      } catch (failure) {
        if (!abort.signal.aborted) error.value = failure as Error;
      }
    }, 350);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [schema.command, values, check, error]);

  const faults = Map.groupBy(check.value?.faults ?? [], ({ field }) => field);
  const searching = words.value.trim() !== '';
  const set = Object.keys(values).length;
  return (
    <div class="train">
      <form class="stack" onSubmit={(event) => event.preventDefault()}>
        <p class="muted">{description}</p>
        <div class="row nowrap">
          <input
            ref={search}
            type="search"
            class="grow"
            aria-label="Find an option"
            placeholder="Find an option"
            value={words.value}
            onInput={(event) => {
              words.value = event.currentTarget.value;
            }}
          />
          <button
            type="button"
            class="button"
            disabled={set === 0}
            onClick={() => {
              typed.value = {};
            }}
          >
            All defaults{set > 0 ? ` (${set} set)` : ''}
          </button>
        </div>
        {groups.map((group) => {
          const shown = group.fields.filter((field) => !searching || matches(field, words.value));
          if (shown.length === 0) return null;
          const draw = (field: (typeof shown)[number]) => (
            <Field
              key={field.name}
              field={field}
              value={typed.value[field.name] ?? ''}
              faults={faults.get(field.name) ?? []}
              onChange={(text) => {
                typed.value = { ...typed.value, [field.name]: text };
              }}
            />
          );
          const isFolded = ({ advanced, name }: (typeof shown)[number]) =>
            advanced && !searching && !faults.has(name) && (typed.value[name] ?? '') === '';
          const folded = shown.filter(isFolded);
          return (
            <section key={group.name} class="card stack tight">
              <h2>{group.name}</h2>
              <div class="fields">{shown.filter((field) => !isFolded(field)).map(draw)}</div>
              {folded.length > 0 && (
                <details>
                  <summary class="small muted">{folded.length} more, seldom changed</summary>
                  <div class="fields">{folded.map(draw)}</div>
                </details>
              )}
            </section>
          );
        })}
        <datalist id="models">
          {models.data?.models.map(({ model, name }) => (
            <option key={model} value={model}>
              {name}
            </option>
          ))}
        </datalist>
        <datalist id="tasks">
          {fieldsOf(schema)
            .flatMap(({ picks, names = [] }) => (picks === 'task' ? names : []))
            .map((name) => (
              <option key={name} value={name} />
            ))}
        </datalist>
        <datalist id="datasets">
          {datasets.data?.datasets.map(({ dataset, name }) => (
            <option key={dataset} value={dataset}>
              {name}
            </option>
          ))}
        </datalist>
      </form>
      <Outcome schema={schema} values={values} check={check.value} error={error.value} />
    </div>
  );
}

/** What is to be trained comes first, where the files go last. */
const late = (group: string) => Number(/^(run|logging)/i.test(group));

/** Values of a run (?run=) and of a link (?model=…&dataset=…) are filled in once, then leave the address. */
function useFilledIn(schema: TrainSchema, typed: ReturnType<typeof kept<Typed>>): void {
  useEffect(() => {
    const { query } = route.peek();
    const given = (values: Readonly<Record<string, unknown>>) =>
      Object.fromEntries(
        fieldsOf(schema).flatMap(({ name }) => (values[name] === undefined ? [] : [[name, asTyped(values[name])]])),
      );
    // A run is begun from as a whole; what the studio proposes gives way to what was typed before.
    const before = query.run ? {} : typed.peek();
    typed.value = { ...given(schema.values ?? {}), ...before, ...given(query) };
    setQuery({ run: undefined, ...Object.fromEntries(fieldsOf(schema).map(({ name }) => [name, undefined])) });
  }, [schema, typed]);
}
