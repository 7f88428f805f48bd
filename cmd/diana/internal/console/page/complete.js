// SPDX-License-Identifier: MIT

// Which keys the schema of configurations allows at a place in a text.

import * as api from './api.js';

let asked;

// schema asks the gateway once.
const schema = () => { asked ||= api.get('/schema.json'); return asked; };

// enclosing returns the keys whose values a line is part of, outermost first, by the indentation of the lines
// above. A dash counts as indentation, so "- url: /" begins a mapping two columns further in.
export function enclosing(lines, row, column) {
  const keys = [];
  let indent = column;
  for (let i = row - 1; i >= 0 && indent > 0; i -= 1) {
    const found = /^(\s*(?:-\s+)*)([A-Za-z_][\w-]*)\s*:\s*(?:#.*)?$/.exec(lines[i]);
    if (/^---/.test(lines[i])) break;
    if (found && (found[1].length < indent)) {
      keys.unshift(found[2]);
      indent = found[1].length;
    }
  }
  return keys;
}

// keysOf returns the names and descriptions of the keys within a place.
export async function keysOf(path) {
  const root = await schema();
  let places = [root];
  const open = (node, into, depth = 0) => {
    if (!node || depth > 12) return into;
    if (node.$ref) open(root.$defs[node.$ref.replace('#/$defs/', '')], into, depth + 1);
    for (const each of [...node.anyOf || [], ...node.oneOf || [], ...node.allOf || []]) open(each, into, depth + 1);
    if (node.items) open(node.items, into, depth + 1);
    if (node.properties || node.additionalProperties) into.push(node);
    return into;
  };
  for (const key of path) {
    places = places.flatMap((p) => open(p, [])).flatMap((p) => {
      const named = Object.entries(p.properties || {}).find(([name]) => name.toLowerCase() === key.toLowerCase());
      return named ? [named[1]] : [p.additionalProperties].filter((a) => typeof a === 'object');
    });
  }
  const keys = new Map();
  for (const place of places.flatMap((p) => open(p, []))) {
    for (const [name, value] of Object.entries(place.properties || {})) keys.set(name, value.description || '');
  }
  return [...keys].map(([name, description]) => ({ name, description }));
}
