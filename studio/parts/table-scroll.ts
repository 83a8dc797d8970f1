/** Which rows of a long table are in view, and where they lie. */
export interface TableSize {
  total: number;
  rowHeight: number;
  /** Height of the visible part in pixels. */
  viewport: number;
}

/** Browsers draw elements of up to some 16 million pixels; beyond this the scroll bar is scaled. */
const tallest = 8_000_000;
/** Rows drawn above and below those in view. */
const spare = 6;

const wholeHeight = ({ total, rowHeight }: TableSize) => total * rowHeight;
const canvasOf = (size: TableSize) => Math.min(wholeHeight(size), tallest);

/** Pixels of the whole table per pixel of scrolling. */
function scaleOf(size: TableSize): number {
  const canvas = canvasOf(size);
  if (canvas === wholeHeight(size)) return 1;
  return (wholeHeight(size) - size.viewport) / (canvas - size.viewport);
}

/** Rows from `first` up to, not including, `last`; `canvas` is the height to scroll in. */
export function rowsInView(size: TableSize, scrollTop: number): { first: number; last: number; canvas: number } {
  const top = scrollTop * scaleOf(size);
  const first = Math.max(0, Math.floor(top / size.rowHeight) - spare);
  const last = Math.min(size.total, Math.ceil((top + size.viewport) / size.rowHeight) + spare);
  return { first: Math.min(first, last), last, canvas: canvasOf(size) };
}

/** Where a row lies on the canvas. */
export function offsetOf(size: TableSize, scrollTop: number, index: number): number {
  return index * size.rowHeight - scrollTop * (scaleOf(size) - 1);
}

/** The scroll position, changed as little as needed to have the row in view. */
export function scrollFor(size: TableSize, scrollTop: number, index: number): number {
  const scale = scaleOf(size);
  const top = scrollTop * scale;
  const [from, to] = [index * size.rowHeight, (index + 1) * size.rowHeight];
  if (from < top) return from / scale;
  if (to > top + size.viewport) return (to - size.viewport) / scale;
  return scrollTop;
}
