/** One option: its control, what it does, its default, what is wrong with it. */
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
      {field.type === 'switch' || field.type === 'choice' ? (
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

function listOf({ picks }: TrainField): string | undefined {
  if (picks === 'model' || picks === 'reward-model') return 'models';
  return picks === 'dataset' ? 'datasets' : undefined;
}
