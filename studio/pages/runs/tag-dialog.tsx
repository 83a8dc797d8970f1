/** Tags of the chosen runs: added and taken off together. */
import { useSignal } from '@preact/signals';
import type { RunRow, TagAnswer } from '../../../src/studio/api.ts';
import { toast, toastFailure } from '../../app/toasts.ts';
import { Dialog } from '../../parts/dialog.tsx';
import { post } from '../../wire/requests.ts';

export function TagDialog({
  runs,
  onClose,
  onDone,
}: {
  runs: readonly RunRow[];
  onClose: () => void;
  onDone: () => void;
}) {
  const text = useSignal('');
  const present = [...new Set(runs.flatMap(({ tags }) => tags))].sort();
  const change = async (tags: string[]) => {
    try {
      for (const { id } of runs) await post<TagAnswer>(`runs/${id}/tag`, { tags });
      toast('Tags saved');
      onDone();
    } catch (error) {
      toastFailure(error);
    }
  };
  const add = async (event: Event) => {
    event.preventDefault();
    const tags = text.value.split(/[\s,#]+/).filter(Boolean);
    if (tags.length > 0) await change(tags);
    onClose();
  };
  return (
    <Dialog title={runs.length === 1 ? `Tags of ${runs[0]?.name}` : `Tags of ${runs.length} runs`} onClose={onClose}>
      <form class="stack" onSubmit={add}>
        {present.length > 0 && (
          <div class="row tight">
            {present.map((tag) => (
              <button
                key={tag}
                type="button"
                class="button slim"
                title="Take it off"
                onClick={() => change([`-${tag}`])}
              >
                {tag} ×
              </button>
            ))}
          </div>
        )}
        <label class="field">
          <span class="name">New tags, separated by spaces</span>
          <input
            type="text"
            value={text.value}
            placeholder="keep baseline"
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </label>
        <div class="row end">
          <button type="submit" class="button primary">
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}
