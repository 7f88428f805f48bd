// SPDX-License-Identifier: MIT

// The words of the page in English and Chinese, and how it writes numbers and times.

let words = {};
let lang = document.documentElement.lang;

const kept = () => { try { return localStorage.getItem('diana-language'); } catch { return null; } };

// load reads the words. The choice of an earlier visit wins over what the server found out.
export async function load() {
  if (!new URLSearchParams(location.search).has('lang') && ['en', 'zh'].includes(kept())) lang = kept();
  const all = await (await fetch('/console/words.json')).json();
  words = all[lang] || all.en;
  document.documentElement.lang = lang === 'zh' ? 'zh-CN' : 'en';
  document.title = words.title;
}

export const language = () => lang;

// choose keeps a language and reads the words again.
export async function choose(other) {
  lang = other;
  try { localStorage.setItem('diana-language', other); } catch { /* private windows keep nothing */ }
  const url = new URL(location.href);
  url.searchParams.delete('lang');
  history.replaceState(null, '', url);
  await load();
}

// t returns the text of a name, with values in the place of {names}.
export function t(name, values = {}) {
  const text = words[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
}

const locale = () => (lang === 'zh' ? 'zh-CN' : 'en-GB');

// Making a format costs far more than using it.
const formats = new Map();

function format(n, digits) {
  const key = `${lang} ${digits}`;
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }));
  return formats.get(key).format(n);
}

// whole writes a count.
export const whole = (n) => format(n, 0);

// rate writes a number of requests a second.
export const rate = (n) => format(n, n !== 0 && n < 10 ? 1 : 0);

// bytes writes a size.
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return `${n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

// time writes a moment; the date only if it is another day.
export function time(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return '';
  const clock = at.toLocaleTimeString(locale(), { hour12: false });
  return at.toDateString() === new Date().toDateString() ? clock : `${at.toLocaleDateString(locale())} ${clock}`;
}

// clock writes a moment in seconds since 1970 as a time of day.
export function clock(seconds, withSeconds) {
  const text = new Date(seconds * 1000).toLocaleTimeString(locale(), { hour12: false });
  return withSeconds ? text : text.slice(0, 5);
}

// limit writes the limit of a rule.
export function limit(n, seconds) {
  if (n === undefined || n === null) return '';
  const unit = { 1: 's', 60: 'min', 3600: 'h', 86400: 'd' }[seconds];
  if (!seconds) return whole(n);
  return `${whole(n)} / ${unit || `${whole(seconds)} s`}`;
}
