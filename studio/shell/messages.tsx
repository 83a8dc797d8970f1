/** The notice of a lost connection, and short messages. */
import { closeToast, toasts } from '../app/toasts.ts';
import { Icon } from '../parts/icons.tsx';
import { connection, session } from '../wire/requests.ts';

export function Notice() {
  const state = connection.value;
  return (
    <div role="status" aria-live="assertive">
      {state === 'lost' && <div class="notice">The studio does not answer. What you see is kept; trying again …</div>}
      {state === 'stranger' && (
        <div class="notice">
          This browser is not signed in. Open the address that <code>{session.value?.attune ?? 'attune'} studio</code>{' '}
          printed when it started.
        </div>
      )}
    </div>
  );
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, level, text, link }) => (
        <div key={id} class={`toast ${level}`} role={level === 'failure' ? 'alert' : undefined}>
          <p>
            {text} {link && <a href={link.href}>{link.label}</a>}
          </p>
          <button type="button" class="button quiet slim" aria-label="Close" onClick={() => closeToast(id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
