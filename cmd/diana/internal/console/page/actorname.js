// SPDX-License-Identifier: MIT

// The gateway names an actor by its key, such as "header:X-User=3:ann;" or "ip=192.0.2.1;". A value that a client
// chose has its length in bytes in front, so it may contain anything.

const bytesOf = new TextEncoder();
const textOf = new TextDecoder();

// partsOf returns the kinds and values of a key. A text that is no key is a value without a kind.
export function partsOf(key) {
  const parts = [];
  let rest = bytesOf.encode(key);
  while (rest.length > 0) {
    const found = /^([^=]+)=(?:(\d+):)?/.exec(textOf.decode(rest.subarray(0, 1000)));
    if (!found) return [{ kind: '', value: key }];
    const [head, kind, length] = found;
    const sized = length !== undefined && kind !== 'ip';
    const start = bytesOf.encode(sized ? head : `${kind}=`).length;
    const end = sized ? start + Number(length) : rest.indexOf(0x3b, start);
    if (end < start || rest[end] !== 0x3b) return [{ kind: '', value: key }];
    parts.push({ kind, value: textOf.decode(rest.subarray(start, end)) });
    rest = rest.subarray(end + 1);
  }
  return parts;
}

// nameOf returns the values of a key, as the operator knows the actor.
export const nameOf = (key) => partsOf(key).map((part) => part.value).join(' + ');

// askedBy returns what the API knows an actor by: its value, or the whole key if the value alone does not say who it is.
export function askedBy(key) {
  const parts = partsOf(key);
  if (parts.length === 0) return 'all';
  return parts.length === 1 && !parts[0].value.startsWith('sha256:') ? parts[0].value : key;
}

// kindOf returns what the values are.
export const kindOf = (key) => partsOf(key).map((part) => part.kind).filter(Boolean).join(' + ');
