/** Search and filters over the responses. */
import { useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import type { RolloutsAnswer } from '../../../src/studio/api.ts';
import { route, setQuery } from '../../app/router.ts';
import { count, percent } from '../../format/numbers.ts';
import { filtersSet, noFilters } from './filters.ts';

interface FilterBarProps {
  answer: RolloutsAnswer | undefined;
  search: RefObject<HTMLInputElement | null>;
  isEval: boolean;
}

export function FilterBar({ answer, search, isEval }: FilterBarProps) {
  const { query } = route.value;
  const set = filtersSet(query);
  const shown = useSignal(set > 0);
  return (
    <search class="stack tight">
      <div class="row nowrap">
        <input
          ref={search}
          type="search"
          class="grow"
          aria-label="Search prompts and responses"
          placeholder='Search words, "a phrase", begin*'
          value={query.q ?? ''}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
        <button
          type="button"
          class="button"
          aria-expanded={shown.value}
          aria-pressed={set > 0}
          onClick={() => {
            shown.value = !shown.value;
          }}
        >
          Filters{set > 0 ? ` (${set})` : ''}
        </button>
        <span class="muted small number found" role="status">
          {answer ? `${count(answer.total)} found` : ''}
        </span>
      </div>
      {answer && answer.indexed < 1 && query.q && (
        <p class="muted small">
          The index holds {percent(answer.indexed)} of the texts so far; the search misses the rest.
        </p>
      )}
      {shown.value && (
        <div class="filters">
          <Range label="Step" low="from" high="to" />
          <Range label="Reward" low="minReward" high="maxReward" />
          <Range
            label={answer?.lengthUnit === 'characters' ? 'Length (characters)' : 'Length (tokens)'}
            low="minLength"
            high="maxLength"
          />
          {answer?.has.correct !== false && (
            <Choice
              label="Right"
              name="correct"
              choices={[
                ['yes', 'right'],
                ['no', 'wrong'],
              ]}
            />
          )}
          {answer?.has.ending && !isEval && (
            <Choice
              label="Ending"
              name="ending"
              choices={[
                ['ended', 'ended by itself'],
                ['cut', 'cut off'],
              ]}
            />
          )}
          {(answer?.tasks.length ?? 0) > 1 && (
            <Choice label="Task" name="task" choices={answer?.tasks.map((task) => [task, task] as const) ?? []} />
          )}
          <NumberField label="Prompt number" name="prompt" />
          <button type="button" class="button" disabled={set === 0 && !query.q} onClick={() => setQuery(noFilters)}>
            Clear all
          </button>
        </div>
      )}
    </search>
  );
}

function Range({ label, low, high }: { label: string; low: string; high: string }) {
  const input = (name: string, end: string) => (
    <input
      type="number"
      step="any"
      aria-label={`${label}, ${end}`}
      placeholder={end}
      value={route.value.query[name] ?? ''}
      // A range of steps takes the place of the single step.
      onInput={(event) =>
        setQuery({ [name]: event.currentTarget.value, ...(label === 'Step' ? { step: undefined } : {}) })
      }
    />
  );
  return (
    <div class="field">
      <span class="name">{label}</span>
      <div class="range">
        {input(low, 'from')}
        {input(high, 'to')}
      </div>
    </div>
  );
}

function NumberField({ label, name }: { label: string; name: string }) {
  return (
    <label class="field">
      <span class="name">{label}</span>
      <input
        type="number"
        min="0"
        placeholder="any"
        value={route.value.query[name] ?? ''}
        onInput={(event) => setQuery({ [name]: event.currentTarget.value })}
      />
    </label>
  );
}

function Choice({
  label,
  name,
  choices,
}: {
  label: string;
  name: string;
  choices: readonly (readonly [string, string])[];
}) {
  return (
    <label class="field">
      <span class="name">{label}</span>
      <select
        value={route.value.query[name] ?? ''}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value })}
      >
        <option value="">any</option>
        {choices.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
