// SPDX-License-Identifier: MIT

// The result of a replay: the same report that "diana replay --json" prints.

import { el, panel, table } from './dom.js';
import { t, time, whole } from './words.js';
import { chart } from './chart.js';
import { nameOf } from './actorname.js';

const kind = (line) => ({ '+': 'plus', '-': 'minus' }[line.trim()[0]] || '');

// diffList shows the differences of two configurations.
export const diffList = (lines) => (lines && lines.length
  ? el('ul', { class: 'plain diff', tabindex: 0, 'aria-label': t('diff') }, lines.map((line) => el('li', { class: `code ${kind(line)}` }, line)))
  : el('p', {}, t('diff_none')));

// affected lists the actors that a rule refuses in one configuration only.
function affected(heading, difference) {
  const rules = (difference && difference.rules) || [];
  const body = el('tbody', {}, rules.flatMap((rule) => {
    const most = (rule.most || []).slice(0, 10);
    return (most.length ? most : [{ actor: '', refused: rule.refused }]).map((actor) => el('tr', {},
      el('th', { scope: 'row', class: 'name' }, rule.name),
      el('td', { class: 'name' }, nameOf(actor.actor) || t('all_actors')),
      el('td', { class: 'number' }, actor.over ? t('about', { n: whole(actor.refused) }) : whole(actor.refused))));
  }));
  return [
    el('h3', {}, `${heading}: ${whole(difference ? difference.requests : 0)}`),
    rules.length ? table(heading, [{ text: t('rule') }, { text: t('most_affected') }, { text: t('refused_count'), class: 'number' }], body) : null];
}

// byRule sets the refusals of each rule under both configurations beside each other.
function byRule(config, against) {
  const names = [...new Set([...config.rules, ...against.rules].map((r) => r.name))];
  const refused = (result, name) => { const rule = result.rules.find((r) => r.name === name); return rule ? rule.refused : null; };
  const rows = names.map((name) => ({ name, now: refused(config, name), then: refused(against, name) })).filter((r) => r.now || r.then)
    .sort((a, b) => Math.abs((b.then || 0) - (b.now || 0)) - Math.abs((a.then || 0) - (a.now || 0))).slice(0, 200);
  const count = (n) => el('td', { class: 'number' }, n === null ? '–' : whole(n));
  return table(t('by_rule'), [{ text: t('rule') }, { text: t('now_refused'), class: 'number' }, { text: t('then_refused'), class: 'number' }],
    el('tbody', {}, rows.map((r) => el('tr', {}, el('th', { scope: 'row', class: 'name' }, r.name), count(r.now), count(r.then)))));
}

// over time: both timelines have the same spans where both have requests; a span without any is missing.
function picture(config, against) {
  const starts = [...new Set([...config.timeline.spans, ...against.timeline.spans].map((s) => s.begin))].sort();
  const series = (result) => {
    const at = new Map(result.timeline.spans.map((s) => [s.begin, s.refused]));
    return starts.map((s) => at.get(s) || 0);
  };
  const drawn = chart([{ name: 'refused', text: t('in_force') }, { name: 'proposed', text: t('proposed') }], config.timeline.seconds);
  drawn.update(starts.map((s) => new Date(s) / 1000), { refused: series(config), proposed: series(against) },
    `${t('picture')}: ${t('in_force')} ${whole(config.refused)}, ${t('proposed')} ${whole(against.refused)}`);
  return drawn.node;
}

// report shows the answer of POST /api/v1/whatif.
export function report({ diff, report: r, notes }) {
  const all = [...new Set([...notes || [], ...(r && r.notes) || []])];
  const missing = el('div', { id: 'notes' }, el('h3', {}, t('cannot_know')),
    all.length ? el('ul', { class: 'plain' }, all.map((note) => el('li', {}, note))) : el('p', {}, t('cannot_none')));
  const children = [];
  if (r && r.requests > 0 && r.config && r.against) {
    children.push(
      el('p', {}, t('result_span', { n: whole(r.requests), from: time(r.from), to: time(r.to) })),
      el('div', { class: 'tiles' },
        el('div', { class: 'tile refused' }, el('b', { id: 'refused-now' }, whole(r.config.refused)), t('now_refused')),
        el('div', { class: 'tile shadow' }, el('b', { id: 'refused-then' }, whole(r.against.refused)), t('then_refused'))),
      ...affected(t('newly'), r.only_against), ...affected(t('no_longer'), r.only_config),
      el('h3', {}, t('picture')), picture(r.config, r.against),
      el('h3', {}, t('by_rule')), byRule(r.config, r.against));
  } else {
    children.push(el('p', {}, t('no_requests')));
  }
  const shown = panel(t('result'), ...children, missing, el('h3', {}, t('diff')), diffList(diff));
  shown.querySelector('h2').tabIndex = -1;
  return shown;
}
