/** The run's checkpoints: chat with one, train further from it, delete it. */
import { useSignal } from '@preact/signals';
import type { RunDetail, SnapshotRow } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { DeleteDialog } from '../../parts/delete-dialog.tsx';
import { Size, Time } from '../../parts/figures.tsx';
import { CopyButton, Empty } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';

export function Checkpoints({ run, onChange }: { run: RunDetail; onChange: () => void }) {
  const deleting = useSignal<SnapshotRow | undefined>(undefined);
  const canChange = session.value?.readOnly !== true;
  if (run.snapshots.length === 0)
    return (
      <Empty icon="models" title="No checkpoints yet">
        <p>They are written every --save-steps steps, on Ctrl-C and at the end.</p>
      </Empty>
    );
  return (
    <div class="card flush scroll-x">
      <table class="plain-table stacked">
        <thead>
          <tr>
            <th>checkpoint</th>
            <th class="number">size</th>
            <th>written</th>
            <th>path</th>
            <th>
              <span class="hidden-visually">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {run.snapshots.map((snapshot) => (
            <tr key={snapshot.name}>
              <th scope="row">
                {snapshot.name}{' '}
                {snapshot.quantised.map((name) => (
                  <span key={name} class="tag">
                    {name}
                  </span>
                ))}
              </th>
              <td class="number">
                <Size value={snapshot.bytes} />
              </td>
              <td>
                <Time at={snapshot.modified} />
              </td>
              <td class="long">
                <span class="row tight nowrap">
                  <code class="wrap">{snapshot.model}</code>
                  <CopyButton text={snapshot.model} label="path" />
                </span>
              </td>
              <td class="long">
                <div class="row tight end nowrap">
                  {session.value?.hasChat && (
                    <a class="button slim" href={href(['chat'], { model: snapshot.model })}>
                      Chat
                    </a>
                  )}
                  {session.value?.hasTrain && canChange && (
                    <a class="button slim" href={href(['train', run.kind], { model: snapshot.model })}>
                      Train further
                    </a>
                  )}
                  {canChange && (
                    <button
                      type="button"
                      class="button slim danger"
                      onClick={() => {
                        deleting.value = snapshot;
                      }}
                    >
                      Delete …
                    </button>
                  )}
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {deleting.value && (
        <DeleteDialog
          ask={{ snapshots: [{ id: run.id, name: deleting.value.name }] }}
          onClose={() => {
            deleting.value = undefined;
          }}
          onDone={onChange}
        />
      )}
    </div>
  );
}
