/** The train form against the commands themselves: its check, and a real training started, stopped and resumed from it. */
import { cpSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whatTrainingOffers } from '../../src/cli/studio.ts';
import type { Job, RunDetail, RunRow, StartAnswer, TrainCheck, TrainSchema } from '../../src/studio/api.ts';
import { argumentsOf } from '../../src/studio/commands/command-line.ts';
import { type Client, openStudio, removeFolder, temporaryFolder } from '../../src/studio/studio.test-support.ts';
import { policySchema } from '../../src/trainers/policy/config.ts';
import { trainPreference } from '../../src/trainers/preference/preference.ts';

const repository = join(import.meta.dirname, '../..');
const tiny = join(repository, 'models/tiny');
const root = temporaryFolder();
let client: Client;

beforeAll(async () => {
  const above = whatTrainingOffers();
  const launcher = { file: process.execPath, args: [join(repository, 'bin/attune.mjs')] };
  client = await openStudio({
    root,
    above: { ...above, launcher },
    attune: 'attune',
    modelFolders: [join(repository, 'models')],
  });
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});

const check = async (values: object, command = 'policy') =>
  (await client.post(`/api/train/${command}/check`, { values })).json as TrainCheck;
const small = {
  ...{
    model: tiny,
    task: 'spell_backward:1',
    batchSize: 1,
    gradAccum: 1,
    groupSize: 2,
    maxNewTokens: 16,
    evalNumPrompts: 2,
  },
  ...{ outputDir: join(root, 'grpo'), logDir: join(root, 'logs'), lr: '1e-5' },
};

describe('the form', () => {
  it('has every option of its command, grouped, with defaults', async () => {
    const commands = (await client.get('/api/train/commands')).json as { name: string }[];
    expect(commands.map(({ name }) => name)).toEqual(['sft', 'reward', 'preference', 'policy']);
    const schema = (await client.get('/api/train/policy/schema')).json as TrainSchema;
    const fields = schema.groups.flatMap((group) => group.fields);
    const field = (name: string) => fields.find((each) => each.name === name);
    expect(field('lr')).toMatchObject({ flag: '--lr', type: 'number', default: 1e-6 });
    expect(field('algorithm')).toMatchObject({ type: 'text', default: 'grpo' });
    expect(field('algorithm')?.names).toContain('drgrpo');
    expect(field('model')).toMatchObject({ picks: 'model', advanced: false });
    expect(field('dryRun')).toBeUndefined();
    // The default would lie outside of the studio's folder.
    expect(schema.values?.outputDir).toBe(join(root, 'policy'));
    expect((await client.get('/api/train/nothing/schema')).status).toBe(404);
  });

  it('names all faults at once, each at its field', async () => {
    const { faults, commandLine } = await check({
      ...small,
      lr: 'fast',
      groupSize: 0,
      algorithm: 'grpoo',
      lrSchedule: 'x',
    });
    expect(faults.map(({ field }) => field).toSorted()).toEqual(['algorithm', 'groupSize', 'lr', 'lrSchedule']);
    const kinds = await check({ ...small, lr: 'fast', groupSize: 1, algorithm: 'grpoo', task: 'spell_backwards' });
    expect(kinds.faults.map(({ field }) => field).toSorted()).toEqual(['algorithm', 'lr', 'task']);
    // What would be a fault only because another was left out is none: gamma belongs to the algorithm that is misspelt.
    const misspelt = await check({ ...small, algorithm: 'pppo', gamma: 0.9 });
    expect(misspelt.faults.map(({ field }) => field)).toEqual(['algorithm']);
    expect(commandLine).toContain('--lr fast');
    expect((await check({ ...small, algorithm: 'grpoo' })).faults[0]).toMatchObject({
      message: expect.stringContaining('grpo'),
    });
    // Not a field, though every object has something of that name.
    expect((await check({ ...small, constructor: 1 })).faults).toEqual([
      { field: '', message: 'is not a known field.' },
    ]);
    expect((await check({ ...small, model: join(root, 'nowhere') })).faults[0]?.message).toContain('nowhere');
  });

  it('shows the exact command and file with only what differs, and the plan', async () => {
    const answer = await check({ ...small, temperature: 1, saveTokens: true, runName: "it's mine" });
    expect(answer.faults).toEqual([]);
    expect(answer.commandLine).toMatch(/^attune train policy .*--lr 1e-5/);
    expect(answer.commandLine).toContain(`--run-name 'it'\\''s mine'`);
    expect(answer.commandLine).not.toContain('temperature');
    expect(answer.commandLine).toContain('--save-tokens');
    expect(answer.yaml).toContain('group_size: 2');
    expect(answer.plan).toContain('each step: 1 prompt × 2 responses');
    expect(answer.plan).toMatch(/memory: about \d+ MiB: weights 3 MiB, reference 3 MiB, .*, cache of the sampler \d/);
    const typed = argumentsOf(policySchema, { saveRollouts: false, lr: -1, task: '-x' });
    expect(typed.toSorted()).toEqual(['--lr', '--no-save-rollouts', '--task=-x', '-1'].toSorted());
  });

  it('takes code only from its folder, and writes runs only into it', async () => {
    const outside = temporaryFolder();
    writeFileSync(join(outside, 'evil.ts'), 'export default () => [];');
    const { faults } = await check({ ...small, rewardModule: join(outside, 'evil.ts'), outputDir: outside });
    expect(faults.map(({ field }) => field).toSorted()).toEqual(['outputDir', 'rewardModule']);
    // A difficulty or a second environment does not hide a file.
    for (const env of [`${join(outside, 'evil.ts')}:1`, `guess,${join(outside, 'evil.ts')}*2`]) {
      const played = await check({ ...small, task: undefined, env, outputDir: root });
      expect(played.faults.find(({ field }: { field: string }) => field === 'env')?.message).toMatch(/--env is code/);
    }
    writeFileSync(join(root, 'evil.yaml'), `reward_module: ${join(outside, 'evil.ts')}\n`);
    const byFile = await check({ ...small, config: join(root, 'evil.yaml') });
    expect(byFile.faults.map(({ field }) => field)).toContain('rewardModule');
    removeFolder(outside);
  });

  it('reads models and data only from its folders, with links followed', async () => {
    const outside = temporaryFolder();
    const secret = join(outside, 'secret.jsonl');
    writeFileSync(secret, `${JSON.stringify({ prompt: 'p', chosen: 'a', rejected: 'b' })}\n`);
    symlinkSync(secret, join(root, 'link.jsonl'));
    symlinkSync(tiny, join(outside, 'tiny'));
    writeFileSync(join(root, 'data.yaml'), `dataset: ${secret}\n`);
    const { task: _, groupSize: __, maxNewTokens: ___, evalNumPrompts: ____, ...pairs } = small;
    const faults = async (values: object) =>
      (await check({ ...pairs, ...values }, 'preference')).faults.map(({ field }) => field);
    expect(await faults({ dataset: secret })).toEqual(['dataset']);
    expect(await faults({ dataset: join(root, 'link.jsonl') })).toEqual(['dataset']);
    expect(await faults({ config: join(root, 'data.yaml') })).toContain('dataset');
    expect(
      await faults({ dataset: secret, model: outside, refModel: outside, config: secret, logDir: outside }),
    ).toEqual(expect.arrayContaining(['dataset', 'model', 'refModel', 'config', 'logDir']));
    const started = await client.post('/api/train/preference/start', { values: { ...pairs, dataset: secret } });
    expect(started.status).toBe(400);
    const quantise = (options: object) =>
      client.post('/api/models/quantise', { model: tiny, kind: 'policy', quantType: 'int8', options });
    for (const options of [{ model: outside }, { config: 'x.yaml' }, { checkpoint: outside }])
      expect((await quantise(options)).status).toBe(400);
    // Other names of the same options.
    for (const options of [
      { out: outside },
      { output: outside },
      { datasetName: secret },
      { rewardModelPath: outside },
    ])
      expect((await quantise(options)).status).toBe(400);
    expect(await faults({ dataset_name: secret })).toEqual(['dataset']);
    expect(await faults({ out: outside })).toEqual(['outputDir']);
    expect((await quantise({ dataset: secret })).status).toBe(404);
    removeFolder(outside);
  });

  it('resumes only runs of its folders, and reads for them only what lies there', async () => {
    const outside = temporaryFolder();
    const row = { prompt: 'p', chosen: 'a long answer', rejected: 'another answer' };
    writeFileSync(join(outside, 'pairs.jsonl'), `${JSON.stringify(row)}\n`.repeat(4));
    cpSync(join(outside, 'pairs.jsonl'), join(root, 'own.jsonl'));
    const { task: _, groupSize: __, maxNewTokens: ___, evalNumPrompts: ____, ...pairs } = small;
    const trained = { ...pairs, dataset: join(root, 'own.jsonl'), maxSteps: 1, validationSplit: 0, reportTo: [] };
    const [inside, elsewhere] = [join(root, 'dpo'), join(outside, 'dpo')];
    for (const outputDir of [inside, elsewhere])
      await trainPreference({ ...trained, lr: 1e-5, outputDir, runName: 'a', saveSteps: 1, epochs: 2 });
    const faults = async (values: object) =>
      (await check({ maxSteps: 2, ...values }, 'preference')).faults.map(({ field }) => field);
    expect(await faults({ resumeFrom: join(inside, 'a') })).toEqual([]);
    expect(await faults({ resumeFrom: join(elsewhere, 'a') })).toEqual(['resumeFrom']);
    expect(await faults({ resumeFromCheckpoint: join(elsewhere, 'a') })).toEqual(['resumeFrom']);
    writeFileSync(join(root, 'resume.yaml'), `resume_from: ${join(elsewhere, 'a')}\n`);
    expect(await faults({ config: join(root, 'resume.yaml') })).toContain('resumeFrom');
    writeFileSync(join(root, 'other.yaml'), `dataset: ${join(outside, 'pairs.jsonl')}\n`);
    const byFile = { resumeFrom: join(inside, 'a'), config: join(root, 'other.yaml') };
    expect(await faults(byFile)).toContain('dataset');
    expect(await faults({ resumeFrom: join(inside, 'a'), datasetName: join(outside, 'pairs.jsonl') })).toContain(
      'dataset',
    );
    removeFolder(outside);
  });

  it("refuses a run's name that commands could not be given", async () => {
    for (const runName of ['--evil', '-rf', 'a\nb'])
      expect((await check({ ...small, runName })).faults.map(({ field }) => field)).toEqual(['runName']);
  });
});

describe('a training', () => {
  const detail = async (id: string) => (await client.get(`/api/runs/${id}`)).json as RunDetail;
  async function until<T>(read: () => Promise<T>, test: (value: T) => boolean): Promise<T> {
    for (const end = Date.now() + 240_000; ; await sleep(300)) {
      const value = await read();
      if (test(value)) return value;
      if (Date.now() > end) throw new Error(`not in time: ${JSON.stringify(value).slice(0, 1500)}`);
    }
  }

  it('starts as its own process, is stopped as by Ctrl-C, outlives the studio, and is resumed', async () => {
    const values = { ...small, runName: 'a', maxSteps: 20_000, evalNumPrompts: 0, evalSteps: -1 };
    const { json } = await client.post('/api/train/policy/start', { values });
    const { jobId } = json as StartAnswer;
    const job = await until(
      async () => (await client.get(`/api/jobs/${jobId}`)).json as Job,
      ({ runId, state }) => runId !== undefined || state !== 'running',
    );
    expect(job.runId).toBeDefined();
    const id = job.runId as string;
    await until(
      () => detail(id),
      ({ step }) => step >= 2,
    );
    const running = await detail(id);
    expect(running).toMatchObject({
      state: 'running',
      canStop: true,
      totalSteps: 20_000,
      kind: 'policy',
      method: 'grpo',
    });
    expect(running.config.find(({ name }) => name === 'group_size')).toMatchObject({
      value: 2,
      changed: true,
      default: 8,
    });
    expect((await client.post(`/api/runs/${id}/resume`)).status).toBe(409);
    expect((await client.post(`/api/runs/${id}/stop`)).json).toEqual({ asked: true });
    expect((await client.post(`/api/runs/${id}/stop`)).json.asked ?? false).toBe(false);
    const stopped = await until(
      () => detail(id),
      ({ state }) => state !== 'running',
    );
    expect(stopped).toMatchObject({ state: 'interrupted', canResume: true });
    expect(stopped.snapshots.length).toBeGreaterThan(0);
    const { json: resumed } = await client.post(`/api/runs/${id}/resume`);
    expect(resumed.commandLine).toContain('--resume-from');
    // Another studio on the same folder knows it too: nothing is kept but in the run's folder.
    const other = await openStudio({ root, above: { ...whatTrainingOffers() } });
    const live = await until(
      async () => ((await other.get('/api/runs')).json as RunRow[]).find((run) => run.id === id),
      (run) => run?.state === 'running' && run.step > stopped.step,
    );
    expect(live?.step).toBeGreaterThan(stopped.step);
    await other.post(`/api/runs/${id}/stop`);
    await until(
      () => detail(id),
      ({ state }) => state === 'interrupted',
    );
    await other.studio.close();
  }, 900_000);

  it('is found even if it begins and ends between two readings of the list of runs', async () => {
    const info = `{ id: 'brief', name: 'brief', kind: 'policy', created: new Date().toISOString(), status: 'finished',
      process: { host: require('node:os').hostname(), pid: process.pid } }`;
    const script = join(root, 'brief.cjs');
    writeFileSync(
      script,
      `const fs = require('node:fs'); const folder = ${JSON.stringify(join(root, 'grpo', 'brief'))};
       fs.mkdirSync(folder, { recursive: true }); fs.writeFileSync(folder + '/run.json', JSON.stringify(${info}));`,
    );
    const above = { ...whatTrainingOffers(), launcher: { file: process.execPath, args: [script] } };
    const other = await openStudio({ root, above, modelFolders: [join(repository, 'models')] });
    await other.get('/api/runs');
    const { json } = await other.post('/api/train/policy/start', { values: { ...small, runName: 'brief' } });
    const { runId } = json as StartAnswer;
    expect((await other.get(`/api/runs/${runId}`)).json).toMatchObject({ name: 'brief', state: 'finished' });
    await other.studio.close();
  });

  it('is not started with faults, and says why a process failed', async () => {
    const { status, json } = await client.post('/api/train/policy/start', { values: { ...small, lr: -1 } });
    expect([status, json.error.faults[0].field]).toEqual([400, 'lr']);
  });
});

describe('models', () => {
  it('quantises a policy into the studio’s folder and nowhere else', async () => {
    const asked = { model: tiny, kind: 'policy', quantType: 'int8' };
    const outside = temporaryFolder();
    symlinkSync(outside, join(root, 'way-out'));
    symlinkSync(join(outside, 'not-yet'), join(root, 'dangling'));
    for (const outputDir of ['../x', '/tmp/x', '.', 'a\0b', 'way-out', 'way-out/x', 'dangling'])
      expect((await client.post('/api/models/quantise', { ...asked, options: { outputDir } })).status).toBe(400);
    expect((await client.post('/api/models/quantise', { ...asked, quantType: 'int2' })).status).toBe(400);
    expect((await client.post('/api/models/quantise', { ...asked, model: '/etc' })).status).toBe(404);
    const { json } = await client.post('/api/models/quantise', {
      ...asked,
      options: { outputDir: 'small', task: 'chain_sum:1', numPrompts: 2, maxNewTokens: 8 },
    });
    expect((json as Job).commandLine).toContain('quantize policy');
    const stream = await client.stream(`/api/jobs/${json.id}/events`);
    await stream.until((events) => events.length > 0 && events.at(-1)?.data.state !== 'running');
    expect([stream.events.at(-1)?.data.error, stream.events.at(-1)?.data.state]).toEqual([undefined, 'done']);
    const { models } = (await client.get('/api/models')).json;
    expect(models.map(({ kind }: { kind: string }) => kind)).toContain('quantised');
    removeFolder(outside);
  });

  it('serves a model to any client until it is stopped, and lists the server', async () => {
    expect((await client.post('/api/models/serve', { model: '/etc' })).status).toBe(404);
    expect((await client.post('/api/models/serve', { model: tiny, port: 70_000 })).status).toBe(400);
    const job = (await client.post('/api/models/serve', { model: tiny, port: 0 })).json as Job;
    expect(job.commandLine).toMatch(/^attune serve .*tiny --port 0$/);
    const stream = await client.stream(`/api/jobs/${job.id}/events`);
    await stream.until((events) => events.at(-1)?.data.result !== undefined);
    const [url] = stream.events.flatMap(({ data }) => data.result?.url ?? []) as [string];
    const asked = { messages: [{ role: 'user', content: 'What is 4 + 5?' }], max_tokens: 4 };
    const answer = await fetch(`${url}/chat/completions`, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked) },
    });
    expect([answer.status, await answer.json()]).toMatchObject([200, { usage: { completion_tokens: 4 } }]);
    const jobs = (await client.get('/api/jobs')).json as Job[];
    expect(jobs.find(({ id }) => id === job.id)).toMatchObject({ kind: 'serve', state: 'running', result: { url } });
    await client.post(`/api/jobs/${job.id}/cancel`);
    await stream.until((events) => events.at(-1)?.data.state !== 'running');
    await expect(fetch(`${url}/models`)).rejects.toThrow();
  });

  it('lists, inspects, exports and refuses other paths', async () => {
    const { models } = (await client.get('/api/models')).json;
    expect(models.map(({ kind }: { kind: string }) => kind)).toContain('base');
    const { json } = await client.get(`/api/models/inspect?model=${encodeURIComponent(tiny)}`);
    expect(json.text).toContain('parameters');
    expect((await client.get('/api/models/inspect?model=/etc')).status).toBe(404);
    const refused = { model: tiny, format: 'gguf', out: '../x.gguf' };
    expect((await client.post('/api/models/export', refused)).status).toBe(400);
    const job = (await client.post('/api/models/export', { ...refused, out: 'x.gguf', type: 'f16' })).json as Job;
    expect(job.commandLine).toContain('export gguf');
    const stream = await client.stream(`/api/jobs/${job.id}/events`);
    await stream.until((events) => events.length > 0 && events.at(-1)?.data.state !== 'running');
    expect(stream.events.at(-1)?.data).toMatchObject({ state: 'done', result: { path: join(root, 'x.gguf') } });
  });
});
