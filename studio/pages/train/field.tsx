/** One option: its control, what it does, its default, what is wrong with it. */
import { useSignal } from '@preact/signals';
import type { FieldFault, TrainField } from '../../../src/studio/api.ts';
import { defaultText } from './values.ts';

interface FieldProps {
  field: TrainField;
  value: string;
  faults: readonly FieldFault[];
  onChange: (text: string) => void;
}

export function Field({ field, value, faults, onChange }: FieldProps) {
  const id = `field-${field.name}`;
  const shared = {
    id,
    'aria-describedby': `${id}-what`,
    'aria-invalid': faults.length > 0,
    'aria-required': field.required,
  } as const;
  return (
    <div class={value === '' ? 'field' : 'field is-set'}>
      <label class="name" for={id} title={field.flag}>
        <span class="mono">{field.flag}</span>
      </label>
      {field.names && field.picks !== 'task' ? (
        <NameChoice {...{ field, value, shared, onChange }} names={field.names} />
      ) : field.type === 'switch' || field.type === 'choice' ? (
        <select {...shared} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          <option value="">{defaultText(field)} (default)</option>
          {(field.type === 'switch' ? ['true', 'false'] : (field.choices ?? [])).map((choice) => (
            <option key={choice} value={choice}>
              {field.type === 'switch' ? (choice === 'true' ? 'on' : 'off') : choice}
            </option>
          ))}
        </select>
      ) : (
        <input
          {...shared}
          type="text"
          inputMode={field.type === 'number' || field.type === 'integer' ? 'decimal' : 'text'}
          autocomplete="off"
          spellcheck={false}
          list={listOf(field)}
          placeholder={defaultText(field)}
          value={value}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
      {faults.map(({ message }) => (
        <span key={message} class="fault" role="alert">
          {message}
        </span>
      ))}
      <span id={`${id}-what`} class="what small muted">
        {field.description}
      </span>
    </div>
  );
}

interface NameChoiceProps {
  field: TrainField;
  names: readonly string[];
  value: string;
  shared: Readonly<Record<string, unknown>>;
  onChange: (text: string) => void;
}

/** A list of the known names; the last entry gives way to a text, because a program may have registered others. */
function NameChoice({ field, names, value, shared, onChange }: NameChoiceProps) {
  const typing = useSignal(value !== '' && !names.includes(value));
  if (typing.value || (value !== '' && !names.includes(value)))
    return (
      <div class="row tight nowrap">
        <input
          {...shared}
          type="text"
          class="grow"
          autocomplete="off"
          spellcheck={false}
          placeholder={defaultText(field)}
          value={value}
          onInput={(event) => {
            typing.value = true;
            onChange(event.currentTarget.value);
          }}
        />
        <button
          type="button"
          class="button slim"
          onClick={() => {
            typing.value = false;
            onChange('');
          }}
        >
          List
        </button>
      </div>
    );
  return (
    <select
      {...shared}
      value={value}
      onChange={(event) => {
        typing.value = event.currentTarget.value === another;
        if (!typing.value) onChange(event.currentTarget.value);
      }}
    >
      <option value="">{defaultText(field)} (default)</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
      <option value={another}>another name …</option>
    </select>
  );
}

const another = '…';

function listOf({ picks }: TrainField): string | undefined {
  if (picks === 'task') return 'tasks';
  if (picks === 'model' || picks === 'reward-model') return 'models';
  return picks === 'dataset' ? 'datasets' : undefined;
}
