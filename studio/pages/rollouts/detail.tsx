/** One response: its text, its tokens, the same prompt over time, its step under another algorithm. */
import type { RolloutDetail, RolloutTurn, RunRow } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { route, setQuery } from '../../app/router.ts';
import { short } from '../../format/numbers.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { Icon } from '../../parts/icons.tsx';
import { CopyButton, Waiting } from '../../parts/page-parts.tsx';
import { useResource } from '../../wire/resource.ts';
import { OverTime } from './over-time.tsx';
import { TokenView } from './token-view.tsx';
import { WhatIf } from './what-if.tsx';

type View = 'text' | 'tokens' | 'time' | 'what-if';
const viewKeys: Record<View, string> = { text: 't', tokens: 'k', time: 'o', 'what-if': 'w' };

interface DetailProps {
  run: RunRow;
  id: number;
  isEval: boolean;
  onClose: () => void;
}

export function Detail({ run, id, isEval, onClose }: DetailProps) {
  const { query } = route.value;
  const rollout = useResource<RolloutDetail>(`runs/${run.id}/rollouts/${id}`, {
    eval: isEval,
    checkpoint: query.checkpoint,
  });
  const found = rollout.data;
  const views: [View, string][] = [
    ['text', 'Text'],
    ...(found?.tokens ? ([['tokens', 'Tokens']] as [View, string][]) : []),
    ['time', 'Over time'],
    ...(run.hasTokens && !isEval ? ([['what-if', 'What if']] as [View, string][]) : []),
  ];
  const view = views.find(([name]) => name === query.view)?.[0] ?? 'text';
  const show = (next: number | undefined) => next !== undefined && setQuery({ open: next });
  useKeys('Response', [
    { keys: 'n', what: 'next response', run: () => show(found?.next) },
    { keys: 'p', what: 'previous response', run: () => show(found?.previous) },
    ...views.map(([name, title]) => ({
      keys: `v ${viewKeys[name]}`,
      what: title,
      run: () => setQuery({ view: name }),
    })),
  ]);
  return (
    <article class="detail card" aria-label="Response">
      <div class="spread">
        <div class="row tight">
          <button
            type="button"
            class="button slim"
            aria-label="Previous response"
            disabled={found?.previous === undefined}
            onClick={() => show(found?.previous)}
          >
            <Icon name="left" />
          </button>
          <button
            type="button"
            class="button slim"
            aria-label="Next response"
            disabled={found?.next === undefined}
            onClick={() => show(found?.next)}
          >
            <Icon name="right" />
          </button>
          <h2 class="number">{found ? `Step ${found.step}, prompt ${found.promptIndex}` : 'Response'}</h2>
        </div>
        <button type="button" class="button quiet slim" aria-label="Close the response" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {!found ? (
        <Waiting error={rollout.error} />
      ) : (
        <>
          <Figures rollout={found} />
          <Group rollout={found} onShow={show} />
          {hasEqualGroup(found) && (
            <p class="small muted">
              advantage 0: all responses of its group had equal rewards, so it gave no policy gradient
            </p>
          )}
          <nav class="tabs" aria-label="Views of the response">
            {views.map(([name, title]) => (
              <a
                key={name}
                href={location.hash}
                aria-current={view === name ? 'true' : undefined}
                onClick={(event) => {
                  event.preventDefault();
                  setQuery({ view: name });
                }}
              >
                {title}
              </a>
            ))}
          </nav>
          {view === 'text' && <Texts rollout={found} />}
          {view === 'tokens' && <TokenView rollout={found} />}
          {view === 'time' && <OverTime run={run} prompt={found.promptIndex} isEval={isEval} open={found.id} />}
          {view === 'what-if' && <WhatIf run={run} step={found.step} rollout={found} />}
        </>
      )}
    </article>
  );
}

function Figures({ rollout }: { rollout: RolloutDetail }) {
  const parts = Object.entries(rollout.parts);
  return (
    <dl class="facts">
      <div>
        <dt>
          Reward
          <Explain term="reward" />
        </dt>
        <dd>
          <b>
            <Num value={rollout.reward} />
          </b>
        </dd>
      </div>
      {parts.map(([name, value]) => (
        <div key={name}>
          <dt>{name.replaceAll('_', ' ')}</dt>
          <dd>
            <Num value={value} />
          </dd>
        </div>
      ))}
      {rollout.advantage !== undefined && (
        <div>
          <dt>
            Advantage
            <Explain term="advantage" />
          </dt>
          <dd>
            <Num value={rollout.advantage} />
          </dd>
        </div>
      )}
      <div>
        <dt>Length</dt>
        <dd>
          <Num value={rollout.length} kind="count" />
        </dd>
      </div>
      <div>
        <dt>Verdict</dt>
        <dd class="row tight">
          {rollout.correct === undefined ? (
            <span class="muted">–</span>
          ) : (
            <span class={rollout.correct ? 'tag good' : 'tag bad'}>{rollout.correct ? 'right' : 'wrong'}</span>
          )}
          {rollout.ending === 'cut' && <span class="tag warning">cut off</span>}
          {rollout.ending === 'ended' && <span class="tag">ended</span>}
          {rollout.episodeEnd !== undefined && <span class="tag">{episodeEnds[rollout.episodeEnd]}</span>}
        </dd>
      </div>
    </dl>
  );
}

const episodeEnds: Record<string, string> = {
  done: 'ended by its environment',
  turns: 'all turns used up',
  length: 'no room left',
  error: 'its environment failed',
};

/** The other responses to the same prompt at the same step: the advantage compares with them. */
function Group({ rollout, onShow }: { rollout: RolloutDetail; onShow: (id: number) => void }) {
  if (rollout.peers.length < 2) return null;
  return (
    <fieldset class="bare row tight" aria-label="Responses of the same group">
      <span class="small muted">Group</span>
      {rollout.peers.map(({ id, reward, correct }, i) => (
        <button
          key={id}
          type="button"
          class={correct === undefined ? 'button slim' : correct ? 'button slim right' : 'button slim wrong'}
          title={`reward ${short(reward)}${correct === undefined ? '' : correct ? ', right' : ', wrong'}`}
          aria-current={id === rollout.id ? 'true' : undefined}
          onClick={() => onShow(id)}
        >
          {i + 1}
        </button>
      ))}
    </fieldset>
  );
}

/** A group without a spread in its rewards teaches nothing about its responses. */
const hasEqualGroup = ({ advantage, peers }: RolloutDetail) =>
  advantage === 0 && peers.length > 1 && peers.every(({ reward }) => reward === peers[0]?.reward);

function Texts({ rollout }: { rollout: RolloutDetail }) {
  return (
    <div class="stack tight">
      <div class="spread">
        <h3>Prompt</h3>
        <CopyButton text={rollout.promptText} label="prompt" />
      </div>
      <pre class="text-box muted">{rollout.promptText}</pre>
      <div class="spread">
        <h3>Response</h3>
        <CopyButton text={rollout.completionText} label="response" />
      </div>
      {rollout.turns === undefined || rollout.turns.length < 2 ? (
        <pre class="text-box">{rollout.completionText || '(empty)'}</pre>
      ) : (
        <Turns turns={rollout.turns} />
      )}
    </div>
  );
}

/** An episode: what the policy said, and what it was told. */
function Turns({ turns }: { turns: RolloutTurn[] }) {
  return (
    <ol class="turns">
      {turns.map(({ role, content, tokens, reward }, i) => (
        <li key={i}>
          <div class="spread small muted">
            <b>{role}</b>
            {tokens !== undefined && (
              <span class="number">
                {tokens === 1 ? '1 token' : `${tokens} tokens`}
                {reward === undefined || reward === 0 ? '' : `, reward ${short(reward)}`}
              </span>
            )}
          </div>
          <pre class={role === 'assistant' ? 'text-box' : 'text-box muted'}>{content || '(empty)'}</pre>
        </li>
      ))}
    </ol>
  );
}
