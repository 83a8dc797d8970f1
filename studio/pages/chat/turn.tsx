/** One prompt and its replies, with what can be said of them. */

import type { VotesAnswer } from '../../../src/studio/api.ts';
import { shortModel } from '../../format/models.ts';
import { Num } from '../../parts/figures.tsx';
import { Icon } from '../../parts/icons.tsx';
import { CopyButton } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';
import type { Reply, Turn } from './conversation.ts';

interface TurnProps {
  turn: Turn;
  isLast: boolean;
  /** Of the two models so far. */
  votes: VotesAnswer | undefined;
  onEdit: () => void;
  onAgain: () => void;
  onVote: (choice: 1 | 2 | '=' | 'skip') => void;
  onRate: (side: number, good: boolean) => void;
}

export function TurnView({ turn, isLast, votes, onEdit, onAgain, onVote, onRate }: TurnProps) {
  const busy = turn.replies.some(({ state }) => state === 'streaming');
  const canChange = session.value?.readOnly !== true;
  const canVote = turn.replies.length === 2 && !busy && turn.vote === undefined && isLast && canChange;
  return (
    <section class="turn">
      <div class="said">
        <pre>{turn.prompt}</pre>
        <button
          type="button"
          class="button quiet slim"
          aria-label="Edit this prompt"
          title="Edit"
          disabled={busy}
          onClick={onEdit}
        >
          <Icon name="edit" />
        </button>
      </div>
      <div class={turn.replies.length === 2 ? 'replies two' : 'replies'}>
        {turn.replies.map((reply, side) => (
          <ReplyView
            // A reply is its side of the turn.
            key={side === 0 ? 'first' : 'second'}
            reply={reply}
            title={titleOf(turn, side)}
            won={turn.vote === side + 1 && !isSame(turn)}
            isBlind={turn.blind && turn.vote === undefined}
            onRate={turn.replies.length === 1 && !busy && canChange ? (good) => onRate(side, good) : undefined}
          />
        ))}
      </div>
      {canVote && (
        <fieldset class="bare votes row" aria-label="Which reply is better?">
          <button type="button" class="button" onClick={() => onVote(1)}>
            <kbd>1</kbd> First
          </button>
          <button type="button" class="button" onClick={() => onVote('=')}>
            <kbd>=</kbd> Equal
          </button>
          <button type="button" class="button" onClick={() => onVote(2)}>
            <kbd>2</kbd> Second
          </button>
          <button type="button" class="button quiet" onClick={() => onVote('skip')}>
            <kbd>s</kbd> Skip
          </button>
        </fieldset>
      )}
      {isLast && turn.vote !== undefined && votes?.models && votes.wins && (
        <p class="small muted center" role="status">
          {isSame(turn) && (turn.vote === 1 || turn.vote === 2) && 'Both wrote the same, which counts as equal. '}
          So far: {shortModel(votes.models[0])} {votes.wins[0]}, {shortModel(votes.models[1])} {votes.wins[1]}, equal{' '}
          {votes.ties ?? 0}
        </p>
      )}
      {isLast && !busy && (
        <div class="row tight">
          <button type="button" class="button slim" onClick={onAgain}>
            <Icon name="again" /> Regenerate
          </button>
        </div>
      )}
    </section>
  );
}

/** A vote on two replies that are the same is kept as a tie. */
const isSame = ({ replies: [first, second] }: Turn) =>
  first !== undefined && second !== undefined && first.text === second.text && first.thinking === second.thinking;

/** A blind turn tells no names before the vote. */
function titleOf({ blind, vote, replies }: Turn, side: number): string {
  if (blind && vote === undefined) return side === 0 ? 'First' : 'Second';
  return replies[side]?.name ?? (replies.length === 1 ? '' : side === 0 ? 'First' : 'Second');
}

interface ReplyProps {
  reply: Reply;
  title: string;
  won: boolean;
  /** Before the vote nothing tells the models apart but what they wrote: thinking, length and speed wait. */
  isBlind: boolean;
  onRate: ((good: boolean) => void) | undefined;
}

const finishes = { stop: 'ended', length: 'cut at the limit', stopped: 'stopped' } as const;

function ReplyView({ reply, title, won, isBlind, onRate }: ReplyProps) {
  const busy = reply.state === 'streaming';
  return (
    <article class={won ? 'reply won' : 'reply'} aria-busy={busy}>
      <div class="spread small">
        <b class="wrap" title={title}>
          {shortModel(title) || 'Reply'}
        </b>
        <span class="row tight muted">
          {won && <span class="tag good">preferred</span>}
          {reply.score !== undefined && reply.score !== null && (
            <span class="tag" title="The reward model’s score">
              reward <Num value={reply.score} />
            </span>
          )}
        </span>
      </div>
      {reply.thinking !== '' && !isBlind && (
        <details class="thinking">
          <summary class="small muted">{busy && reply.text === '' ? 'Thinking …' : 'Thought'}</summary>
          <pre class="muted">{reply.thinking}</pre>
        </details>
      )}
      <pre class="reply-text" aria-live="polite">
        {reply.text.trimStart()}
        {busy && <span class="caret" />}
      </pre>
      {reply.error && (
        <p class="fault" role="alert">
          {reply.error}
        </p>
      )}
      <div class="spread small muted reply-foot">
        <span class="number">
          {reply.tokens !== undefined && !isBlind && (
            <>
              {reply.tokens} tokens, <Num value={reply.tokensPerSecond} />
              /s{reply.finish ? `, ${finishes[reply.finish]}` : ''}
            </>
          )}
        </span>
        {!busy && (
          <span class="row tight">
            {onRate && (
              <>
                <button
                  type="button"
                  class="button quiet slim"
                  aria-label="Good reply"
                  aria-pressed={reply.good === true}
                  onClick={() => onRate(true)}
                >
                  <Icon name="good" />
                </button>
                <button
                  type="button"
                  class="button quiet slim"
                  aria-label="Bad reply"
                  aria-pressed={reply.good === false}
                  onClick={() => onRate(false)}
                >
                  <Icon name="bad" />
                </button>
              </>
            )}
            <CopyButton text={reply.text} label="reply" />
          </span>
        )}
      </div>
    </article>
  );
}
