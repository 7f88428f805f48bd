// SPDX-License-Identifier: MIT

// Pictures of numbers over time. A chart is drawn by uPlot, which index.html loads before this module.

import { el, svg, setAttribute } from './dom.js';
import { clock, t, whole } from './words.js';

// spark returns a small picture within a row, with update(numbers, label).
export function spark() {
  const path = svg('path', { class: 'refused' });
  const node = svg('svg', { class: 'spark', viewBox: '0 0 120 24', preserveAspectRatio: 'none', role: 'img' }, path);
  return {
    node,
    update(numbers, label) {
      const most = Math.max(1, ...numbers || []);
      const dx = 120 / Math.max((numbers || []).length - 1, 1);
      setAttribute(path, 'd', (numbers || []).map((n, i) => `${i ? 'L' : 'M'}${(i * dx).toFixed(1)} ${(23 - 22 * (n / most)).toFixed(1)}`).join(''));
      setAttribute(node, 'aria-label', label);
    },
  };
}

const dashes = { delayed: [5, 3], shadow: [2, 3], proposed: [6, 3] };
const height = 180;
const shortest = 10; // steps of a chart

// gaps adds a hole where times are further apart than step, so that no line joins what was before a pause with what
// came after it.
function gaps(times, series, step) {
  const out = [[], ...series.map(() => [])];
  times.forEach((time, i) => {
    if (i > 0 && time - times[i - 1] > 1.5 * step) {
      out[0].push(times[i - 1] + step);
      series.forEach((_, s) => out[s + 1].push(null));
    }
    out[0].push(time);
    series.forEach((numbers, s) => out[s + 1].push(numbers[i]));
  });
  return out;
}

// chart returns a picture of several series {name, text}, with update(times, {name: numbers}, label). Times are
// seconds since 1970, step apart. A name is that of a colour in style.css.
export function chart(series, step) {
  const node = el('figure', { class: 'chart', role: 'group' });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  let data = [[], ...series.map(() => [])];
  let drawn = null;
  const make = () => {
    if (drawn) drawn.destroy();
    const axis = { stroke: colour('dim'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 } };
    drawn = new window.uPlot({
      width: node.clientWidth || 300,
      height,
      series: [
        { label: t('at'), value: (_, s) => (s === null ? '–' : clock(s, step < 60)) },
        ...series.map(({ name, text }) => ({
          label: text, stroke: colour(name === 'proposed' ? 'accent' : name), width: 1.5, dash: dashes[name], points: { show: false },
          value: (_, n) => (n === null ? '–' : whole(n)),
        })),
      ],
      axes: [
        { ...axis, values: (_, splits, axisOf, space, every) => splits.map((s) => clock(s, every < 60)) },
        { ...axis, size: 56, values: (_, splits) => splits.map((n) => (Number.isInteger(n) ? whole(n) : '')) },
      ],
      scales: {
        x: { range: (_, from, to) => [Math.min(from, to - shortest * step), to] },
        y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] },
      },
      cursor: { drag: { x: false, y: false } },
    }, data, node);
  };
  new ResizeObserver(() => {
    if (!node.isConnected || node.clientWidth === 0) return;
    if (drawn) drawn.setSize({ width: node.clientWidth, height });
    else make();
  }).observe(node);
  // The colours of the theme are read when a chart is made.
  const remake = () => { if (drawn && node.isConnected) make(); };
  new MutationObserver(remake).observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', remake);
  return {
    node,
    update(times, values, label) {
      data = gaps(times, series.map(({ name }) => values[name] || []), step);
      setAttribute(node, 'aria-label', label);
      if (drawn) drawn.setData(data);
    },
  };
}
