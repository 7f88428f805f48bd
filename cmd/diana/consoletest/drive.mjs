// SPDX-License-Identifier: MIT

// What an operator and an attacker do with the console, one step after another. The last line says how many
// steps passed.

import { browser, setting } from './browser.mjs';
import { looking } from './looking.mjs';
import { changing } from './changing.mjs';
import { attacking } from './attacking.mjs';

let passed = 0;
let failed = 0;
for (const [name, run] of Object.entries({ ...looking, ...changing, ...attacking })) {
  if (!name.includes(setting.step)) continue;
  const began = Date.now();
  try {
    const said = await run();
    passed += 1;
    console.log(`ok      ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)${said ? `: ${said}` : ''}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}: ${error.stack}`);
  }
}
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
