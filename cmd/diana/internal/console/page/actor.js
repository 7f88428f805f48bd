// SPDX-License-Identifier: MIT

// The view Actor: the counters of one actor in every rule, to reset them, and to exempt the actor for a while.

import { el, panel, stacked } from './dom.js';
import { t, time, whole } from './words.js';
import { mayChange } from './session.js';
import { sure } from './change.js';
import * as api from './api.js';

const periods = [[900, 'minutes15'], [3600, 'hour1'], [86400, 'day1']];

// stateOf says what makes an actor special for a rule.
function stateOf(counter) {
  const words = [];
  if (counter.excepted) words.push(t('exempt_already'));
  if (counter.override) words.push(t('override'));
  if (counter.until) words.push(t('until', { at: time(counter.until) }));
  return words.join(', ');
}

export function actorView(node, { notice, failed, parameters }) {
  const name = el('input', { type: 'text', id: 'actor', value: parameters.get('actor') || '', required: true, autocomplete: 'off' });
  const only = el('input', { type: 'text', id: 'only-rule', value: parameters.get('rule') || '', autocomplete: 'off' });
  const found = el('div', { id: 'counters' });
  const comment = el('input', { type: 'text', maxlength: 500, placeholder: t('comment_help') });
  const by = el('input', { type: 'text', maxlength: 100, autocomplete: 'name' });
  let shown = '';

  const look = async () => {
    shown = name.value.trim();
    if (!shown) return;
    const { rules, total, unknown } = await api.get(`/actor?${api.query({ actor: shown, rule: only.value.trim() })}`);
    found.replaceChildren(rules.length ? counters(rules) : el('p', {}, t('actor_none')),
      el('p', { class: 'dim' }, total > rules.length ? t('actor_more', { n: whole(rules.length), total: whole(total) }) : ''),
      el('p', { class: 'bad' }, unknown));
  };
  const change = async (act) => {
    if (!await mayChange(notice)) return;
    try {
      const said = await act();
      await look();
      notice(said);
    } catch (failure) { failed(failure); }
  };
  const reset = (rule, key) => change(async () => {
    await api.post('/reset', { rule, actor: key || 'all' });
    return t('reset_done', { rule });
  });
  const exempt = (rule, seconds) => change(async () => {
    const { version } = await api.get('/config');
    await api.post('/exempt', { rule, actor: shown, seconds, comment: comment.value, expect: version, by: by.value });
    return t('exempted', { rule, actor: shown, at: time(new Date(Date.now() + seconds * 1000).toISOString()) });
  });
  const row = (c) => {
    const period = el('select', { 'aria-label': t('exempt_for') }, periods.map(([seconds, word]) => el('option', { value: seconds }, t(word))));
    return el('tr', {}, el('th', { scope: 'row', class: 'name' }, c.rule), el('td', { class: 'name code' }, c.key),
      el('td', { class: c.allowed ? 'good' : 'bad' }, c.allowed === null ? '' : t(c.allowed ? 'allowed_word' : 'refused_word')),
      el('td', { class: 'number' }, `${c.remaining === null ? '–' : whole(c.remaining)} / ${whole(c.limit)}`,
        c.spent === undefined ? '' : el('div', { class: 'dim' }, t('spent_of', { spent: whole(c.spent), reserved: whole(c.reserved) }))),
      el('td', { class: 'number' }, c.reset_seconds === null ? '' : t('seconds', { n: whole(Math.ceil(c.reset_seconds)) })),
      el('td', { class: 'name' }, stateOf(c)),
      el('td', { class: 'actions' },
        sure(t('reset'), t('sure'), () => reset(c.rule, c.key), { class: 'small', 'aria-label': t('reset_of', { actor: shown, rule: c.rule }) }),
        ' ', period, ' ', sure(t('exempt'), t('sure'), () => exempt(c.rule, Number(period.value)), { class: 'small', 'aria-label': t('exempt_of', { actor: shown, rule: c.rule }) })));
  };
  const counters = (rules) => stacked(t('actor'), [
    { text: t('rule') }, { text: t('key') }, { text: t('state') }, { text: t('left'), class: 'number' }, { text: t('resets'), class: 'number' },
    { text: t('override') }, { text: t('action') }], el('tbody', {}, rules.map(row)));

  node.append(panel(t('actor'), el('p', {}, t('actor_lead')),
    el('form', { class: 'row', onsubmit: (event) => { event.preventDefault(); notice(''); look().catch(failed); } },
      el('label', { class: 'grow' }, t('actor_name'), name), el('label', {}, t('rule'), only), el('button', { class: 'first' }, t('look'))),
    el('div', { class: 'row' }, el('label', { class: 'grow' }, t('comment'), comment), el('label', {}, t('by'), by)), found));
  if (name.value) look().catch(failed);
  return () => {};
}
