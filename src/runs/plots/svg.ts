/** The SVG elements of charts. */
import { colors } from './tokens.ts';

export const labelSize = 11;

export const round = (value: number) => Math.round(value * 100) / 100 + 0;
/** XML forbids control characters, which names may contain. */
const escaped = (text: string) =>
  text
    .replace(/(?![\t\n\r])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd')
    .replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

interface Style {
  size?: number;
  color?: string;
  anchor?: 'start' | 'middle' | 'end';
  turned?: number;
}

export function write(text: string, x: number, y: number, style: Style = {}): string {
  const { size = labelSize, color = colors.label, anchor = 'start', turned } = style;
  const place = turned === undefined ? '' : ` transform="rotate(${turned} ${round(x)} ${round(y)})"`;
  return `<text x="${round(x)}" y="${round(y)}" font-size="${size}" fill="${color}" text-anchor="${anchor}"${place}>${escaped(text)}</text>`;
}

export const stroke = (path: string, color: string, more = '') =>
  `<path d="${path}" fill="none" stroke="${color}"${more}></path>`;
