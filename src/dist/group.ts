/**
 * A process group: collectives that every rank must call in the same order. They run on a thread of the group, one
 * after another; a promise is kept when this rank's part is done.
 *
 *     await group.allReduce(flat);                     // sums `flat` over all ranks, in place
 *     const turns = parts.map(() => group.turn());     // places in the queue, taken in the program's order …
 *     await Promise.all(parts.map(async (part, i) => turns[i]?.allReduce(await slow(part))));   // … and filled in any
 */
import { native } from '../tensor/engine/native.ts';
import type { Tensor } from '../tensor/index.ts';
import { WorldError } from './failure.ts';
import { traceGroup } from './trace.ts';

/** The collectives of a group, or of one place in its queue. */
export interface Collectives {
  /** The sum (or maximum) over all ranks, in place. */
  allReduce(tensor: Tensor, operation?: 'sum' | 'max'): Promise<void>;
  /** The root's values, on every rank. */
  broadcast(tensor: Tensor, root?: number): Promise<void>;
  /** Every rank's input, one after another. */
  allGather(output: Tensor, input: Tensor): Promise<void>;
  /** This rank's part of the sum of all inputs. */
  reduceScatter(output: Tensor, input: Tensor): Promise<void>;
  /** Part j of the input goes to rank j; part i of the output comes from rank i. */
  allToAll(output: Tensor, input: Tensor): Promise<void>;
  barrier(): Promise<void>;
}

/** Collectives that can be started without a promise. */
export type Startable = 'all_reduce' | 'all_gather_into_tensor' | 'reduce_scatter_tensor' | 'all_to_all';

type Begin = () => void;

export class Group implements Collectives {
  readonly #id: number;
  readonly #explain: (error: Error) => Promise<Error>;
  /** Places that were taken but have not begun yet; null until their collective is known. */
  readonly #queue: { begin: Begin | null }[] = [];

  private constructor(id: number, explain: (error: Error) => Promise<Error>) {
    this.#id = id;
    this.#explain = explain;
  }

  static async make(options: {
    store: number;
    backend: 'gloo' | 'nccl';
    name: string;
    rank: number;
    size: number;
    timeoutMs: number;
    /** This machine's address, if all ranks are on it. */
    host?: string;
    /** Whether all ranks are on this machine: large sums are then made in shared memory. */
    oneMachine?: boolean;
    /** Rewords an error with what the whole world knows. */
    explain?: (error: Error) => Promise<Error>;
  }): Promise<Group> {
    const { store, backend, name, rank, size, timeoutMs, host = '', oneMachine = false, explain } = options;
    const id = await native.groupMake(store, backend, name, rank, size, timeoutMs, host, oneMachine);
    traceGroup(id, rank);
    return new Group(id, explain ?? (async ({ message }) => new WorldError(message)));
  }

  allReduce = (tensor: Tensor, operation?: 'sum' | 'max') => this.turn().allReduce(tensor, operation);
  broadcast = (tensor: Tensor, root?: number) => this.turn().broadcast(tensor, root);
  allGather = (output: Tensor, input: Tensor) => this.turn().allGather(output, input);
  reduceScatter = (output: Tensor, input: Tensor) => this.turn().reduceScatter(output, input);
  allToAll = (output: Tensor, input: Tensor) => this.turn().allToAll(output, input);
  barrier = () => this.turn().barrier();

  /**
   * A place in the queue. A collective begun later, in whatever order promises settle, keeps the order in which the
   * places were taken: the program's order, which all ranks share.
   */
  turn(): Collectives {
    const place = { begin: null as Begin | null };
    this.#queue.push(place);
    const run = (operation: string, tensors: readonly Tensor[], root = 0): Promise<void> =>
      new Promise((resolve, reject) => {
        place.begin = () => {
          const handles = tensors.map((tensor) => tensor.live(operation));
          native.groupRun(this.#id, operation, handles, root).then(resolve, (error: Error) => {
            this.#explain(error).then(reject, reject);
          });
        };
        this.#advance();
      });
    return {
      allReduce: (tensor, operation = 'sum') => run(operation === 'sum' ? 'all_reduce' : 'all_reduce_max', [tensor]),
      broadcast: (tensor, root = 0) => run('broadcast', [tensor], root),
      allGather: (output, input) => run('all_gather_into_tensor', [output, input]),
      reduceScatter: (output, input) => run('reduce_scatter_tensor', [output, input]),
      allToAll: (output, input) => run('all_to_all', [output, input]),
      barrier: () => run('barrier', []),
    };
  }

  #advance(): void {
    while (this.#queue[0]?.begin) (this.#queue.shift() as { begin: Begin }).begin();
  }

  /** Starts a collective that `join` waits for by blocking: for a forward pass, which cannot await. */
  start(operation: Startable, ...tensors: readonly Tensor[]): number {
    if (this.#queue.length > 0)
      throw new WorldError('A collective that waits by blocking cannot stand behind one that is not begun.');
    const handles = tensors.map((tensor) => tensor.live(operation));
    return native.groupStart(this.#id, operation, handles, 0);
  }
  /** Waits without blocking for everything begun so far: `join` then returns at once. */
  flush(): Promise<void> {
    return native.groupFlush(this.#id);
  }
  join(ticket: number): void {
    try {
      native.groupJoin(ticket);
    } catch (error) {
      throw new WorldError((error as Error).message);
    }
  }

  /** Whether large sums are made in memory that all ranks share. */
  get sharesMemory(): boolean {
    return native.groupMemory(this.#id);
  }

  /** Seconds that collectives ran on the group's thread. */
  get busySeconds(): number {
    return native.groupSeconds(this.#id);
  }
}
