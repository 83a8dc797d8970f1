/** Chat with one model or two, blind if wished; votes become data to train on. */
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import type { ChatRateAnswer, ChatState, VotesAnswer } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import './chat.css';
import { Composer } from './composer.tsx';
import { Loader, Suggestions } from './loader.tsx';
import { Settings } from './settings.tsx';
import { ask, rate, stop, streaming, turns, vote } from './talk.ts';
import { TurnView } from './turn.tsx';
import { Votes } from './votes.tsx';

export default function Chat() {
  const loading = useSignal(false);
  const state = useResource<ChatState>('chat/state', {}, { every: loading.value ? 800 : undefined });
  const votes = useResource<VotesAnswer>('chat/votes', {}, { when: (state.data?.slots.length ?? 0) > 0 });
  const rated = useSignal<ChatRateAnswer | undefined>(undefined);
  const draft = useSignal('');
  const editing = useSignal<number | undefined>(undefined);
  const input = useRef<HTMLTextAreaElement>(null);
  // The newest words stay in view, unless one has scrolled up to read.
  const nearEnd = useRef(true);
  useEffect(() => {
    loading.value = state.data?.loading !== undefined;
  }, [state.data, loading]);

  const sides = state.data?.slots.length ?? 0;
  const last = turns.value.at(-1);
  const canVote = !streaming.value && last?.replies.length === 2 && last.vote === undefined;
  const say = () => {
    const text = draft.value.trim();
    if (text === '' || streaming.value || sides === 0) return;
    draft.value = '';
    const from = editing.value;
    editing.value = undefined;
    nearEnd.current = true;
    void ask(text, sides, from);
  };
  const again = () => {
    if (last && !streaming.value && sides > 0) void ask(last.prompt, sides, turns.value.length - 1);
  };
  const edit = (index: number) => {
    const turn = turns.value[index];
    if (!turn || streaming.value) return;
    draft.value = turn.prompt;
    editing.value = index;
    input.current?.focus();
  };
  const decide = async (choice: 1 | 2 | '=' | 'skip') => {
    if (canVote && last && (await vote(last, choice))) votes.reload();
  };
  useKeys('Chat', [
    { keys: 'i', what: 'write', run: () => input.current?.focus() },
    {
      keys: 'Escape',
      what: 'stop; leave the field',
      run: () => (streaming.value ? void stop() : input.current?.blur()),
    },
    { keys: 'r', what: 'regenerate', run: again },
    { keys: 'e', what: 'edit the last prompt', run: () => edit(turns.value.length - 1) },
    { keys: '1', what: 'the first is better', run: () => void decide(1) },
    { keys: '2', what: 'the second is better', run: () => void decide(2) },
    { keys: '=', what: 'equally good', run: () => void decide('=') },
    { keys: 's', what: 'skip the vote', run: () => void decide('skip') },
  ]);
  // A finished pair is voted on by keys, which a field would swallow.
  useEffect(() => {
    if (canVote && draft.peek() === '') input.current?.blur();
  }, [canVote, draft]);
  useLayoutEffect(() => {
    // The composer sticks to the window's foot and is always in view: the page itself is scrolled.
    if (nearEnd.current) scrollTo(0, document.documentElement.scrollHeight);
  }, [turns.value]);
  useEffect(() => {
    const look = () => {
      nearEnd.current = scrollY + innerHeight > document.documentElement.scrollHeight - 160;
    };
    addEventListener('scroll', look, { passive: true });
    return () => removeEventListener('scroll', look);
  }, []);

  if (session.value && !session.value.hasChat)
    return (
      <div class="page">
        <h1>Chat</h1>
        <Empty icon="chat" title="This studio cannot load models" />
      </div>
    );
  if (!state.data) return <Waiting error={state.error} />;
  return (
    <div class="page chat-page">
      <h1>Chat</h1>
      <Loader state={state.data} onChange={state.reload} />
      {sides > 0 && <Votes votes={votes.data} rated={rated.value} state={state.data} />}
      {turns.value.length === 0 && (
        <div class="card chat-empty">
          <Empty icon="chat" title={sides === 0 ? 'Load a model to talk to' : 'Say something'}>
            <p>
              {sides === 0
                ? 'Choose one above, or two to compare them without knowing which is which.'
                : sides === 2
                  ? 'Both answer. Vote with the keys 1, 2, = and s: the votes are kept as preferences to train on.'
                  : 'A thumb on a reply is kept as an example to train on. Load a second model to compare and vote.'}
            </p>
            {sides === 0 && !loading.value && <Suggestions />}
          </Empty>
        </div>
      )}
      <div class="turns">
        {turns.value.map((turn, i) => (
          <TurnView
            key={turn.id}
            turn={turn}
            isLast={i === turns.value.length - 1}
            votes={votes.data}
            onEdit={() => edit(i)}
            onAgain={again}
            onVote={decide}
            onRate={async (side, good) => {
              rated.value = (await rate(turn, side, good)) ?? rated.value;
            }}
          />
        ))}
      </div>
      <div class="chat-end">
        <Composer
          input={input}
          draft={draft}
          isEditing={editing.value !== undefined}
          onCancelEdit={() => {
            editing.value = undefined;
            draft.value = '';
          }}
          canSend={sides > 0 && !streaming.value}
          isStreaming={streaming.value}
          onSend={say}
          onStop={() => void stop()}
        />
        <Settings slots={state.data.slots} />
      </div>
    </div>
  );
}
