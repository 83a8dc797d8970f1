/** The keys that work here and now. */
import { Fragment } from 'preact';
import { useMemo } from 'preact/hooks';
import { groups } from '../app/keys.ts';
import { Dialog } from '../parts/dialog.tsx';

export function KeyList({ onClose }: { onClose: () => void }) {
  // As they were when the list was opened: the dialog itself silences those below it.
  const shown = useMemo(() => {
    const byTitle = Map.groupBy(groups.peek(), ({ title }) => title);
    return [...byTitle]
      .map(([title, same]) => ({ title, bindings: same.flatMap(({ bindings }) => bindings) }))
      .reverse();
  }, []);
  const always = [
    { keys: '↑ ↓', what: 'move in a table or list' },
    { keys: 'Enter', what: 'open' },
    { keys: 'Esc', what: 'close, leave a field' },
  ];
  return (
    <Dialog title="Keys" width={680} onClose={onClose}>
      <div class="keys">
        {[...shown, { title: 'In tables and dialogs', bindings: always }].map(({ title, bindings }) => (
          <section key={title} class="stack tight">
            <h3>{title}</h3>
            <dl>
              {bindings.map(({ keys, what }) => (
                <Fragment key={keys}>
                  <dt>
                    {keys.split(' ').map((key) => (
                      <Fragment key={key}>
                        <kbd>{key}</kbd>{' '}
                      </Fragment>
                    ))}
                  </dt>
                  <dd>{what}</dd>
                </Fragment>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
