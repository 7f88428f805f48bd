// SPDX-License-Identifier: MIT

// The session of the operator: what the page may do, and how it gets more.

import { el } from './dom.js';
import { t } from './words.js';
import * as api from './api.js';

let state = { mode: 'read', token_set: false, may_read: true, session: false };
let changed = () => {};

export const session = () => state;

// refresh asks the gateway what this browser may do.
export async function refresh() {
  state = await api.get('/session');
  api.useCsrf(state.csrf);
  return state;
}

// onChange has a function called after each sign-in and sign-out.
export function onChange(f) { changed = f; }

// controls returns the words and the button about the session.
export function controls() {
  if (!state.token_set) return [el('span', { class: 'dim wide', title: t('no_token') }, t('reading'))];
  const mode = el('span', { class: 'dim wide' }, state.mode === 'write' ? t('writing') : t('reading'));
  if (!state.session) return [mode, el('button', { type: 'button', id: 'sign-in', onclick: () => signIn() }, t('sign_in'))];
  const out = el('button', { type: 'button', id: 'sign-out', onclick: signOut }, t('sign_out'));
  return state.mode === 'write' ? [mode, out] : [mode, el('button', { type: 'button', id: 'sign-in', onclick: () => signIn() }, t('sign_in')), out];
}

async function signOut() {
  try { await api.remove('/session'); } catch { /* a session that has ended is no mistake */ }
  await refresh();
  changed();
}

// signIn shows the dialog for the token. It resolves to true once there is a session.
export function signIn() {
  return new Promise((resolve) => {
    const token = el('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true });
    const only = el('input', { type: 'checkbox', name: 'only' });
    const wrong = el('p', { class: 'bad', role: 'alert' });
    const close = (done) => { box.close(); box.remove(); resolve(done); };
    const box = el('dialog', { 'aria-labelledby': 'dialog-title', oncancel: () => close(false) },
      el('form', {
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            await api.post('/session', { token: token.value, mode: only.checked ? 'read' : 'write' });
          } catch (failure) {
            wrong.textContent = failure.message;
            token.select();
            return;
          }
          await refresh();
          close(true);
          changed();
        },
      },
      el('h2', { id: 'dialog-title' }, t('sign_in')),
      el('label', {}, t('token'), token),
      el('label', { class: 'inline' }, only, t('only_look')),
      wrong,
      el('div', { class: 'row' },
        el('button', { class: 'first' }, t('sign_in')),
        el('button', { type: 'button', onclick: () => close(false) }, t('cancel')))));
    document.body.append(box);
    box.showModal();
  });
}

// mayChange resolves to true if the page may change something, after the operator signed in if need be.
export async function mayChange(notice) {
  if (state.mode === 'write') return true;
  if (!state.token_set) {
    notice(t('no_token'), true);
    return false;
  }
  return (await signIn()) && state.mode === 'write';
}
