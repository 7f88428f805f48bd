// SPDX-License-Identifier: MIT

// The view Change: push a text, roll back to an earlier one, and see who changed what.

import { el, panel, setText, stacked } from './dom.js';
import { t, time, whole } from './words.js';
import { draft, editor, open, opener } from './editor.js';
import { diffList } from './report.js';
import { mayChange } from './session.js';
import * as api from './api.js';

// sure returns a button that acts at the second press, so one slip changes nothing.
export function sure(text, again, act, attributes = {}) {
  let armed = false;
  const button = el('button', {
    type: 'button', ...attributes,
    onclick: () => {
      if (!armed) { arm(true); return; }
      arm(false);
      act();
    },
    onblur: () => arm(false),
  }, text);
  const label = attributes['aria-label'];
  const arm = (on) => {
    armed = on;
    setText(button, on ? again : text);
    if (label) button.setAttribute('aria-label', on ? `${again} ${label}` : label);
  };
  return button;
}

function versionsTable(versions, show, rollBack) {
  const row = (v) => el('tr', {},
    el('th', { scope: 'row', class: 'number' }, whole(v.number)), el('td', { class: 'code' }, v.version, v.active ? el('b', { class: 'good' }, ` ${t('active')}`) : null),
    el('td', {}, el('time', { datetime: v.at }, time(v.at))), el('td', { class: 'name' }, v.by || ''), el('td', { class: 'name' }, v.comment || ''),
    el('td', { class: 'actions' },
      el('button', { type: 'button', class: 'small', onclick: () => show(v.number) }, t('open')), ' ',
      v.active ? null : sure(t('rollback'), t('sure'), () => rollBack(v.number), { class: 'small', 'aria-label': t('rollback_to', { number: v.number }) })));
  return stacked(t('versions'), [
    { text: t('number'), class: 'number' }, { text: t('version') }, { text: t('at') }, { text: t('by_whom') }, { text: t('comment') }, { text: t('action') }],
  el('tbody', {}, versions.map(row)));
}

const auditTable = (lines) => stacked(t('audit'), [{ text: t('at') }, { text: t('action') }, { text: t('detail') }, { text: t('by_whom') }, { text: t('from') }],
  el('tbody', {}, lines.map((l) => el('tr', {}, el('td', {}, el('time', { datetime: l.at }, time(l.at))), el('td', {}, l.action), el('td', { class: 'name' }, l.detail),
    el('td', { class: 'name' }, l.by || ''), el('td', { class: 'name' }, l.from)))));

// download lets the browser save the draft.
function download() {
  const url = URL.createObjectURL(new Blob([draft.text], { type: 'application/yaml' }));
  el('a', { href: url, download: 'diana.yaml' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function changeView(node, { notice, failed }) {
  const text = editor(failed);
  const comment = el('input', { type: 'text', id: 'comment', maxlength: 500, placeholder: t('comment_help') });
  const by = el('input', { type: 'text', id: 'by', maxlength: 100, autocomplete: 'name' });
  const based = el('p', { class: 'dim' });
  const blocked = el('p', { class: 'note', id: 'blocked' });
  const history = el('div', { id: 'versions' });
  const audit = el('div', { id: 'audit' });
  const load = () => { setText(based, t('expected', { version: draft.base })); return text.load(); };

  const refresh = async () => {
    const [config, versions, lines] = await Promise.all([api.get('/config'), api.get('/versions'), api.get('/audit')]);
    push.disabled = !config.writable;
    blocked.hidden = config.writable;
    setText(blocked, config.writable ? '' : t('not_writable', { why: config.why }));
    const known = versions.versions || [];
    history.replaceChildren(known.length ? versionsTable(known, show, rollBack) : el('p', {}, t('versions_none')));
    const said = lines.lines || [];
    audit.replaceChildren(said.length ? auditTable(said) : el('p', {}, t('audit_none')));
    return config;
  };
  const show = (number) => api.get(`/versions/${number}`).then((v) => { draft.text = v.text; return load(); }).catch(failed);
  // change sends a change that may meet another operator's.
  const change = async (path, body, done) => {
    if (!await mayChange(notice)) return;
    try {
      const made = await api.post(path, { comment: comment.value, by: by.value, ...body });
      await open();
      load();
      comment.value = '';
      await refresh();
      notice(t(done, made));
    } catch (failure) {
      failed(failure);
      if (failure.status === 409 && failure.problem.found) notice(t('conflict', { found: failure.problem.found }), true);
    }
  };
  const rollBack = async (number) => {
    const config = await api.get('/config').catch(failed);
    if (config) await change('/rollback', { number, expect: config.version }, 'rolled_back');
  };
  // The first press shows what the text changes, and the second one pushes it.
  const compared = el('div', { id: 'compared' });
  let shown = null; // the text whose changes are shown
  const forget = () => {
    shown = null;
    compared.replaceChildren();
    setText(push, t('push'));
  };
  const push = el('button', {
    type: 'button', class: 'first', id: 'push',
    onclick: async () => {
      if (!text.valid()) { notice(document.getElementById('editor-state').textContent, true); return; }
      if (shown === draft.text) {
        forget();
        await change('/push', { text: draft.text, expect: draft.base }, 'pushed');
        return;
      }
      const of = draft.text;
      try {
        const { diff, risks } = await api.post('/compare', { text: of });
        shown = of;
        compared.replaceChildren(el('h3', {}, t('diff')), diffList(diff),
          ...(risks.length ? [el('p', { class: 'bad' }, t('risks')), el('ul', { class: 'plain bad' }, risks.map((r) => el('li', {}, r)))] : []));
        setText(push, t('push_sure'));
      } catch (failure) { failed(failure); }
    },
  }, t('push'));

  node.addEventListener('input', () => { if (shown !== null && shown !== draft.text) forget(); });
  node.append(
    panel(t('change'), el('p', {}, t('change_lead')), blocked, el('div', { class: 'row' }, opener(load, failed), based), text.nodes,
      el('div', { class: 'row' }, el('label', { class: 'grow' }, t('comment'), comment), el('label', {}, t('by'), by), push,
        el('button', { type: 'button', id: 'download', onclick: download }, t('download')), el('a', { href: '#whatif' }, t('replay'))), compared),
    panel(t('versions'), history), panel(t('audit'), audit));
  const start = draft.text ? Promise.resolve() : open();
  start.then(load).catch((failure) => { failed(failure); load(); });
  refresh().catch(failed);
  return () => text.stop();
}
