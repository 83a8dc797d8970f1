/** Whether an element has come into view, or nearly: what lies far below is drawn when one gets there. */
import type { RefObject } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';

const margin = 300;

export function useSeen(element: RefObject<Element | null>): boolean {
  const [seen, setSeen] = useState(false);
  useLayoutEffect(() => {
    if (seen || !element.current) return;
    const { top, bottom } = element.current.getBoundingClientRect();
    // What is in view at once is drawn at once: an observer would tell a frame later.
    if (top < innerHeight + margin && bottom > -margin) return setSeen(true);
    const observer = new IntersectionObserver(
      (entries) => entries.some(({ isIntersecting }) => isIntersecting) && setSeen(true),
      { rootMargin: `${margin}px` },
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [seen]);
  return seen;
}
