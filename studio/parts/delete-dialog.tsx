/** Deleting takes two steps: what would go is listed with its size, then the word DELETE is typed. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { DeleteAnswer, DeleteAsk, DeletePlan } from '../../src/studio/api.ts';
import { toast, toastFailure } from '../app/toasts.ts';
import { bytes } from '../format/numbers.ts';
import { post } from '../wire/requests.ts';
import { Dialog } from './dialog.tsx';
import { Size } from './figures.tsx';
import { Waiting } from './page-parts.tsx';

export function DeleteDialog({ ask, onClose, onDone }: { ask: DeleteAsk; onClose: () => void; onDone: () => void }) {
  const [plan, setPlan] = useState<DeletePlan>();
  const [error, setError] = useState<Error>();
  const word = useSignal('');
  const busy = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), [plan]);
  // Asked once, when it opens.
  useEffect(() => {
    post<DeletePlan>('delete', ask).then(setPlan, setError);
  }, []);
  const confirm = async (event: Event) => {
    event.preventDefault();
    if (!plan || word.value !== 'DELETE') return;
    busy.value = true;
    try {
      const answer = await post<DeleteAnswer>('delete', { confirm: plan.confirm, word: word.value });
      toast(
        `Deleted ${answer.removed.length === 1 ? 'one folder' : `${answer.removed.length} folders`}, ${bytes(answer.bytes)}`,
      );
      for (const { path, why } of answer.left) toastFailure(`${path} was kept: ${why}`);
      onDone();
      onClose();
    } catch (failure) {
      toastFailure(failure);
      busy.value = false;
    }
  };
  return (
    <Dialog title="Delete" onClose={onClose}>
      {plan ? (
        <form class="stack" onSubmit={confirm}>
          <p>
            These go for good, <Size value={plan.bytes} /> in all:
          </p>
          <ul class="delete-list">
            {plan.paths.map(({ path, bytes: size }) => (
              <li key={path} class="spread">
                <code class="wrap">{path}</code>
                <span class="muted small">
                  <Size value={size} />
                </span>
              </li>
            ))}
          </ul>
          <label class="field">
            <span class="name">
              Type <b>DELETE</b> to confirm
            </span>
            <input
              ref={input}
              type="text"
              autocomplete="off"
              spellcheck={false}
              value={word.value}
              onInput={(event) => {
                word.value = event.currentTarget.value;
              }}
            />
          </label>
          <div class="row end">
            <button type="button" class="button" onClick={onClose}>
              Keep them
            </button>
            <button type="submit" class="button danger" disabled={word.value !== 'DELETE' || busy.value}>
              Delete
            </button>
          </div>
        </form>
      ) : (
        <Waiting error={error} what="Looking what would go …" />
      )}
    </Dialog>
  );
}
