/** Instructions about the form of a response: paragraphs, bullets, sections, highlights, titles, JSON. */
import type { Check } from './content.ts';
import { count, text } from './settings.ts';
import { literal } from './text-units.ts';

const matches = (response: string, pattern: RegExp) => response.match(pattern) ?? [];
const options = ['My answer is yes.', 'My answer is no.', 'My answer is maybe.'];

/** The parts that are not blank; undefined if a part between two others is blank. */
function filledParts(parts: readonly string[]): string[] | undefined {
  const inner = parts.slice(1, -1);
  return inner.some((part) => part.trim() === '') ? undefined : parts.filter((part) => part.trim() !== '');
}

export const layoutChecks: Readonly<Record<string, Check>> = {
  // Paragraphs are separated by ***, as the instruction says.
  'length_constraints:number_paragraphs': (response, settings) =>
    filledParts(response.split(/\s?\*\*\*\s?/))?.length === count(settings, 'num_paragraphs'),
  'length_constraints:nth_paragraph_first_word': (response, settings) => {
    const paragraphs = response.split('\n\n');
    const filled = paragraphs.filter((paragraph) => paragraph.trim() !== '').length;
    const nth = count(settings, 'nth_paragraph');
    const [first = ''] = (nth <= filled ? (paragraphs[nth - 1] ?? '') : '').trim().split(/\s+/);
    const word = /^[^.,?!'"]*/.exec(first.replace(/^'+/, '').replace(/^"+/, ''))?.[0].toLowerCase() ?? '';
    return (
      word !== '' && filled === count(settings, 'num_paragraphs') && word === text(settings, 'first_word').toLowerCase()
    );
  },
  'detectable_format:number_bullet_lists': (response, settings) =>
    matches(response, /^\s*\*[^*].*$/gm).length + matches(response, /^\s*-.*$/gm).length ===
    count(settings, 'num_bullets'),
  'detectable_format:constrained_response': (response) => options.some((option) => response.includes(option)),
  'detectable_format:number_highlighted_sections': (response, settings) => {
    const filled = [/\*[^\n*]*\*/g, /\*\*[^\n*]*\*\*/g].flatMap((pattern) =>
      matches(response, pattern).filter((found) => found.replaceAll('*', '').trim() !== ''),
    );
    return filled.length >= count(settings, 'num_highlights');
  },
  'detectable_format:multiple_sections': (response, settings) => {
    const divider = new RegExp(`\\s?${literal(text(settings, 'section_spliter').trim())}\\s?\\d+\\s?`);
    return response.split(divider).length - 1 >= count(settings, 'num_sections');
  },
  'detectable_format:json_format': (response) => {
    try {
      JSON.parse(
        response
          .trim()
          .replace(/^```(?:json)?/i, '')
          .replace(/```$/, '')
          .trim(),
      );
      return true;
    } catch {
      return false;
    }
  },
  'detectable_format:title': (response) =>
    matches(response, /<<[^\n]+>>/g).some((title) => title.replace(/^<+/, '').replace(/>+$/, '').trim() !== ''),
  'combination:two_responses': (response) => {
    const parts = filledParts(response.split('******'));
    return parts?.length === 2 && parts[0]?.trim() !== parts[1]?.trim();
  },
};
