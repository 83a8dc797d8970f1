/** What the votes say so far, and the way from them to a training. */
import type { ChatRateAnswer, ChatState, VotesAnswer } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { shortModel } from '../../format/models.ts';
import { percent } from '../../format/numbers.ts';
import { Explain } from '../../parts/explain.tsx';
import { session } from '../../wire/requests.ts';

interface VotesProps {
  votes: VotesAnswer | undefined;
  rated: ChatRateAnswer | undefined;
  state: ChatState;
}

export function Votes({ votes, rated, state }: VotesProps) {
  const canTrain = session.value?.hasTrain && !session.value.readOnly;
  const model = state.slots[0]?.model;
  const total = votes?.total ?? 0;
  if (total === 0 && !rated) return null;
  return (
    <div class="card votes-bar spread">
      <div class="row">
        {votes && total > 0 && (
          <>
            <b>{total === 1 ? '1 vote' : `${total} votes`}</b>
            {votes.models && votes.wins && (
              <span class="small">
                {shortModel(votes.models[0])} {votes.wins[0]}, {shortModel(votes.models[1])} {votes.wins[1]}, equal{' '}
                {votes.ties ?? 0}
              </span>
            )}
            {votes.share && (
              <span class="small muted">
                {shortModel(votes.models?.[0] ?? 'the first')} preferred in {percent(votes.share.value)} (
                {percent(votes.share.low)} to {percent(votes.share.high)})
                <Explain term="interval" />
              </span>
            )}
          </>
        )}
        {rated && <span class="small">{rated.total === 1 ? '1 rated reply' : `${rated.total} rated replies`}</span>}
      </div>
      {canTrain && (
        <div class="row tight">
          {votes && total > 0 && (
            <a class="button slim" href={href(['train', 'preference'], { dataset: votes.path, model })}>
              Train on the votes
            </a>
          )}
          {rated && (
            <a class="button slim" href={href(['train', 'preference'], { dataset: rated.path, model, loss: 'kto' })}>
              Train on the ratings
            </a>
          )}
        </div>
      )}
    </div>
  );
}
