// SPDX-License-Identifier: MIT

// The page begins here: its frame, and which view it shows. The part of the address after # names the view.

import { el, setText } from './dom.js';
import * as words from './words.js';
import { controls, onChange, refresh, session } from './session.js';
import { liveView } from './live.js';
import { whatIfView } from './whatif.js';
import { changeView } from './change.js';
import { actorView } from './actor.js';

const { t } = words;
const views = { live: liveView, whatif: whatIfView, change: changeView, actor: actorView };
const main = document.getElementById('main');
let leave = () => {};

// notice says something to the operator, also to a screen reader.
export function notice(text, bad = false) {
  const node = document.getElementById('notice');
  node.className = bad ? 'bad' : '';
  setText(node, text);
}

function theme(next) {
  try {
    if (next !== undefined) localStorage.setItem('diana-theme', next);
    next = localStorage.getItem('diana-theme') || '';
  } catch { next = next || ''; }
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  return next;
}

function frame(shown) {
  document.querySelector('.skip').textContent = t('skip');
  const nav = document.getElementById('nav');
  nav.setAttribute('aria-label', t('nav'));
  nav.replaceChildren(...Object.keys(views).map((name) => el('a', { href: `#${name}`, 'aria-current': name === shown ? 'page' : undefined }, t(name))));
  const other = words.language() === 'zh' ? 'en' : 'zh';
  const chosen = el('select', { id: 'theme', 'aria-label': t('theme'), onchange: (event) => theme(event.target.value) },
    [['', 'theme_auto'], ['dark', 'theme_dark'], ['light', 'theme_light']].map(([value, name]) => el('option', { value }, t(name))));
  chosen.value = theme();
  document.getElementById('tools').replaceChildren(
    el('a', {
      href: `?lang=${other}`, id: 'language', lang: other,
      onclick: async (event) => { event.preventDefault(); await words.choose(other); show(); document.getElementById('language').focus(); },
    }, t('language')),
    chosen, ...controls());
}

// current returns the name of the view that the address names.
function current() {
  const [name] = location.hash.slice(1).split('?');
  return Object.hasOwn(views, name) ? name : 'live';
}

// show shows the view of the address.
async function show(focus = false) {
  const name = current();
  const [, parameters] = location.hash.split('?');
  leave();
  leave = () => {};
  notice('');
  frame(name);
  const node = el('div', { class: `view ${name}` });
  main.replaceChildren(node);
  if (!session().may_read) {
    node.append(el('p', { class: 'note' }, t('need_session')));
    return;
  }
  leave = views[name](node, { notice, parameters: new URLSearchParams(parameters), failed }) || (() => {});
  if (focus) main.focus();
}

// failed says what went wrong. A session that has ended begins anew.
function failed(failure) {
  if (failure.name === 'AbortError') return;
  notice(failure.problem ? failure.message : t('failed', { why: failure.message }), true);
  if (failure.status === 401) refresh().then(() => frame(current()), () => {});
}

async function begin() {
  theme();
  await words.load();
  await refresh();
  let readable = session().may_read;
  onChange(() => { // a view keeps what the operator has typed into it
    if (session().may_read !== readable) show();
    else frame(current());
    readable = session().may_read;
  });
  addEventListener('hashchange', () => show(true));
  await show();
}

begin().catch((failure) => notice(failure.message, true));
