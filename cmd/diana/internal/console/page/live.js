// SPDX-License-Identifier: MIT

// The view Live: who is refused most, the traffic, the rules, the fleet and the health of the gateway.

import { el, panel, rows, setAttribute, setText, table } from './dom.js';
import { bytes, limit, rate, t, time, whole } from './words.js';
import { chart, spark } from './chart.js';
import { askedBy, kindOf, nameOf } from './actorname.js';
import * as api from './api.js';

const pageSize = 50;
const kinds = ['allowed', 'refused', 'delayed', 'shadow'];
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const last = (numbers) => (numbers && numbers.length ? numbers[numbers.length - 1] : 0);

export const actorLink = (rule, actor) => `#actor?${api.query({ actor, rule })}`;

// topPanel shows the most refused actors, the first in large type.
function topPanel() {
  const body = el('tbody', {});
  const none = el('p', {}, t('top_none'));
  const about = el('p', { class: 'dim' }, t('about_note'));
  const update = rows(body, () => {
    const cells = { actor: el('a', {}), kind: el('span', { class: 'kind' }), rule: el('td', { class: 'name' }), per: el('td', { class: 'number wide' }), count: el('td', { class: 'number' }) };
    return {
      node: el('tr', {}, el('th', { scope: 'row', class: 'name' }, cells.actor, ' ', cells.kind), cells.rule, cells.count, cells.per),
      update(item) {
        setText(cells.actor, nameOf(item.actor) || t('all_actors'));
        setText(cells.kind, kindOf(item.actor));
        setAttribute(cells.actor, 'href', actorLink(item.rule, askedBy(item.actor)));
        setText(cells.rule, item.rule);
        setText(cells.per, rate(item.per_second));
        setText(cells.count, item.recent_exact ? whole(item.recent) : t('about', { n: whole(item.recent) }));
      },
    };
  });
  const list = table(t('top'), [
    { text: t('who') }, { text: t('rule') }, { text: t('refused_count'), class: 'number' }, { text: t('per_second'), class: 'number wide' }], body);
  const node = panel(t('top'), list, none, about);
  node.classList.add('top');
  return {
    node,
    update(live) {
      const top = live.top_refused || [];
      update(top, (item) => `${item.rule}\n${item.actor}`);
      list.hidden = top.length === 0;
      none.hidden = top.length > 0;
      about.hidden = top.every((item) => item.recent_exact);
    },
  };
}

function trafficPanel() {
  const values = Object.fromEntries(kinds.map((kind) => [kind, el('b', {}, '0')]));
  const picture = chart(kinds.map((kind) => ({ name: kind, text: t(kind) })), 1);
  return {
    node: panel(t('traffic'),
      el('div', { class: 'tiles' }, kinds.map((kind) => el('div', { class: `tile ${kind}` }, values[kind], `${t(kind)}/s`))), picture.node),
    update(live) {
      for (const kind of kinds) setText(values[kind], rate(last(live.total[kind])));
      const end = Math.floor(new Date(live.at) / 1000);
      const times = live.total.allowed.map((_, i, all) => end - all.length + 1 + i);
      picture.update(times, live.total, kinds.map((kind) => `${t(kind)}: ${whole(sum(live.total[kind]))}`).join(', '));
    },
  };
}

function ruleRow() {
  const cell = (kind) => el('td', { class: kind });
  const name = el('th', { scope: 'row', class: 'name' });
  const cells = {
    url: cell('name wide'), limit: cell('number'), mode: cell('wide'), allowed: cell('number'), refused: cell('number'), delayed: cell('number wide'),
    tightest: cell('name wide'),
  };
  const picture = spark();
  return {
    node: el('tr', {}, name, cells.url, cells.limit, cells.mode, cells.allowed, cells.refused, cells.delayed, el('td', { class: 'wide' }, picture.node), cells.tightest),
    update(rule) {
      setText(name, rule.name);
      setText(cells.url, rule.url);
      setText(cells.limit, limit(rule.limit, rule.unit_seconds));
      setText(cells.mode, [rule.algo, rule.scope, rule.mode].filter(Boolean).join(' '));
      setText(cells.allowed, rate(rule.allowed_per_second));
      setText(cells.refused, rate(rule.refused_per_second || rule.shadow_per_second || 0));
      setText(cells.delayed, rate(rule.delayed_per_second));
      setText(cells.tightest, (rule.remaining === null ? '' : t('tightest_note', { actor: nameOf(rule.remaining_actor) || t('all_actors'), n: whole(rule.remaining) }))
        + (rule.answer ? ` ${t('spent_note', { cost: whole(rule.cost || 0), reserved: whole(rule.reserved || 0), actor: rule.spent_ratio ? nameOf(rule.spent_by || '') || t('all_actors') : '', percent: whole(Math.round((rule.spent_ratio || 0) * 100)) })}` : '')
        + (rule.shed ? ` ${t('shed_note', { latency: rule.baseline_seconds ? `${whole(1000 * rule.baseline_seconds)} ms` : '…', shed: Object.entries(rule.shed).map(([priority, n]) => `${priority} ${whole(n)}`.trim()).join(', ') })}` : ''));
      picture.update(rule.history, `${t('history')}: ${whole(sum(rule.history || []))}`);
    },
  };
}

// rulesPanel shows a page of the rules. It calls ask when the operator wants others.
function rulesPanel(wanted, ask) {
  const body = el('tbody', {});
  const update = rows(body, ruleRow);
  const shown = el('p', { class: 'dim' });
  const move = (by) => () => { wanted.offset = Math.max(0, wanted.offset + by); ask(); };
  const previous = el('button', { type: 'button', onclick: move(-pageSize) }, t('previous'));
  const next = el('button', { type: 'button', onclick: move(pageSize) }, t('next'));
  let timer;
  const filter = el('input', {
    type: 'search', value: wanted.q,
    oninput: () => { clearTimeout(timer); timer = setTimeout(() => { wanted.q = filter.value; wanted.offset = 0; ask(); }, 250); },
  });
  const node = panel(t('rules'), el('div', { class: 'row' }, el('label', {}, t('filter'), filter), shown, previous, next),
    table(t('rules'), [
      { text: t('name') }, { text: t('url'), class: 'wide' }, { text: t('limit'), class: 'number' }, { text: t('mode'), class: 'wide' },
      { text: `${t('allowed')}/s`, class: 'number' }, { text: `${t('refused')}/s`, class: 'number' }, { text: `${t('delayed')}/s`, class: 'number wide' },
      { text: t('history'), class: 'wide' }, { text: t('remaining'), class: 'wide' }], body));
  node.classList.add('full');
  return {
    node,
    update(live) {
      const rules = live.rules || [];
      update(rules, (rule) => rule.name);
      const from = wanted.offset;
      setText(shown, rules.length ? t('rules_shown', { from: from + 1, to: from + rules.length, all: whole(live.rules_total) }) : t('rules_none'));
      previous.disabled = from === 0;
      next.disabled = from + rules.length >= live.rules_total;
    },
  };
}

function healthPanel() {
  const names = ['state', 'configuration', 'program', 'gateways', 'redis', 'remote', 'memory', 'keys', 'evictions', 'overflow', 'recent'];
  const values = Object.fromEntries(names.map((name) => [name, el('dd', {})]));
  const reached = (state) => (state.reached ? t('redis_ok') : t('redis_bad')) + (state.since ? `, ${t('since', { at: time(state.since) })}` : '');
  return {
    node: panel(t('health'), el('dl', { class: 'facts' }, names.flatMap((name) => [el('dt', {}, t(name)), values[name]]))),
    update({ gateway, redis, remote }) {
      values.state.className = gateway.degraded ? 'bad' : 'good';
      setText(values.state, gateway.degraded ? `${t('degraded')} ${t('since', { at: time(gateway.degraded_since) })}` : t('good'));
      setText(values.configuration, `${gateway.source}, ${t('version')} ${gateway.config_version}, ${t('since', { at: time(gateway.since) })}`);
      setText(values.program, gateway.version);
      setText(values.gateways, whole(gateway.gateways));
      values.redis.className = redis && redis.configured && !redis.reached ? 'bad' : '';
      setText(values.redis, redis && redis.configured ? reached(redis) : t('redis_none'));
      setText(values.remote, remote ? remoteText(remote) : t('remote_none'));
      setText(values.memory, bytes(gateway.memory_bytes));
      setText(values.keys, `${whole(gateway.keys)} / ${whole(gateway.max_keys)}`);
      setText(values.evictions, whole(gateway.evictions));
      setText(values.overflow, whole(gateway.overflow || 0));
      const recent = gateway.recent;
      setText(values.recent, recent ? t('recent_text', { n: whole(recent.requests), all: whole(recent.capacity), bytes: bytes(recent.bytes) }) : '0');
    },
  };
}

// remoteText writes what is known of the remote configuration, whatever its members are.
const remoteText = (remote) => Object.entries(remote).filter(([, v]) => v !== null && v !== '' && typeof v !== 'object').map(([k, v]) => `${k}: ${v}`).join(', ');

function eventsPanel() {
  const list = el('ol', { class: 'events', tabindex: 0, 'aria-label': t('events') });
  const none = el('p', {}, t('events_none'));
  let seen = '';
  return {
    node: panel(t('events'), list, none),
    update({ events = [] }) {
      const now = JSON.stringify(events);
      if (now === seen) return;
      seen = now;
      none.hidden = events.length > 0;
      list.hidden = events.length === 0;
      list.replaceChildren(...events.map((e) => el('li', {}, el('time', { datetime: e.at }, time(e.at)), ' ', el('b', {}, t(`event_${e.kind}`)), ' ', e.text)));
    },
  };
}

// fleetPanel asks for the counts of the whole fleet by itself, every ten seconds.
function fleetPanel(failed) {
  const picture = chart(kinds.map((kind) => ({ name: kind, text: t(kind) })), 60);
  const said = el('p', {});
  const why = el('p', { class: 'dim' });
  const ask = async () => {
    try {
      const fleet = await api.get('/fleet');
      const minutes = fleet.minutes || [];
      const series = Object.fromEntries(kinds.map((kind) => [kind, minutes.map((m) => m[kind])]));
      const gateways = Math.max(0, ...minutes.slice(-2).map((m) => m.gateways)); // some have not reported the present minute yet
      setText(why, fleet.available ? t('fleet_gateways', { n: whole(gateways) }) : t('fleet_alone', { why: fleet.reason }));
      setText(said, minutes.length ? t('fleet_sum', { allowed: whole(sum(series.allowed)), refused: whole(sum(series.refused)), at: time(minutes[0].at) }) : t('fleet_none'));
      picture.update(minutes.map((m) => new Date(m.at) / 1000), series, said.textContent);
    } catch (failure) { failed(failure); }
  };
  ask();
  const timer = setInterval(() => { if (!document.hidden) ask(); }, 10_000);
  return { node: panel(t('fleet'), said, why, picture.node), stop: () => clearInterval(timer) };
}

// liveView shows the view, and follows the gateway until the returned function is called.
export function liveView(node, { notice, failed }) {
  const wanted = { q: '', offset: 0 };
  let stop = () => {};
  let turn = 0; // of asking: an answer to an earlier question is late
  let latest = null;
  let drawing = false;
  // Each part has a frame of its own, so that no frame takes long.
  const draw = (i = 0) => {
    if (loading.isConnected) loading.replaceWith(top.node, traffic.node, fleet.node, rules.node, health.node, events.node);
    drawing = i < parts.length;
    if (!drawing) return;
    parts[i].update(latest);
    requestAnimationFrame(() => draw(i + 1));
  };
  const seen = (live) => {
    latest = live;
    notice('');
    if (!drawing && !document.hidden) { drawing = true; requestAnimationFrame(() => draw()); }
  };
  // A stream has the first rules. The others are asked for once a second.
  const ask = () => {
    stop();
    turn += 1;
    const mine = turn;
    const show = (live) => { if (mine === turn) seen(live); };
    if (wanted.offset === 0) {
      stop = api.follow(`/live/stream?${api.query({ q: wanted.q, rules: pageSize })}`, show, () => notice(t('lost'), true));
      return;
    }
    const poll = () => api.get(`/live?${api.query({ q: wanted.q, rules: pageSize, offset: wanted.offset })}`).then(show, failed);
    poll();
    const timer = setInterval(() => { if (!document.hidden) poll(); }, 1000);
    stop = () => clearInterval(timer);
  };
  const fleet = fleetPanel(failed);
  const parts = [topPanel(), trafficPanel(), rulesPanel(wanted, ask), healthPanel(), eventsPanel()];
  const [top, traffic, rules, health, events] = parts;
  const loading = el('p', { class: 'note' }, t('loading'));
  node.append(loading);
  const visible = () => { if (latest && !drawing && !document.hidden) seen(latest); };
  document.addEventListener('visibilitychange', visible);
  ask();
  return () => { turn += 1; stop(); fleet.stop(); document.removeEventListener('visibilitychange', visible); };
}
