/** One rank of a test's world: runs the jobs of a file one after another; rank 0 writes what they came to beside it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { joinWorld } from '../../src/dist/world.ts';
import { type Job, runJobs } from './trainings.ts';

const path = process.argv[2] as string;
const world = await joinWorld();
const outcomes = await runJobs(JSON.parse(readFileSync(path, 'utf8')) as Job[]);
if (world.isFirst) writeFileSync(`${path}.done`, JSON.stringify(outcomes));
await world.meet('the end');
