/** A modal dialog. The browser's own element keeps the focus inside and gives it back. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Layer, useKeyLayer } from '../app/keys.ts';
import { Icon } from './icons.tsx';

interface DialogProps {
  title: string;
  onClose: () => void;
  /** Pixels; 560 unless given. */
  width?: number;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, width, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const name = useId();
  const layer = useKeyLayer();
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <Layer.Provider value={layer}>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it; a click beside it is a second way */}
      <dialog
        ref={element}
        aria-labelledby={name}
        style={width === undefined ? {} : { '--dialog-width': `${width}px` }}
        onCancel={(event) => {
          event.preventDefault();
          onClose();
        }}
        onClick={(event) => event.target === element.current && onClose()}
      >
        <div class="dialog-head">
          <h2 id={name}>{title}</h2>
          <button type="button" class="button quiet slim" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        <div class="dialog-body">{children}</div>
      </dialog>
    </Layer.Provider>
  );
}
