/**
 * Gives the charts of a row equal margins, so that their plots have the same size and position when a page scales them
 * to its columns. Margins differ by axis labels, titles and legends; the widest are used.
 */
interface Frame {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const opening = /^(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"/;
const origin = /<g fill="none"[^>]* transform="translate\(([-\d.]+),([-\d.]+)\)"/;

/**
 * Where the plot's upper left corner lies within the picture, and how much there is on the other side of that corner.
 */
function frameOf(svg: string): Frame {
  const [, , width, height] = opening.exec(svg) ?? [];
  const [, x, y] = origin.exec(svg) ?? [];
  const [left, top] = [Number(x ?? 0), Number(y ?? 0)];
  return { left, top, right: Number(width ?? 0) - left, bottom: Number(height ?? 0) - top };
}

/** The same pictures with equal margins around their plots, which must have been drawn in one size. */
export function withEqualMargins(svgs: readonly string[]): string[] {
  const frames = svgs.map(frameOf);
  const widest = (side: keyof Frame) => Math.max(...frames.map((frame) => frame[side]));
  const [left, top] = [widest('left'), widest('top')];
  const [width, height] = [left + widest('right'), top + widest('bottom')];
  return svgs.map((svg, i) => {
    const own = frames[i] as Frame;
    const box = `viewBox="${own.left - left} ${own.top - top} ${width} ${height}"`;
    return svg.replace(opening, `$1 width="${width}" height="${height}" ${box}`);
  });
}
