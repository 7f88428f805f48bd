// SPDX-License-Identifier: MIT

// The text area for a configuration: line numbers, its mistakes as the operator types, and keys on request.

import { el, setText } from './dom.js';
import { t, whole } from './words.js';
import { enclosing, keysOf } from './complete.js';
import * as api from './api.js';

// draft is the text that the operator edits. All views share it, so a change that was tried can be pushed.
// base is the version of the configuration in force that it began with.
export const draft = { text: '', base: '' };

// open makes the configuration in force the draft.
export async function open() {
  const config = await api.get('/config');
  draft.text = config.text;
  draft.base = config.version;
  return config;
}

// editor returns the text area, with load() after the draft has changed and valid(), which says whether the
// gateway accepts the text as it stands.
export function editor(failed) {
  const numbers = el('pre', { 'aria-hidden': 'true' });
  const area = el('textarea', { spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', wrap: 'off', 'aria-label': t('text'), 'aria-describedby': 'editor-help' });
  const box = el('div', { class: 'editor' }, numbers, area);
  const state = el('p', { role: 'status', id: 'editor-state' });
  const mistakes = el('ul', { class: 'plain', id: 'mistakes' });
  let timer;
  let running = new AbortController();
  let accepted = false;
  let shown = '';

  const number = (wrong) => {
    const count = area.value.split('\n').length;
    const key = `${count} ${[...wrong].join(' ')}`;
    if (key === shown) return;
    shown = key;
    numbers.replaceChildren(...Array.from({ length: count }, (_, i) => (wrong.has(i + 1) ? el('b', {}, `${i + 1}\n`) : `${i + 1}\n`)));
    numbers.scrollTop = area.scrollTop;
  };
  const goTo = (line, column) => {
    const lines = area.value.split('\n');
    const at = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0) + Math.max(column - 1, 0);
    area.focus();
    area.setSelectionRange(at, at);
    area.scrollTop = Math.max(0, (line - 5) * 19.5);
  };
  const entry = (kind) => (m) => el('li', {}, kind === 'bad' ? '' : `${t('warning')}: `,
    el('button', { type: 'button', class: `link ${kind}`, onclick: () => goTo(m.line, m.column) }, t('at_line', m)));
  const validate = async () => {
    running.abort();
    running = new AbortController();
    if (area.value.trim() === '') {
      accepted = false;
      setText(state, t('empty_text'));
      mistakes.replaceChildren();
      return;
    }
    setText(state, t('checking'));
    try {
      const found = await api.post('/validate', { text: area.value }, running.signal);
      const errors = found.errors || [];
      accepted = found.valid;
      state.className = found.valid ? 'good' : 'bad';
      setText(state, found.valid ? t('valid', { n: whole(found.rules), version: found.version }) : t('invalid', { n: errors.length }));
      mistakes.replaceChildren(...errors.slice(0, 50).map(entry('bad')), ...(found.warnings || []).slice(0, 50).map(entry('')));
      number(new Set(errors.map((m) => m.line)));
    } catch (failure) {
      if (failure.status === 429) { // the gateway checks another text at the moment
        timer = setTimeout(validate, 1000);
        return;
      }
      if (failure.name !== 'AbortError') { accepted = false; state.className = 'bad'; setText(state, failure.message); }
      failed(failure);
    }
  };
  const typed = () => {
    draft.text = area.value;
    accepted = false;
    state.className = '';
    setText(state, t('checking'));
    number(new Set());
    clearTimeout(timer);
    timer = setTimeout(validate, 300);
  };
  const load = () => {
    area.value = draft.text;
    number(new Set());
    clearTimeout(timer);
    return validate();
  };
  area.addEventListener('input', typed);
  area.addEventListener('scroll', () => { numbers.scrollTop = area.scrollTop; });
  area.addEventListener('keydown', (event) => {
    if (event.ctrlKey && event.code === 'Space') { event.preventDefault(); complete(box, area, typed).catch(failed); }
  });
  return {
    nodes: [box, el('p', { class: 'dim', id: 'editor-help' }, t('editor_help')), state, mistakes],
    load,
    valid: () => accepted,
    stop: () => { clearTimeout(timer); running.abort(); },
  };
}

// complete shows the keys for the place of the cursor, and inserts the chosen one.
async function complete(box, area, typed) {
  const before = area.value.slice(0, area.selectionStart);
  const lines = before.split('\n');
  const line = lines[lines.length - 1];
  const word = /[A-Za-z_]*$/.exec(line)[0];
  const path = enclosing(lines, lines.length - 1, line.length - word.length);
  const keys = (await keysOf(path)).filter((k) => k.name.toLowerCase().startsWith(word.toLowerCase()));
  if (keys.length === 0) return;
  const list = el('select', { size: Math.min(Math.max(keys.length, 2), 10), 'aria-label': t('complete') },
    keys.map((k) => el('option', { value: k.name, title: k.description }, k.name)));
  const close = () => area.focus(); // the list goes when it loses the focus
  const choose = () => {
    const at = area.selectionStart;
    area.setRangeText(`${list.value}: `, at - word.length, at, 'end');
    close();
    typed();
  };
  list.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') { event.preventDefault(); choose(); }
    if (event.key === 'Escape') { event.preventDefault(); close(); }
  });
  list.addEventListener('dblclick', choose);
  list.addEventListener('blur', () => list.remove());
  list.selectedIndex = 0;
  box.append(list);
  list.focus();
}

// opener returns the buttons that put a text into the editor.
export function opener(load, failed) {
  const file = el('input', {
    type: 'file', accept: '.yaml,.yml,.txt', hidden: true,
    onchange: async () => {
      if (file.files.length === 0) return;
      draft.text = await file.files[0].text();
      file.value = '';
      load();
    },
  });
  return [
    el('button', { type: 'button', id: 'open-active', onclick: () => open().then(load).catch(failed) }, t('open_active')),
    el('button', { type: 'button', onclick: () => file.click() }, t('open_file')), file];
}
