/** Time limits that a busy machine does not break: by the processor time of a process, and by any time for one that sleeps. */
import { readFileSync } from 'node:fs';

export interface Moment {
  processor: number;
  wall: number;
}

/** Seconds of processor time that a process has had, in its own code and in the kernel's (0 once it has ended), and of any time. */
export function now(pid: number): Moment {
  const wall = performance.now() / 1000;
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return { processor: (Number(fields[11]) + Number(fields[12])) / 100, wall }; // utime and stime, in hundredths
  } catch {
    return { processor: 0, wall };
  }
}

/** Whether a process has had `seconds` of processor time since then, or slept for half an hour. */
export function isLate(pid: number, since: Moment, seconds: number): boolean {
  const { processor, wall } = now(pid);
  return processor - since.processor >= seconds || wall - since.wall >= 1800;
}
