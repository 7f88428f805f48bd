// SPDX-License-Identifier: MIT

// Requests to the gateway's API.

// Failure is an answer that is not good. It has the problem that the gateway sent.
export class Failure extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

let csrf = '';

// useCsrf keeps the CSRF token of the session for all later requests.
export function useCsrf(token) { csrf = token; }

async function send(method, path, body, signal) {
  const headers = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && csrf) headers['X-Diana-Csrf'] = csrf;
  const answer = await fetch(`/api/v1${path}`, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin', cache: 'no-store', redirect: 'error',
  });
  const text = await answer.text();
  let value = {};
  try { value = text ? JSON.parse(text) : {}; } catch { value = { detail: `status ${answer.status}` }; }
  if (!answer.ok) throw new Failure(answer.status, value);
  return value;
}

export const get = (path, signal) => send('GET', path, undefined, signal);
export const post = (path, body, signal) => send('POST', path, body, signal);
export const remove = (path) => send('DELETE', path);

// query writes parameters.
export const query = (values) => new URLSearchParams(Object.entries(values).filter(([, v]) => v !== '' && v !== 0)).toString();

// follow calls seen with each state of a stream, and lost when the connection is lost. It returns a function
// that ends it. A browser connects again by itself, except after an answer that is an error: follow then asks
// again after five seconds.
export function follow(path, seen, lost) {
  let stream;
  let timer;
  let ended = false;
  const connect = () => {
    stream = new EventSource(`/api/v1${path}`);
    stream.addEventListener('live', (event) => seen(JSON.parse(event.data)));
    stream.addEventListener('error', () => {
      if (ended) return;
      lost();
      if (stream.readyState === EventSource.CLOSED) timer = setTimeout(connect, 5000);
    });
  };
  connect();
  return () => { ended = true; clearTimeout(timer); stream.close(); };
}
