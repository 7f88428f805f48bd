// SPDX-License-Identifier: MIT

// Elements are made here, and only here. Every text becomes a text node, never markup, so a name that a client
// chose cannot become an element.

const svgSpace = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// el returns an element. Children are nodes and texts.
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

// svg returns an element of a picture.
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(svgSpace, tag), attributes, children);

// setText changes the text of an element only if it is another one, because a change costs a layout.
export function setText(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

// setAttribute changes an attribute only if it is another one.
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// panel returns a section with a heading.
export const panel = (heading, ...children) => el('section', { class: 'panel' }, el('h2', {}, heading), ...children);

// table returns a table that scrolls within its own width. A column is {text, class}.
export function table(caption, columns, body, attributes = {}) {
  const head = el('tr', {}, columns.map((c) => el('th', { scope: 'col', class: c.class }, c.text)));
  return el('div', { class: 'scroll', role: 'region', 'aria-label': caption, tabindex: 0 }, el('table', attributes, el('thead', {}, head), body));
}

// rows keeps the rows of a table body: one for each key, in order. make returns a row with its function
// update; a row whose key remains is updated and not made again.
export function rows(body, make) {
  let known = new Map();
  return (items, keyOf) => {
    const next = new Map();
    items.forEach((item, i) => {
      const key = keyOf(item, i);
      const row = known.get(key) || make(item);
      row.update(item, i);
      next.set(key, row);
      if (body.children[i] !== row.node) body.insertBefore(row.node, body.children[i] || null);
    });
    while (body.children.length > next.size) body.lastElementChild.remove();
    known = next;
  };
}

// stacked returns a table whose cells are below each other on a narrow screen, each with the name of its
// column. Its rows do not change later.
export function stacked(caption, columns, body) {
  for (const row of body.rows) [...row.cells].forEach((cell, i) => cell.setAttribute('data-label', columns[i].text));
  return table(caption, columns, body, { class: 'stack' });
}
