// SPDX-License-Identifier: MIT

// Small pictures of numbers over time.

import { el, svg, setAttribute } from './dom.js';

// line returns the path of numbers in a picture of the given size, where most is at the top.
function line(numbers, width, height, most) {
  if (!numbers || numbers.length === 0) return '';
  const dx = width / Math.max(numbers.length - 1, 1);
  const y = (n) => (height - 1 - (height - 2) * (n / (most || 1))).toFixed(1);
  let path = '';
  let last = '';
  numbers.forEach((n, i) => {
    const here = y(n);
    const next = i + 1 < numbers.length ? y(numbers[i + 1]) : '';
    if (here === last && here === next) return; // a straight piece needs its ends only
    path += `${path ? 'L' : 'M'}${(i * dx).toFixed(1)} ${here}`;
    last = here;
  });
  return path;
}

// spark returns a picture within a row, with update(numbers, label).
export function spark() {
  const path = svg('path', { class: 'refused' });
  const node = svg('svg', { class: 'spark', viewBox: '0 0 120 24', preserveAspectRatio: 'none', role: 'img' }, path);
  return {
    node,
    update(numbers, label) {
      setAttribute(path, 'd', line(numbers, 120, 24, Math.max(1, ...numbers || [])));
      setAttribute(node, 'aria-label', label);
    },
  };
}

// chart returns a picture of several series, with update({series: numbers}, label). The series share one
// scale, whose highest value the legend names.
export function chart(series) {
  const paths = Object.fromEntries(series.map((s) => [s.name, svg('path', { class: s.name })]));
  const picture = svg('svg', { class: 'chart', viewBox: '0 0 600 120', preserveAspectRatio: 'none', role: 'img' }, Object.values(paths));
  const most = el('span', {});
  const node = el('figure', {}, picture,
    el('figcaption', { class: 'legend' }, series.map((s) => el('span', {}, el('i', { class: s.name }), s.text)), most));
  return {
    node,
    update(values, label) {
      let top = 1;
      for (const numbers of Object.values(values)) for (const n of numbers) if (n > top) top = n;
      for (const [name, path] of Object.entries(paths)) setAttribute(path, 'd', line(values[name] || [], 600, 120, top));
      setAttribute(picture, 'aria-label', label);
      if (most.textContent !== `≤ ${top}`) most.textContent = `≤ ${top}`;
    },
  };
}
