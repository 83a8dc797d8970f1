/** Tests read messages as they stand in the sources, in the names of the command line; those of programs say so themselves. */
import { speakTo } from '../../src/spelling.ts';

speakTo('command line');
