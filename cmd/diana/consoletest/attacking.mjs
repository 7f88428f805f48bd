// SPDX-License-Identifier: MIT

// What an attacker tries from the operator's browser, while the operator has a session.

import assert from 'node:assert/strict';
import { ask, becomes, setting, signIn, visit } from './browser.mjs';

const versionOf = async () => (await ask(setting.a, 'GET', '/config')).body.version;

export const attacking = {
  async 'names are text'() {
    await visit({}, async (page) => {
      await becomes('the hostile actor', async () => (await page.locator('.top').textContent()).includes(setting.hostile));
      await page.locator('.top').getByRole('link', { name: setting.hostile }).first().click();
      await page.locator('#counters tbody tr').first().waitFor();
      assert.equal(await page.locator('#actor').inputValue(), setting.hostile);
    });
    await visit({ javaScriptEnabled: false }, async (page) => {
      assert.ok((await page.locator('main').textContent()).includes(setting.hostile));
    });
    for (const path of ['/#actor?actor=<img src=x onerror=alert(4)>', '/?q="><script>alert(5)</script>', '/?lang="><img src=x onerror=alert(6)>', '/#<img src=x onerror=alert(7)>']) {
      await visit({ path }, async (page) => { await page.getByRole('heading', { level: 1 }).waitFor(); });
    }
  },

  async 'a page of another site'() {
    const before = await versionOf();
    await visit({}, async (page, context) => {
      await signIn(page);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      for (const path of ['/api/v1/reset', '/api/v1/push', '/api/v1/session', '/reset']) {
        const stranger = await context.newPage();
        await stranger.goto('about:blank');
        const [answer] = await Promise.all([
          stranger.waitForResponse((r) => r.url() === setting.a + path),
          stranger.goto(setting.strangers + path).catch(() => {}),
        ]);
        assert.equal(answer.status(), 403, path);
        await stranger.close();
      }
      const stranger = await context.newPage();
      await stranger.goto(`${setting.strangers}/nothing`).catch(() => {});
      await stranger.goto(`${setting.strangers}/frame`);
      const read = await stranger.evaluate(async (url) => {
        try { return await (await fetch(`${url}/api/v1/live`, { credentials: 'include' })).text(); } catch { return 'blocked'; }
      }, setting.a);
      assert.equal(read, 'blocked', 'another site reads the state');
      const sent = await stranger.evaluate(async (url) => {
        try { return (await fetch(`${url}/api/v1/reset`, { method: 'POST', credentials: 'include', headers: { 'Content-Type': 'application/json', 'X-Diana-Csrf': 'x' }, body: '{}' })).status; } catch { return 'blocked'; }
      }, setting.a);
      assert.equal(sent, 'blocked', 'another site sends the field of the CSRF token');
    });
    assert.equal(await versionOf(), before);
  },

  async 'the console in a frame'() {
    await visit({}, async (page, context) => {
      const stranger = await context.newPage();
      await stranger.goto(`${setting.strangers}/frame`);
      const framed = stranger.frames().find((f) => f !== stranger.mainFrame());
      assert.equal(await framed.locator('#nav').count(), 0, 'the frame shows the console');
    });
  },

  async 'a name that resolves to the listener'() {
    const { port } = new URL(setting.a);
    await visit({}, async (page, context) => {
      const rebound = await context.newPage();
      const answer = await rebound.goto(`http://evil.example:${port}/`);
      assert.equal(answer.status(), 421);
      const read = await rebound.evaluate(async () => (await fetch('/api/v1/live')).status);
      assert.equal(read, 421);
    });
  },

  async 'no script sees the cookie'() {
    await visit({}, async (page, context) => {
      await signIn(page, { only: true });
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      assert.equal(await page.evaluate(() => document.cookie), '');
      const [cookie] = await context.cookies();
      assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.name === 'diana_session');
      const stolen = async (method, path, body) => (await fetch(`${setting.a}/api/v1${path}`, {
        method, headers: { Cookie: `diana_session=${cookie.value}`, 'Content-Type': 'application/json', 'X-Diana-Csrf': '' }, body,
      })).status;
      for (const path of ['/push', '/rollback', '/reset', '/exempt']) assert.equal(await stolen('POST', path, '{}'), 403, path);
      await page.getByRole('button', { name: 'Sign out' }).click().catch(() => {});
    });
  },
};
