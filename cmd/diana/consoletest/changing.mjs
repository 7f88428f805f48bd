// SPDX-License-Identifier: MIT

// What an operator does: try a change, push it, meet another operator, roll back, and help one actor.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { ask, becomes, setting, signIn, visit } from './browser.mjs';

const text = (page) => page.locator('textarea');
const notice = (page, want) => becomes(`the notice ${want}`, async () => want.test(await page.locator('#notice').textContent()));
const press = async (button) => { await button.click(); await button.click(); }; // the second press acts
// pushIt presses once, reads the changes, and presses again.
const pushIt = async (page, changes) => {
  await page.locator('#push').click();
  await becomes(`the changes ${changes}`, async () => changes.test(await page.locator('#compared').textContent()));
  await page.locator('#push').click();
};
const version = async (gateway) => (await ask(gateway, 'GET', '/live?rules=1')).body.gateway.config_version;

// write replaces a part of the text in the editor, and waits until the gateway accepts it.
async function write(page, before, after) {
  const now = await text(page).inputValue();
  assert.ok(now.includes(before), `the text has no ${before}`);
  await text(page).fill(now.replace(before, after));
  await page.locator('#editor-state.good').waitFor();
}

async function count(page, id) { return Number((await page.locator(id).textContent()).replace(/\D/g, '')); }

export const changing = {
  async 'mistakes as the operator types'() {
    await visit({ path: '/#whatif' }, async (page) => {
      await page.locator('#editor-state.good').waitFor();
      assert.match(await text(page).inputValue(), /# The limits of the shop/);
      const good = await text(page).inputValue();
      await text(page).fill(good.replace('rpu: 20', 'rpu: many'));
      await page.locator('#mistakes button').first().waitFor();
      assert.match(await page.locator('#mistakes').textContent(), /Line 4, column \d+: /);
      assert.equal(await page.locator('.editor pre b').textContent(), '4\n');
      await page.locator('#mistakes button').first().click();
      const line = await page.evaluate(() => { const a = document.activeElement; return a.value.slice(0, a.selectionStart).split('\n').length; });
      assert.equal(line, 4, 'the cursor is in another line');
      await text(page).fill(good);
      await page.locator('#editor-state.good').waitFor();
      assert.equal(await page.locator('#mistakes li.bad, #mistakes button.bad').count(), 0);
    });
  },

  async 'keys are completed'() {
    await visit({ path: '/#whatif' }, async (page) => {
      await page.locator('#editor-state.good').waitFor();
      await text(page).fill('- url: /\n  rules:\n  - name: a\n    al');
      await page.keyboard.press('Control+Space');
      await page.getByLabel('Keys').waitFor();
      await page.keyboard.press('Enter');
      assert.match(await text(page).inputValue(), / {4}al\w+: $/);
    });
  },

  async 'what if'() {
    let said = '';
    await visit({ path: '/#whatif' }, async (page) => {
      await page.locator('#editor-state.good').waitFor();
      await write(page, 'rpu: 2, algo: SW', 'rpu: 1, algo: SW');
      await page.locator('#replay').click();
      await page.locator('#refused-then').waitFor();
      const [now, then] = [await count(page, '#refused-now'), await count(page, '#refused-then')];
      assert.ok(then > now, `${now} refused now, ${then} then`);
      assert.ok((await page.locator('#notes li').count()) > 0, 'the result knows everything, although there are global rules');
      const result = await page.locator('#result').textContent();
      assert.match(result, /Would be refused, is allowed now: [1-9]/);
      assert.match(result, /search/);
      assert.ok((await page.locator('#result .diff li').count()) > 0, 'no difference');
      assert.match(await page.locator('#result figure.chart').getAttribute('aria-label'), /proposed [1-9]/);
      assert.ok((await page.locator('#result figure.chart canvas').boundingBox()).width > 300);
      said = `${now} refused now, ${then} under the proposed text`;
    });
    return said;
  },

  async 'push, and the other gateway has it'() {
    await visit({ path: '/#whatif' }, async (page) => {
      await page.locator('#editor-state.good').waitFor();
      await write(page, 'rpu: 2, algo: SW', 'rpu: 3, algo: SW');
      await page.getByRole('link', { name: 'Continue to push it' }).click();
      await page.locator('#editor-state.good').waitFor();
      assert.match(await text(page).inputValue(), /rpu: 3, algo: SW/);
      await page.locator('#comment').fill('<b>boots</b> are on sale');
      await page.locator('#by').fill('<script>alert(3)</script>');
      const before = await version(setting.b);
      await pushIt(page, /rule "search": rpu 2 → 3/);
      await signIn(page, { token: 'wrong' });
      await page.getByRole('alert').getByText('not that of').waitFor();
      assert.equal(await version(setting.b), before, 'a wrong token has pushed');
      await signIn(page);
      await becomes('another version at the other gateway', async () => (await version(setting.b)) !== before);
      await page.locator('#versions').getByText('<b>boots</b> are on sale').first().waitFor();
      await page.locator('#audit').getByText('push').first().waitFor();
    });
  },

  async 'two operators: one is told'() {
    await visit({ path: '/#change' }, async (page) => {
      await signIn(page);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      await page.locator('#editor-state.good').waitFor();
      await write(page, 'rpu: 3, algo: SW', 'rpu: 4, algo: SW');
      const { body: config } = await ask(setting.b, 'GET', '/config');
      const other = await ask(setting.b, 'POST', '/push', { text: config.text.replace('rpu: 20', 'rpu: 21'), expect: config.version, comment: 'meanwhile', by: 'bob' });
      assert.equal(other.status, 200, JSON.stringify(other.body));
      await pushIt(page, /rule "search": rpu 3 → 4/);
      await notice(page, /Somebody else has changed/);
      assert.match(await text(page).inputValue(), /rpu: 4, algo: SW/, 'the text is lost');
      const { body: after } = await ask(setting.b, 'GET', '/config');
      assert.match(after.text, /rpu: 21/);
    });
  },

  async 'roll back'() {
    await visit({ path: '/#change' }, async (page) => {
      await signIn(page);
      await page.locator('#versions tbody tr').nth(2).waitFor();
      await press(page.locator('#versions').getByRole('button', { name: /Roll back to number 1$/ }));
      await notice(page, /Rolled back/);
      const { body: config } = await ask(setting.b, 'GET', '/config');
      assert.match(config.text, /rpu: 20,/);
      assert.match(config.text, /rpu: 2, algo: SW/);
      await becomes('the version of the other gateway', async () => (await version(setting.b)) === config.version);
      await page.locator('#audit').getByText('rollback').first().waitFor();
    });
  },

  async 'one actor: reset'() {
    await visit({}, async (page) => {
      await signIn(page);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      await becomes('mallory is first', async () => /^mallory/.test(await page.locator('.top tbody tr').first().locator('th').textContent()));
      await page.locator('.top tbody tr').first().getByRole('link').click();
      await page.locator('#counters tbody tr').first().waitFor();
      await page.locator('#only-rule').fill('search');
      await page.getByRole('button', { name: 'Look' }).click();
      const row = page.locator('#counters tbody tr', { has: page.getByRole('rowheader', { name: 'search', exact: true }) });
      await press(row.getByRole('button', { name: /Reset mallory/ }));
      await notice(page, /The counter of rule search is reset/);
      const { body: live } = await ask(setting.a, 'GET', '/live?rules=1');
      assert.ok(live.events.some((e) => e.kind === 'reset'), 'the time line has no reset');
    });
  },

  async 'one actor: exempt, in both gateways'() {
    await visit({ path: '/#actor?actor=mallory&rule=search' }, async (page) => {
      await signIn(page);
      await page.goto(`${setting.a}/#actor?actor=mallory&rule=search`);
      const row = page.locator('#counters tbody tr', { has: page.getByRole('rowheader', { name: 'search', exact: true }) });
      await row.waitFor();
      assert.match(await row.textContent(), /\d+ \/ 2/, 'what is left');
      await press(row.getByRole('button', { name: /Exempt mallory from rule search/ }));
      await notice(page, /does not count mallory until/);
      for (const gateway of [setting.a, setting.b]) {
        await becomes('the exemption', async () => (await ask(gateway, 'GET', '/actor?actor=mallory&rule=search')).body.rules[0].excepted);
      }
      const { body: config } = await ask(setting.b, 'GET', '/config');
      assert.match(config.text, /"mallory": \{exempt: true, until: /);
    });
  },

  async 'without a remote configuration there is a download'() {
    await visit({ url: setting.many, path: '/#change' }, async (page) => {
      await page.locator('#blocked:not([hidden])').waitFor();
      assert.ok(await page.locator('#push').isDisabled());
      await text(page).fill('url: /\nrules: [{rpu: 1}]\n');
      const [file] = await Promise.all([page.waitForEvent('download'), page.locator('#download').click()]);
      assert.equal(file.suggestedFilename(), 'diana.yaml');
      assert.equal(readFileSync(await file.path(), 'utf8'), 'url: /\nrules: [{rpu: 1}]\n');
    });
  },
};
