/** The examples of a dataset: searched, filtered, page by page. */
import { useEffect, useRef } from 'preact/hooks';
import type { DataExample, ExamplesAnswer } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { route, setQuery } from '../../app/router.ts';
import { count } from '../../format/numbers.ts';
import { Waiting } from '../../parts/page-parts.tsx';
import { useResource } from '../../wire/resource.ts';

const limit = 25;
const filters = [
  ['', 'all'],
  ['longer', 'chosen is longer'],
  ['shorter', 'chosen is shorter'],
  ['rated', 'rated'],
  ['unrated', 'not rated'],
] as const;

export function Examples({ dataset, split }: { dataset: string; split: string | undefined }) {
  const { query } = route.value;
  const offset = Number(query.offset ?? 0);
  const top = useRef<HTMLDivElement>(null);
  const search = useRef<HTMLInputElement>(null);
  const found = useResource<ExamplesAnswer>(
    'data/examples',
    { dataset, split, q: query.q, filter: query.filter, offset, limit },
    { delay: 200 },
  );
  const total = found.data?.total ?? 0;
  const turn = (by: number) => {
    const next = offset + by * limit;
    if (next >= 0 && next < total) setQuery({ offset: next || undefined });
  };
  useKeys('Examples', [
    { keys: '/', what: 'search', run: () => search.current?.focus() },
    { keys: '[', what: 'page before', run: () => turn(-1) },
    { keys: ']', what: 'page after', run: () => turn(1) },
  ]);
  useEffect(() => top.current?.scrollIntoView({ block: 'nearest' }), [offset]);
  return (
    <div ref={top} class="stack">
      <search class="row examples-search">
        <input
          ref={search}
          type="search"
          aria-label="Search examples"
          placeholder="Search prompts and responses"
          value={query.q ?? ''}
          onInput={(event) => setQuery({ q: event.currentTarget.value, offset: undefined })}
        />
        <select
          class="auto"
          aria-label="Which examples"
          value={query.filter ?? ''}
          onChange={(event) => setQuery({ filter: event.currentTarget.value, offset: undefined })}
        >
          {filters.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
        <span class="small muted number found-examples" role="status">
          {found.data && `${count(total)} of ${count(found.data.read)} read`}
        </span>
      </search>
      {!found.data ? (
        <Waiting error={found.error} />
      ) : (
        <>
          {found.error && <p class="fault">{found.error.message}</p>}
          {found.data.rows.map((example) => (
            <Example key={example.index} example={example} />
          ))}
          {total === 0 && <p class="empty">No example fits.</p>}
          <div class="row">
            <button type="button" class="button" disabled={offset === 0} onClick={() => turn(-1)}>
              Before
            </button>
            <span class="small muted number">
              {total > 0 && `${count(offset + 1)} to ${count(Math.min(total, offset + limit))}`}
            </span>
            <button type="button" class="button" disabled={offset + limit >= total} onClick={() => turn(1)}>
              After
            </button>
          </div>
        </>
      )}
    </div>
  );
}

function Example({ example }: { example: DataExample }) {
  return (
    <article class="card stack tight" aria-label={`Example ${example.index}`}>
      <div class="row tight small muted">
        <span class="number">{count(example.index)}</span>
        {example.source && <span class="tag">{example.source}</span>}
        {example.rating && <span class="tag note">rated {example.rating.vote}</span>}
      </div>
      <Prompt messages={example.prompt} />
      <div class="answers">
        {example.responses.map(({ name, text, label }, i) => (
          <div key={`${name}-${i}`}>
            <h3>
              {name} {label && <span class="tag">{label}</span>}
            </h3>
            <pre>{text}</pre>
          </div>
        ))}
      </div>
    </article>
  );
}

/** `isMain`: it is to be read, not only to be recognised. */
export function Prompt({ messages, isMain = false }: { messages: DataExample['prompt']; isMain?: boolean }) {
  return (
    <>
      {messages.map(({ role, content }, i) => (
        <pre key={`${i}-${role}`} class={isMain ? '' : 'muted'}>
          {messages.length > 1 ? `${role}: ` : ''}
          {content}
        </pre>
      ))}
    </>
  );
}
