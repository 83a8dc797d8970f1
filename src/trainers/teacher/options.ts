/** The options of a teacher, shared by the trainers that distil. */
import { z } from 'zod';
import type { QuantType } from '../../models/index.ts';
import { field } from '../../runs/index.ts';
import { quantTypeField } from '../fields.ts';

export interface TeacherConfig {
  /** The trained model. */
  model: string;
  /** Random weights of this config.json's shape instead of `model`. */
  fromConfig?: string;
  /** QLoRA: the quantisation of the student's own base. */
  quantType?: QuantType;
  teacher?: string;
  teacherQuantType?: QuantType;
}

export function teacherFields(group: string) {
  return {
    teacher: field(z.string().optional(), {
      description:
        'model to learn from, with the same tokenizer; a folder, an adapter, a run or a hub name (org/name[@revision])',
      group,
      examples: ['Qwen/Qwen3-4B'],
      aliases: ['teacherModel', 'teacherModelNameOrPath'],
      fixed: 'model',
    }),
    teacherQuantType: quantTypeField('hold the blocks of the teacher in 8 or 4 bits', group),
  };
}
