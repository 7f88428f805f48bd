// SPDX-License-Identifier: MIT

// The browser of the test: how to open a page of the console, what is always checked, and the pictures.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const setting = JSON.parse(process.env.CONSOLE);
const axe = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

export const browser = await chromium.launch({
  executablePath: setting.browser,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--host-resolver-rules=MAP evil.example 127.0.0.1'],
});

const refused = /Content.Security.Policy|Refused to|blocked:csp/i;

// visit opens the console at a, and calls use with the page. It fails if the page shows a dialog, makes an
// element of a name, breaks its policy, throws, or asks another host for anything.
export async function visit({ url = setting.a, path = '/', width = 1920, height = width < 500 ? 780 : 1080, theme = 'light', ...options }, use) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, locale: 'en-GB', ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on('dialog', (dialog) => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => { if (refused.test(message.text())) wrong.push(message.text()); });
  page.on('request', (request) => { if (new URL(request.url()).origin !== new URL(url).origin && !/^(blob|data):/.test(request.url())) wrong.push(`request to ${request.url()}`); });
  try {
    await page.goto(url + path);
    await use(page, context);
    assert.equal(await page.locator('main img, main iframe, main script').count(), 0, 'a name has become an element');
    assert.deepEqual(wrong, []);
  } catch (error) {
    await page.screenshot({ path: `/tmp/console-failed-${Date.now()}.png` }).catch(() => {});
    throw error;
  } finally {
    await context.close();
  }
}

// accessible fails if axe-core finds anything serious or critical, or if the page is wider than the window.
export async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = found.violations.filter((v) => ['serious', 'critical'].includes(v.impact));
  assert.deepEqual(bad.map((v) => `${v.id}: ${v.nodes[0].html} ${v.nodes[0].failureSummary}`), [], what);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${what}: the page is ${wide} pixels wider than the window`);
  const cut = await page.evaluate(() => [...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth + 1).map((s) => s.getAttribute('aria-label')));
  assert.deepEqual(cut, [], `${what}: tables are wider than the window`);
  return found.violations.length;
}

// picture takes a picture for the documents. The Go test makes it smaller.
export async function picture(page, name) {
  await page.screenshot({ path: `${setting.pictures}/${name}.png` });
}

// signIn begins a session by the dialog.
export async function signIn(page, { token = setting.token, only = false } = {}) {
  const dialog = page.getByRole('dialog');
  if (!await dialog.isVisible()) await page.getByRole('button', { name: 'Sign in' }).click();
  await dialog.getByLabel('Token').fill(token);
  if (only) await dialog.getByLabel('Read-only session').check();
  await dialog.getByRole('button', { name: 'Sign in' }).click();
}

// ask sends a request to the API of a gateway as a program does.
export async function ask(gateway, method, path, body) {
  const answer = await fetch(`${gateway}/api/v1${path}`, {
    method, headers: { Authorization: `Bearer ${setting.token}`, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
  });
  return { status: answer.status, body: answer.status === 204 ? {} : await answer.json() };
}

// becomes waits until a condition holds.
export async function becomes(what, condition, patience = 20_000) {
  const end = Date.now() + patience;
  for (;;) {
    if (await condition()) return;
    if (Date.now() > end) assert.fail(`not in time: ${what}`);
    await new Promise((done) => { setTimeout(done, 100); });
  }
}
