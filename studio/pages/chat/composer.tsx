/** Where one writes: Enter sends, Shift+Enter makes a new line, Esc stops. */
import type { Signal } from '@preact/signals';
import type { RefObject } from 'preact';
import { Icon } from '../../parts/icons.tsx';
import { turns } from './talk.ts';

interface ComposerProps {
  input: RefObject<HTMLTextAreaElement | null>;
  draft: Signal<string>;
  isEditing: boolean;
  onCancelEdit: () => void;
  canSend: boolean;
  isStreaming: boolean;
  onSend: () => void;
  onStop: () => void;
}

export function Composer({
  input,
  draft,
  isEditing,
  onCancelEdit,
  canSend,
  isStreaming,
  onSend,
  onStop,
}: ComposerProps) {
  return (
    <form
      class="composer card"
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
    >
      {isEditing && (
        <div class="spread small">
          <span class="muted">Editing: what came after this prompt is replaced.</span>
          <button type="button" class="link-button" onClick={onCancelEdit}>
            Keep it
          </button>
        </div>
      )}
      <div class="composer-row">
        <textarea
          ref={input}
          rows={Math.min(10, Math.max(2, draft.value.split('\n').length))}
          aria-label="Your message"
          placeholder="Write a message"
          value={draft.value}
          onInput={(event) => {
            draft.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            onSend();
          }}
        />
        <div class="stack tight">
          {isStreaming ? (
            <button type="button" class="button" onClick={onStop}>
              <Icon name="stop" /> Stop
            </button>
          ) : (
            <button type="submit" class="button primary" disabled={!canSend || draft.value.trim() === ''}>
              Send
            </button>
          )}
          <button
            type="button"
            class="button slim quiet"
            disabled={isStreaming || turns.value.length === 0}
            onClick={() => {
              turns.value = [];
            }}
          >
            New chat
          </button>
        </div>
      </div>
    </form>
  );
}
