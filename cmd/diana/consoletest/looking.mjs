// SPDX-License-Identifier: MIT

// What an operator sees: the state, without and with JavaScript, at both sizes, in both themes and languages.

import assert from 'node:assert/strict';
import { accessible, ask, becomes, picture, setting, signIn, visit } from './browser.mjs';

const sizes = [360, 1920];
const themes = ['light', 'dark'];
const firstActor = (page) => page.locator('.top tbody tr').first().locator('th');

export const looking = {
  async 'the most refused actor is in the first screen'() {
    const took = [];
    for (const width of sizes) {
      await visit({ width }, async (page) => {
        const began = Date.now();
        await page.locator('.top tbody tr').first().waitFor();
        took.push(Date.now() - began);
        await becomes('mallory is first', async () => /^mallory/.test(await firstActor(page).textContent()));
        const box = await firstActor(page).boundingBox();
        assert.ok(box.y + box.height < page.viewportSize().height, `it is at ${box.y}`);
      });
    }
    return `shown after ${took.join(' and ')} ms`;
  },

  async 'numbers change by themselves'() {
    await visit({}, async (page) => {
      const count = page.locator('.top tbody tr').first().locator('td').nth(1);
      await count.waitFor();
      const before = await count.textContent();
      await becomes('another count', async () => (await count.textContent()) !== before);
      await becomes('two gateways', async () => (await page.locator('dl.facts').textContent()).includes('Gateways2'));
      assert.match(await page.locator('dl.facts').textContent(), /Redis\s*reached/);
    });
  },

  async 'minutes of the fleet'() {
    await visit({}, async (page) => {
      const panel = page.locator('section', { has: page.getByRole('heading', { name: 'By minute' }) });
      await becomes('a minute of the fleet', async () => / allowed, /.test(await panel.textContent()), 130_000);
      const { body: fleet } = await ask(setting.a, 'GET', '/fleet');
      assert.equal(fleet.available, true, fleet.reason);
      await becomes('both gateways', async () => /All gateways with this Redis: 2 /.test(await panel.textContent()));
    });
  },

  async 'rules are filtered and paged'() {
    await visit({}, async (page) => {
      const rules = page.locator('section', { has: page.getByRole('heading', { name: 'Rules' }) });
      await becomes('64 rules', async () => (await rules.textContent()).includes('1 to 50 of 64'));
      await rules.getByRole('button', { name: 'Next rules' }).click();
      await becomes('the second page', async () => (await rules.textContent()).includes('51 to 64 of 64'));
      assert.equal(await rules.locator('tbody tr').count(), 14);
      await rules.getByLabel('Filter').fill('section-07');
      await becomes('one rule', async () => (await rules.locator('tbody tr').count()) === 1);
      await becomes('its allowed requests', async () => (await rules.locator('tbody tr td').nth(3).textContent()) !== '0');
      await rules.getByLabel('Filter').fill('no such rule');
      await becomes('none', async () => (await rules.textContent()).includes('No rule matches'));
    });
  },

  async 'without JavaScript'() {
    for (const width of sizes) {
      await visit({ width, javaScriptEnabled: false }, async (page) => {
        assert.equal(await page.locator('tbody').first().locator('tr').first().locator('th').textContent(), 'mallory');
        await page.getByLabel('Filter').fill('section-07');
        await page.getByRole('button', { name: 'Filter' }).click();
        assert.equal(await page.locator('tbody').last().locator('tr').count(), 1);
        await page.getByRole('link', { name: '中文' }).click();
        assert.equal(await page.locator('h2').first().textContent(), '最近十分钟被拒绝最多');
      });
    }
  },

  async 'languages and themes'() {
    await visit({ locale: 'zh-CN' }, async (page) => {
      await page.getByRole('heading', { name: '最近十分钟被拒绝最多' }).waitFor();
      await page.getByRole('link', { name: 'English' }).click();
      await page.getByRole('heading', { name: 'Most refused, last ten minutes' }).waitFor();
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await ground();
      await page.getByLabel('Theme').selectOption('dark');
      assert.notEqual(await ground(), light);
      await page.reload();
      await page.getByRole('heading', { name: 'Most refused, last ten minutes' }).waitFor();
      assert.notEqual(await ground(), light, 'the theme is forgotten');
    });
    await visit({ theme: 'dark' }, async (page) => {
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(244, 245, 248)');
    });
  },

  async 'by keyboard alone'() {
    await visit({}, async (page) => {
      await page.locator('.top tbody tr').first().waitFor();
      const focused = () => page.evaluate(() => `${document.activeElement.tagName} ${document.activeElement.textContent}`);
      const reach = async (want) => {
        for (let i = 0; i < 60; i += 1) {
          await page.keyboard.press('Tab');
          if ((await focused()) === want) return;
        }
        assert.fail(`Tab does not reach ${want}`);
      };
      await page.keyboard.press('Tab');
      assert.equal(await focused(), 'A Skip to the content');
      await reach('BUTTON Sign in');
      await page.keyboard.press('Enter');
      await page.keyboard.type(setting.token);
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      await page.reload();
      await reach('A What if');
      await page.keyboard.press('Enter');
      await page.locator('textarea').waitFor();
      await reach('BUTTON Open the configuration in force');
      await reach('TEXTAREA ');
      await page.keyboard.press('Tab');
      assert.doesNotMatch(await focused(), /^TEXTAREA/, 'the text area keeps the focus');
    });
  },

  async 'axe finds nothing serious, and pictures'() {
    let minor = 0;
    for (const width of sizes) {
      for (const theme of themes) {
        await visit({ width, theme, bypassCSP: true }, async (page) => {
          await becomes('numbers', async () => /^mallory/.test(await firstActor(page).textContent()));
          minor += await accessible(page, `live ${width} ${theme}`);
          await picture(page, `live-${width}-${theme}`);
          await signIn(page);
          await page.getByRole('button', { name: 'Sign out' }).waitFor();

          await page.getByRole('link', { name: 'What if', exact: true }).click();
          await page.locator('#editor-state.good').waitFor();
          await page.locator('textarea').fill((await page.locator('textarea').inputValue()).replace('rpu: 2, algo: SW', 'rpu: 1, algo: SW'));
          await page.locator('#editor-state.good').waitFor();
          await page.locator('#replay').click();
          await page.locator('#refused-then').waitFor();
          minor += await accessible(page, `what if ${width} ${theme}`);
          await page.locator('#result').scrollIntoViewIfNeeded();
          await page.evaluate(() => document.getElementById('result').scrollIntoView());
          await picture(page, `what-if-${width}-${theme}`);

          await page.getByRole('link', { name: 'Change', exact: true }).click();
          await page.locator('#versions :is(table, p)').first().waitFor();
          minor += await accessible(page, `change ${width} ${theme}`);
          await picture(page, `change-${width}-${theme}`);

          await page.getByRole('link', { name: 'Actor', exact: true }).click();
          await page.locator('#actor').fill('mallory');
          await page.locator('#only-rule').fill('search');
          await page.getByRole('button', { name: 'Look' }).click();
          await page.locator('#counters tbody tr').first().waitFor();
          minor += await accessible(page, `actor ${width} ${theme}`);
          await picture(page, `actor-${width}-${theme}`);
        });
      }
    }
    return `${minor} lesser remarks`;
  },

  async 'ten thousand rules'() {
    let said = '';
    await visit({ url: setting.many }, async (page) => {
      await becomes('10,000 rules', async () => (await page.locator('main').textContent()).includes('of 10,000 rules'));
      const figures = await page.evaluate(() => new Promise((done) => {
        const frames = [];
        const tasks = [];
        new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration))).observe({ entryTypes: ['longtask'] });
        let made = 0;
        const seen = new MutationObserver((list) => { for (const m of list) made += m.addedNodes.length; });
        seen.observe(document.querySelector('main'), { childList: true, subtree: true });
        let last = performance.now();
        const frame = (now) => {
          frames.push(now - last);
          last = now;
          if (frames.length < 600) requestAnimationFrame(frame);
          else done({ worst: Math.max(...frames.slice(1)), long: Math.max(0, ...tasks), made });
        };
        requestAnimationFrame(frame);
      }));
      assert.ok((await page.locator('tr').count()) < 90, 'the page has more rows than it shows');
      said = `of 600 frames the longest took ${figures.worst.toFixed(0)} ms, the longest task ${figures.long.toFixed(0)} ms`;
    });
    return said;
  },
};
