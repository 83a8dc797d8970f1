/** Which run's rollouts are shown, and what to type where there are none. */
import type { RunRow } from '../../../src/studio/api.ts';
import { go } from '../../app/router.ts';
import { Command, Empty } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';

export function RunChoice({ run, runs }: { run: RunRow; runs: readonly RunRow[] }) {
  return (
    <select
      class="run-choice"
      aria-label="Run"
      value={run.id}
      onChange={(event) => go(['rollouts', event.currentTarget.value])}
    >
      {runs
        .filter((each) => each.hasRollouts)
        .map((each) => (
          <option key={each.id} value={each.id}>
            {each.path}
          </option>
        ))}
    </select>
  );
}

export function NoRollouts() {
  const attune = session.value?.attune ?? 'attune';
  return (
    <div class="page">
      <h1>Rollouts</h1>
      <div class="card">
        <Empty icon="rollouts" title="No run has stored rollouts">
          <p>
            Every policy run keeps what it wrote, with rewards and advantages. With{' '}
            <code class="whole">--save-tokens</code> each response can also be looked at token by token, and its step
            recomputed under another algorithm:
          </p>
          <Command text={`${attune} train policy --task chain_sum --save-tokens`} />
        </Empty>
      </div>
    </div>
  );
}
