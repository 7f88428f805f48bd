// SPDX-License-Identifier: MIT

// The view What if: edit a configuration, and see what it would have decided on the last minutes.

import { el, panel } from './dom.js';
import { t } from './words.js';
import { draft, editor, open, opener } from './editor.js';
import { report } from './report.js';
import * as api from './api.js';

export function whatIfView(node, { notice, failed }) {
  const text = editor(failed);
  const result = el('div', { id: 'result' });
  const running = new AbortController();
  const load = () => text.load();
  const replay = el('button', {
    type: 'button', class: 'first', id: 'replay',
    onclick: async () => {
      replay.disabled = true;
      notice(t('replaying'));
      try {
        const found = await api.post('/whatif', { text: draft.text }, running.signal);
        result.replaceChildren(report(found));
        notice('');
        result.querySelector('h2').focus();
      } catch (failure) {
        failed(failure);
        const errors = failure.problem && failure.problem.errors;
        if (errors) result.replaceChildren(panel(t('result'), el('ul', { class: 'plain' }, errors.map((m) => el('li', { class: 'bad' }, t('at_line', m))))));
      } finally { replay.disabled = false; }
    },
  }, t('replay'));
  node.append(
    panel(t('whatif'), el('p', {}, t('whatif_lead')), el('div', { class: 'row' }, opener(load, failed)), text.nodes,
      el('div', { class: 'row' }, replay, el('a', { href: '#change' }, t('to_change')))),
    result);
  if (draft.text) load();
  else open().then(load).catch((failure) => { failed(failure); load(); });
  return () => { text.stop(); running.abort(); };
}
