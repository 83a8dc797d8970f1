/** What surrounds every page: navigation, keys, the notice of a lost connection, messages. */
import { useSignal } from '@preact/signals';
import type { FunctionComponent } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useKeys } from '../app/keys.ts';
import { go, page } from '../app/router.ts';
import icon from '../icon.svg';
import { Icon } from '../parts/icons.tsx';
import { Empty, Waiting } from '../parts/page-parts.tsx';
import { connection, session } from '../wire/requests.ts';
import { KeyList } from './key-list.tsx';
import { Notice, Toasts } from './messages.tsx';
import { type Place, places } from './places.ts';

export function Shell() {
  const keysShown = useSignal(false);
  useKeys('Anywhere', [
    {
      keys: '?',
      what: 'this list',
      run: () => {
        keysShown.value = true;
      },
    },
    ...places.map(({ name, title, key }) => ({ keys: `g ${key}`, what: title, run: () => go([name]) })),
  ]);
  const place = places.find(({ name }) => name === page.value);
  useEffect(() => {
    document.title = place ? `${place.title} · attune studio` : 'attune studio';
  }, [place]);
  return (
    <>
      <div class="shell">
        <header class="side">
          <a class="brand" href="#/runs">
            <img src={icon} alt="" width="24" height="24" />
            attune <span>studio</span>
          </a>
          <nav class="nav" aria-label="Pages">
            {places.map(({ name, title, icon: drawing }) => (
              <a key={name} href={`#/${name}`} aria-current={page.value === name ? 'page' : undefined}>
                <Icon name={drawing} />
                {title}
              </a>
            ))}
          </nav>
          <Foot
            onKeys={() => {
              keysShown.value = true;
            }}
          />
        </header>
        <main class="main">{place ? <Loaded key={place.name} place={place} /> : <Unknown />}</main>
      </div>
      <Notice />
      <Toasts />
      {keysShown.value && (
        <KeyList
          onClose={() => {
            keysShown.value = false;
          }}
        />
      )}
    </>
  );
}

function Loaded({ place }: { place: Place }) {
  const [loaded, setLoaded] = useState<{ Page: FunctionComponent } | { error: Error }>();
  useEffect(() => {
    place.load().then(
      (module) => setLoaded({ Page: module.default }),
      (error: Error) => setLoaded({ error }),
    );
  }, [place]);
  if (!loaded) return <Waiting what="" />;
  if ('error' in loaded) return <Waiting error={loaded.error} />;
  return <loaded.Page />;
}

function Unknown() {
  return (
    <Empty title="There is no such page">
      <p>
        The address may be of another version. <a href="#/runs">All runs</a>
      </p>
    </Empty>
  );
}

function Foot({ onKeys }: { onKeys: () => void }) {
  const lost = connection.value !== 'fine';
  const now = session.value;
  return (
    <div class="side-foot">
      {now && (
        <span class="wrap" title="The folder whose runs are shown">
          {/* Broken between folders, not within a name. */}
          {now.root.split('/').flatMap((part, i) => (i === 0 ? [part] : [<wbr key={i} />, `/${part}`]))}
        </span>
      )}
      {now?.readOnly && <span class="tag note">read only</span>}
      <span>
        <span class={lost ? 'live-dot lost' : 'live-dot'} />
        {lost ? 'not connected' : now ? `attune ${now.version} · ${now.device}` : 'connecting'}
      </span>
      <button type="button" class="link-button" onClick={onKeys}>
        Keys <kbd>?</kbd>
      </button>
    </div>
  );
}
