// Chromium speaks HTTP/2 with haulier: many things at once, uploads, events, long files.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { PATIENCE, browser, start } from './fixture.js';

const parts = 60;

const script = `(async () => {
  const part = async (number) => Number(await (await fetch('part-' + number + '.txt')).text());
  const numbers = await Promise.all(Array.from({ length: ${parts} }, (_, number) => part(number)));
  const told = await (await fetch('tell.php', { method: 'POST', body: new Uint8Array(3_000_000) })).text();
  const events = await new Promise((resolve) => {
    const got = [];
    const source = new EventSource('events.php');
    source.onmessage = (event) => {
      if (got.push(event.data) === 3) { source.close(); resolve(got.join(' ')); }
    };
  });
  const large = (await (await fetch('large.bin')).arrayBuffer()).byteLength;
  document.title = JSON.stringify({ sum: numbers.reduce((sum, number) => sum + number), told, events, large });
})();`;

// A page that asks for all of it.
function project(t) {
  const root = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  t.after(() => rmSync(root, { recursive: true }));
  chmodSync(root, 0o755);
  const files = {
    'index.html': '<!doctype html><title>loading</title><link rel="icon" href="data:,"><p>many</p><script src="many.js"></script>',
    'many.js': script,
    'large.bin': 'x'.repeat(5_000_000),
    'tell.php': "<?php echo $_SERVER['SERVER_PROTOCOL'], ' ', strlen(file_get_contents('php://input'));",
    'events.php': `<?php header('Content-Type: text/event-stream'); while (ob_get_level()) ob_end_flush();
      for ($i = 0; $i < 3; $i++) { echo "data: $i\\n\\n"; flush(); usleep(50000); } sleep(30);`,
  };
  for (let number = 0; number < parts; number++) files[`part-${number}.txt`] = String(number);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(root, name), content);
  return root;
}

test('a page with sixty parts, an upload, events and a long file comes over HTTP/2', { timeout: 240_000 }, async (t) => {
  const root = project(t);
  const state = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  t.after(() => rmSync(state, { recursive: true }));
  const more = `hosts = ["localhost"]\n[site.web.tls]\nmode = "local"\n[tls]\nstate = ${JSON.stringify(state)}`;
  const { secure } = await start(t, root, more, 'https = "127.0.0.1:0"');
  const context = await (await browser(t)).newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(`https://localhost:${secure.split(':').pop()}/`);
  await page.waitForFunction(() => document.title.startsWith('{'));
  assert.deepEqual(JSON.parse(await page.title()), {
    sum: (parts * (parts - 1)) / 2,
    told: 'HTTP/2.0 3000000',
    events: '0 1 2',
    large: 5_000_000,
  });
  const protocols = await page.evaluate(() => {
    const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    return entries.map((entry) => entry.nextHopProtocol);
  });
  assert.ok(protocols.length > parts, `${protocols.length} things were loaded`);
  assert.deepEqual([...new Set(protocols)], ['h2']);
  assert.deepEqual(complaints, []);
});
