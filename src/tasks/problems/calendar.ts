/** Time: time_arithmetic, weekday_arithmetic and date_arithmetic. */
import { readLine, squeeze } from '../parts/answer.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';
import { compute } from './arithmetic.ts';

interface Move {
  hours: number;
  minutes: number;
  back: boolean;
}

export const timeArithmetic = defineTask<{ hour: number; minute: number; moves: Move[] }>({
  name: 'time_arithmetic',
  summary: 'add time to a clock',
  pose(random, difficulty) {
    const minuteSteps = level(difficulty, [60, 15, 5, 1, 1]);
    const move = (): Move => ({
      hours: difficulty === 2 ? 0 : random.int(1, level(difficulty, [9, 0, 9, 12, 23])),
      minutes: minuteSteps === 60 ? 0 : minuteSteps * random.int(1, Math.floor(59 / minuteSteps)),
      back: difficulty > 2 && random.chance(0.5),
    });
    const meta = {
      hour: random.int(0, 23),
      minute: minuteSteps === 60 ? 0 : minuteSteps * random.int(0, Math.floor(59 / minuteSteps)),
      moves: Array.from({ length: level(difficulty, [1, 1, 1, 2, 3]) }, move),
    };
    const parts = meta.moves.map((each) => `${each.back ? 'minus' : 'plus'} ${span(each)}`);
    return { prompt: `What time is ${clock(meta.hour, meta.minute)} ${parts.join(' ')}? Answer as HH:MM.`, meta };
  },
  work({ hour, minute, moves }, pen) {
    let [h, m] = [hour, minute];
    for (const move of moves) {
      const op = move.back ? '-' : '+';
      let carry = 0;
      if (move.minutes > 0) {
        m = compute(pen, op, m, move.minutes);
        if (m > 59 || m < 0) {
          carry = m < 0 ? -1 : 1;
          m = compute(pen, m < 0 ? '+' : '-', m, 60);
        }
      }
      if (carry !== 0) h = compute(pen, carry > 0 ? '+' : '-', h, 1);
      if (move.hours > 0) h = compute(pen, op, h, move.hours);
      if (h > 23 || h < 0) h = compute(pen, h < 0 ? '+' : '-', h, 24);
    }
    const answer = clock(h, m);
    pen.say(answer);
    return answer;
  },
  check: (response, answer) =>
    /(?<![\d:.-])(\d{1,2}:\d{2})$/.exec(readLine(response) ?? '')?.[1]?.padStart(5, '0') === answer ? 1 : 0,
});

function clock(hour: number, minute: number): string {
  return `${String(hour).padStart(2, '0')}:${String(minute).padStart(2, '0')}`;
}

function span({ hours, minutes }: Move): string {
  const parts = [];
  if (hours > 0) parts.push(counted(hours, 'hour'));
  if (minutes > 0) parts.push(counted(minutes, 'minute'));
  return parts.join(' ');
}

function counted(count: number, unit: string): string {
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

/** Three letters each: answers of one length. */
const weekdays = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];
const fullName = /^(mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)?$/;

export const weekdayArithmetic = defineTask<{ start: number; moves: number[] }>({
  name: 'weekday_arithmetic',
  summary: 'find the weekday some days from a given one',
  pose(random, difficulty) {
    const [fewest, most] = level(difficulty, [
      [1, 9],
      [10, 60],
      [100, 999],
      [100, 999],
      [1000, 9999],
    ] as const);
    const move = () => random.int(fewest, most) * (random.chance(0.5) ? 1 : -1);
    const meta = { start: random.int(0, 6), moves: Array.from({ length: level(difficulty, [1, 1, 1, 2, 3]) }, move) };
    const parts = meta.moves.map((days) => `${counted(Math.abs(days), 'day')} ${days > 0 ? 'after' : 'before'}`);
    return {
      prompt: `Which weekday is ${parts.toReversed().join(' the day ')} ${weekdays[meta.start]}? Answer with three letters.`,
      meta,
    };
  },
  work({ start, moves }, pen) {
    let day = start;
    for (const move of moves) {
      const days = Math.abs(move);
      let rest = days;
      if (days > 6) {
        rest = pen.value(days % 7, (random) => random.int(0, 6));
        pen.say(`${days} mod 7 = ${rest}`);
      }
      const from = day;
      day = pen.choice((from + Math.sign(move) * rest + 7) % 7, [0, 1, 2, 3, 4, 5, 6]);
      pen.say(`${weekdays[from]}${move > 0 ? '+' : '-'}${rest} is ${weekdays[day]}`);
    }
    return weekdays[day] ?? '';
  },
  check: (response, answer) => (fullName.exec(squeeze(readLine(response) ?? ''))?.[1] === answer.toLowerCase() ? 1 : 0),
});

interface CalendarDate {
  year: number;
  month: number;
  day: number;
}

export const dateArithmetic = defineTask<{ date: CalendarDate; days: number }>({
  name: 'date_arithmetic',
  summary: 'find the date some days from a given one',
  pose(random, difficulty) {
    const [fewest, most] = level(difficulty, [
      [1, 9],
      [15, 30],
      [40, 80],
      [100, 200],
      [250, 450],
    ] as const);
    const days = random.int(fewest, most) * (random.chance(0.5) ? 1 : -1);
    const year = random.int(1950, 2049);
    const month = random.int(1, 12);
    // The first level stays inside a month, so that it is a sum and no more.
    const day = difficulty === 1 ? random.int(10, 19) : random.int(1, daysIn(year, month));
    const date = { year, month, day };
    const way = days > 0 ? 'after' : 'before';
    return {
      prompt: `Which date is ${counted(Math.abs(days), 'day')} ${way} ${iso(date)}? Answer as YYYY-MM-DD.`,
      meta: { date, days },
    };
  },
  work({ date, days }, pen) {
    let { year, month } = date;
    let day = compute(pen, days > 0 ? '+' : '-', date.day, Math.abs(days));
    while (day > daysIn(year, month)) {
      day = turnMonth(pen, '-', year, month, day);
      [year, month] = month === 12 ? [year + 1, 1] : [year, month + 1];
    }
    while (day < 1) {
      [year, month] = month === 1 ? [year - 1, 12] : [year, month - 1];
      day = turnMonth(pen, '+', year, month, day);
    }
    const answer = iso({ year, month, day });
    pen.say(answer);
    return answer;
  },
  check(response, answer) {
    const match = /(?<![\d.-])(\d{4})-(\d{1,2})-(\d{1,2})$/.exec(readLine(response) ?? '');
    if (match === null) return 0;
    return iso({ year: Number(match[1]), month: Number(match[2]), day: Number(match[3]) }) === answer ? 1 : 0;
  },
});

/** Takes a month's days off, or puts them on: "2024-05 has 31: 35-31=4". */
function turnMonth(pen: Pen, op: '+' | '-', year: number, month: number, day: number): number {
  const length = daysIn(year, month);
  // A wrong result still moves the same way, so the working ends.
  const right = op === '+' ? day + length : day - length;
  const result = pen.number(right);
  pen.say(`${iso({ year, month, day: 1 }).slice(0, 7)} has ${length}: ${day}${op}${length}=${result}`);
  return result;
}

function daysIn(year: number, month: number): number {
  if (month === 2) return (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0 ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

function iso({ year, month, day }: CalendarDate): string {
  return `${year}-${String(month).padStart(2, '0')}-${String(day).padStart(2, '0')}`;
}
