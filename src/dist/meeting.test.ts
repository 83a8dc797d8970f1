import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { addressesOf, checkIsHere, checkPort, freePort, givenPorts, listeningPorts } from './meeting.ts';
import { type Place, readPlace } from './place.ts';
import { SharedStore } from './store.ts';

const unknown = () => Promise.reject(Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' }));

it('refuses a name that nobody knows, at once, and says what to do', async () => {
  const refused = addressesOf('nowhere', { resolve: unknown });
  await expect(refused).rejects.toThrow(UserError);
  await expect(refused).rejects.toThrow(
    /meet at "nowhere" \(--master-addr, MASTER_ADDR\), and this machine knows no such name \(ENOTFOUND\)\. Give the address of machine 0/,
  );
  expect(await addressesOf('127.0.0.1')).toEqual(['127.0.0.1']);
});

it('waits for a name that comes later, where pods find each other', async () => {
  let asked = 0;
  const resolve = () => (++asked < 3 ? unknown() : Promise.resolve(['10.0.0.7']));
  expect(await addressesOf('worker-0', { resolve, patienceMs: 60_000, pauseMs: 0 })).toEqual(['10.0.0.7']);
  expect(asked).toBe(3);
});

it('refuses the address of another machine where all ranks are on this one', () => {
  expect(() => checkIsHere('box', ['10.0.0.1'], ['127.0.0.1', '10.0.0.1'])).not.toThrow();
  expect(() => checkIsHere('localhost', ['::1'], [])).not.toThrow();
  expect(() => checkIsHere('other', ['10.0.0.2'], ['10.0.0.1'])).toThrow(
    '--master-addr other is another machine (10.0.0.2), but --nnodes 1',
  );
});

it('knows the ports that programs listen on, not those that they are connected to', () => {
  const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7461 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:7462 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 2 1
  12: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000`;
  expect(listeningPorts(table)).toEqual([0x7461, 22]);
});

it('refuses a port in use before rank 0 opens its store', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  expect(() => checkPort(port)).toThrow(`Port ${port} of this machine is in use by another program`);
  const env = { RANK: '0', WORLD_SIZE: '2', LOCAL_RANK: '0', MASTER_ADDR: '127.0.0.1', MASTER_PORT: `${port}` };
  const opened = SharedStore.tcp(readPlace(env) as Place, 1000);
  await expect(opened).rejects.toThrow(UserError);
  await expect(opened).rejects.toThrow(`Port ${port} of this machine is in use`);
  await new Promise((resolve) => server.close(resolve));
  expect(() => checkPort(port)).not.toThrow();
});

it('finds ports that no connection is given by chance', async () => {
  const [first, last] = givenPorts();
  // A system that hands out all ports as ephemeral ones leaves no others.
  if (first <= 10_000 && last >= 65_535) return;
  expect(first).toBeLessThan(last);
  const ports = await Promise.all(Array.from({ length: 20 }, freePort));
  for (const port of ports) {
    expect(port < first || port > last, `${port}`).toBe(true);
    expect(port).toBeGreaterThan(1023);
    expect(port).toBeLessThan(65_536);
  }
  expect(new Set(ports).size).toBeGreaterThan(15);
});
