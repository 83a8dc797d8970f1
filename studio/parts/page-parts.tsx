/** Small parts that every page uses: what is shown while there is nothing, a command to copy, a choice of few. */
import { type ComponentChildren, Fragment } from 'preact';
import { toast, toastFailure } from '../app/toasts.ts';
import { Icon, type IconName } from './icons.tsx';

export function Waiting({ error, what = 'Reading …' }: { error?: Error | undefined; what?: string }) {
  return (
    <div class="wait" role={error ? 'alert' : 'status'}>
      {error ? error.message : what}
    </div>
  );
}

export function Empty({ icon, title, children }: { icon?: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      {icon && <Icon name={icon} />}
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Text to type elsewhere, with a button that copies it. */
export function Command({ text, label = 'command' }: { text: string; label?: string }) {
  return (
    <div class="command">
      <code>
        {/* Lines break between words, not within --an-option. */}
        {text.split(' ').map((word, i) => (
          <Fragment key={`${i}-${word}`}>
            {i > 0 && ' '}
            <span>{word}</span>
          </Fragment>
        ))}
      </code>
      <CopyButton text={text} label={label} />
    </div>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast('Copied');
    } catch (error) {
      toastFailure(error);
    }
  };
  return (
    <button type="button" class="button quiet slim" aria-label={`Copy the ${label}`} title="Copy" onClick={copy}>
      <Icon name="copy" />
    </button>
  );
}

interface SegmentsProps<T extends string> {
  label: string;
  value: T;
  choices: readonly (readonly [value: T, label: string])[];
  onChange: (value: T) => void;
}

/** A choice of few, all visible. */
export function Segments<T extends string>({ label, value, choices, onChange }: SegmentsProps<T>) {
  return (
    <fieldset class="segments" aria-label={label}>
      {choices.map(([each, name]) => (
        <button key={each} type="button" aria-pressed={each === value} onClick={() => onChange(each)}>
          {name}
        </button>
      ))}
    </fieldset>
  );
}

/** Values as one small line, without axes. */
export function Spark({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const height = (value: number) => (high === low ? 10 : 19 - (18 * (value - low)) / (high - low));
  const points = values.flatMap((value, i) =>
    value === null ? [] : [`${((100 * i) / (values.length - 1)).toFixed(2)} ${height(value).toFixed(2)}`],
  );
  return (
    <svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={`M${points.join('L')}`} />
    </svg>
  );
}
