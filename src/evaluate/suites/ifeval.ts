/** IFEval's format (Zhou et al. 2023): prompts with instructions that code can check (src/evaluate/instructions). */
import { RowProblem } from '../../data/shapes/messages.ts';
import { isRow, type Row } from '../../data/sources/row.ts';
import { parsed, textCell, textsCell } from './cells.ts';
import type { Format, InstructionQuestion } from './question.ts';

export const ifeval: Format<InstructionQuestion> = {
  name: 'ifeval',
  kind: 'instructions',
  columns: 'prompt, instruction_id_list, kwargs',
  matches: (row) => typeof row.prompt === 'string' && 'instruction_id_list' in row,
  read(row) {
    const ids = textsCell(row, 'instruction_id_list');
    const settings = parsed(row.kwargs) ?? [];
    if (!Array.isArray(settings) || settings.length !== ids.length)
      throw new RowProblem(`"kwargs" must be a list with one entry for each of the ${ids.length} instructions`);
    return {
      kind: 'instructions',
      text: textCell(row, 'prompt'),
      instructions: ids.map((id, i) => ({ id, settings: given(settings[i]) })),
    };
  },
  prompt: ({ text }) => `${text}\n\n`,
  target: () => '',
  stop: [],
};

/** The hub's files list every setting of every instruction, null if unused. */
const given = (settings: unknown): Row =>
  isRow(settings)
    ? Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null && value !== undefined))
    : {};
