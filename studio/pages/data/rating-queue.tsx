/** A queue over the pairs of a dataset: which of two is better, by keyboard. What others think is told after the vote. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type {
  DataExample,
  ExamplesAnswer,
  ExportRatingsAnswer,
  RatingAnswer,
  RatingsAnswer,
  RatingTally,
  RatingVote,
  UndoAnswer,
} from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { href } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { toast, toastFailure } from '../../app/toasts.ts';
import { percent } from '../../format/numbers.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import { get, post, session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import { Prompt } from './examples.tsx';
import { firstShown, inOrder } from './order.ts';

export function RatingQueue({ dataset, split }: { dataset: string; split: string | undefined }) {
  const which = { dataset, ...(split ? { split } : {}) };
  const ratings = useResource<RatingsAnswer>('ratings', which);
  const pair = useSignal<DataExample | undefined>(undefined);
  const isOver = useSignal(false);
  const tally = useSignal<RatingTally | undefined>(undefined);
  const last = useSignal<RatingAnswer | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const busy = useSignal(false);
  const note = useSignal('');

  const next = async () => {
    try {
      const answer = await get<ExamplesAnswer>('data/examples', { ...which, filter: 'unrated', limit: 1 });
      pair.value = answer.rows[0];
      isOver.value = answer.rows.length === 0;
      error.value = undefined;
    } catch (failure) {
      error.value = failure as Error;
    }
  };
  useEffect(() => void next(), [dataset, split]);
  useEffect(() => {
    if (ratings.data) tally.value = ratings.data.tally;
  }, [ratings.data, tally]);

  const rate = async (vote: RatingVote) => {
    const shown = pair.value;
    if (!shown || busy.value) return;
    busy.value = true;
    try {
      const answer = await post<RatingAnswer>('ratings', {
        ...which,
        index: shown.index,
        ...(shown.pair === undefined ? {} : { pair: shown.pair }),
        vote,
        first: firstShown(dataset, shown.index),
        ...(note.value.trim() === '' ? {} : { note: note.value.trim() }),
      });
      last.value = answer;
      tally.value = answer.tally;
      note.value = '';
      await next();
    } catch (failure) {
      toastFailure(failure);
    }
    busy.value = false;
  };
  const undo = async () => {
    try {
      const answer = await post<UndoAnswer>('ratings/undo', which);
      tally.value = answer.tally;
      last.value = undefined;
      toast(answer.undone ? 'Taken back' : 'There is nothing to take back');
      await next();
    } catch (failure) {
      toastFailure(failure);
    }
  };
  useKeys('Rating', [
    { keys: '1', what: 'the first is better', run: () => void rate('1') },
    { keys: '2', what: 'the second is better', run: () => void rate('2') },
    { keys: '=', what: 'equally good', run: () => void rate('=') },
    { keys: 's', what: 'skip', run: () => void rate('skip') },
    { keys: 'z', what: 'take back', run: () => void undo() },
  ]);
  if (session.value?.readOnly) return <Empty title="This studio is read only: nothing can be rated" />;
  if (!ratings.data) return <Waiting error={ratings.error} />;
  return (
    <div class="stack">
      <Tally tally={tally.value ?? ratings.data.tally} which={which} onUndo={undo} />
      {ratings.data.guidelines && (
        <details class="card" open={!isSmall.value}>
          <summary>
            <h2>Guidelines</h2>
          </summary>
          <pre>{ratings.data.guidelines.replaceAll(/^#+ /gm, '')}</pre>
        </details>
      )}
      {error.value ? (
        <p class="fault" role="alert">
          {error.value.message}
        </p>
      ) : isOver.value ? (
        <Empty icon="data" title="Every pair is rated" />
      ) : pair.value ? (
        <Pair example={pair.value} dataset={dataset} note={note} onVote={(vote) => void rate(vote)} />
      ) : (
        <Waiting />
      )}
      <div class="last-rating small muted" role="status" aria-live="polite">
        {last.value && <Told answer={last.value} />}
      </div>
    </div>
  );
}

interface PairProps {
  example: DataExample;
  dataset: string;
  note: { value: string };
  onVote: (vote: RatingVote) => void;
}

function Pair({ example, dataset, note, onVote }: PairProps) {
  const shown = inOrder(example, firstShown(dataset, example.index));
  if (shown.length < 2)
    return (
      <Empty title="This dataset has no pairs">
        <p>Two responses to one prompt are needed to say which is better.</p>
      </Empty>
    );
  return (
    <article class="stack tight" aria-label={`Pair ${example.index}`}>
      <div class="card">
        <Prompt messages={example.prompt} isMain />
      </div>
      <div class="answers">
        {shown.map(({ text }, i) => (
          <div key={i === 0 ? 'first' : 'second'} class="card">
            <h3>{i === 0 ? 'First' : 'Second'}</h3>
            <pre>{text}</pre>
          </div>
        ))}
      </div>
      <fieldset class="bare row rate-buttons" aria-label="Which response is better?">
        {(
          [
            ['1', 'First'],
            ['=', 'Equal'],
            ['2', 'Second'],
          ] as const
        ).map(([vote, title]) => (
          <button key={vote} type="button" class="button" onClick={() => onVote(vote)}>
            <kbd>{vote}</kbd> {title}
          </button>
        ))}
        <button type="button" class="button quiet" onClick={() => onVote('skip')}>
          <kbd>s</kbd> Skip
        </button>
        <input
          type="text"
          aria-label="A note on this pair"
          placeholder="Note (optional)"
          value={note.value}
          onInput={(event) => {
            note.value = event.currentTarget.value;
          }}
        />
      </fieldset>
    </article>
  );
}

function Told({ answer }: { answer: RatingAnswer }) {
  const { agrees } = answer.rating;
  return (
    <>
      Last pair:{' '}
      {agrees === undefined ? 'no preference.' : agrees ? 'you agree with the dataset.' : 'the dataset says otherwise.'}{' '}
      {answer.scores && (
        <>
          The reward model gave <Num value={answer.scores[0]} /> and <Num value={answer.scores[1]} />
          {answer.modelAgrees !== undefined &&
            (answer.modelAgrees ? ' and agrees with you.' : ' and disagrees with you.')}
        </>
      )}
    </>
  );
}

interface TallyProps {
  tally: RatingTally;
  which: { dataset: string; split?: string };
  onUndo: () => void;
}

function Tally({ tally, which, onUndo }: TallyProps) {
  const made = useSignal<ExportRatingsAnswer | undefined>(undefined);
  const write = async () => {
    try {
      made.value = await post<ExportRatingsAnswer>('ratings/export', which);
      const { pairs, path, lost } = made.value;
      toast(`${pairs} pairs written to ${path}${lost ? `; ${lost} ratings no longer fit the dataset` : ''}`);
    } catch (error) {
      toastFailure(error);
    }
  };
  const range = (share: RatingTally['agreement']) =>
    share && `${percent(share.value)} (${percent(share.low)} to ${percent(share.high)})`;
  return (
    <div class="card spread">
      <div class="row small">
        <b>{tally.rated} rated</b>
        <span class="muted">
          {tally.ties} equal, {tally.skipped} skipped
          {tally.lost ? `, ${tally.lost} of pairs that are no longer there` : ''}
        </span>
        {tally.agreement && (
          <span>
            agreement with the dataset {range(tally.agreement)}
            <Explain term="interval" />
          </span>
        )}
        {tally.modelAgreement && <span>with the reward model {range(tally.modelAgreement)}</span>}
      </div>
      <div class="row tight">
        <button type="button" class="button slim" disabled={tally.rated + tally.skipped === 0} onClick={onUndo}>
          <kbd>z</kbd> Take back
        </button>
        <button type="button" class="button slim" disabled={tally.rated === 0} onClick={write}>
          Write preferences
        </button>
        {made.value && session.value?.hasTrain && (
          <a class="button slim primary" href={href(['train', 'preference'], { dataset: made.value.path })}>
            Train on these
          </a>
        )}
      </div>
    </div>
  );
}
