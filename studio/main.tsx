/** The page's start: style, address, keys, session, then the shell. */
import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './look/tokens.css';
import './look/base.css';
import './look/shell.css';
import './look/controls.css';
import './look/parts.css';
import './look/table.css';
import './look/stacked.css';
import './look/charts.css';
import { startKeys } from './app/keys.ts';
import { page, startRouter } from './app/router.ts';
import { places } from './shell/places.ts';
import { Shell } from './shell/shell.tsx';
import { openSession } from './wire/requests.ts';

startRouter();
startKeys();
// The page's own sources are on their way while the shell is drawn.
void places.find(({ name }) => name === page.peek())?.load();
void openSession();
const root = document.getElementById('studio');
if (root) render(<Shell />, root);
