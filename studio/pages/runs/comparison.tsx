/** Chosen runs together: their curves over one another, the options in which they differ, their last values. */
import { useSignal } from '@preact/signals';
import type { RunRow } from '../../../src/studio/api.ts';
import { Segments } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';
import { Difference } from './difference.tsx';
import { Overlay } from './overlay.tsx';

interface ComparisonProps {
  runs: readonly RunRow[];
  onClear: () => void;
  onTag: () => void;
  onDelete: () => void;
}

export function Comparison({ runs, onClear, onTag, onDelete }: ComparisonProps) {
  const shown = useSignal<'curves' | 'options' | 'metrics'>('curves');
  const canChange = session.value?.readOnly !== true;
  return (
    <section class="stack" aria-label="Chosen runs">
      <div class="chosen-bar spread">
        <div class="row">
          <b>{runs.length === 1 ? '1 run' : `${runs.length} runs`}</b>
          <Segments
            label="What to compare"
            value={shown.value}
            choices={[
              ['curves', 'Curves'],
              ['options', 'Options that differ'],
              ['metrics', 'Last values'],
            ]}
            onChange={(value) => {
              shown.value = value;
            }}
          />
        </div>
        <div class="row tight">
          {canChange && (
            <>
              <button type="button" class="button slim" onClick={onTag}>
                Tag …
              </button>
              <button type="button" class="button slim danger" onClick={onDelete}>
                Delete …
              </button>
            </>
          )}
          <button type="button" class="button slim" onClick={onClear}>
            Choose none
          </button>
        </div>
      </div>
      {shown.value === 'curves' ? <Overlay runs={runs} /> : <Difference runs={runs} what={shown.value} />}
    </section>
  );
}
