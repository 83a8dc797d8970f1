/** A question mark beside a number that people misread: opens what it means and what is normal. */
import { useId, useRef, useState } from 'preact/hooks';
import { termOf } from './terms.ts';

export function Explain({ term }: { term: string }) {
  const found = termOf(term);
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);
  if (!found) return null;
  const place = () => {
    const around = button.current?.getBoundingClientRect();
    const shown = box.current;
    if (!around || !shown) return;
    const width = Math.min(380, innerWidth - 24);
    shown.style.left = `${Math.max(12, Math.min(around.left - 20, innerWidth - width - 12))}px`;
    const below = around.bottom + 8;
    const fits = below + shown.offsetHeight < innerHeight - 8;
    shown.style.top = `${fits ? below : Math.max(8, around.top - shown.offsetHeight - 8)}px`;
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class="explain"
        popovertarget={id}
        aria-expanded={open}
        aria-label={`What ${found.title} means`}
        onClick={(event) => event.stopPropagation()}
      >
        ?
      </button>
      <div
        ref={box}
        id={id}
        popover="auto"
        class="popover"
        onToggle={(event) => {
          const shown = event.newState === 'open';
          setOpen(shown);
          if (shown) place();
        }}
      >
        {open && (
          <>
            <h3>{found.title}</h3>
            {found.text.map((paragraph) => (
              <p key={paragraph}>{paragraph}</p>
            ))}
          </>
        )}
      </div>
    </>
  );
}
