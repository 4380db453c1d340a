// The dashboard as a browser shows it: live, in light and dark, on a desk, a telephone and paper.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync, chmodSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { PATIENCE, browser, start } from './fixture.js';

const scripts = {
  'index.php': "<?php echo 'hello';",
  'boom.php': "<?php error_log('PHP Fatal error: <b>no such table</b>'); http_response_code(500);",
  'export.php': "<?php header('Content-Type: application/pdf'); for ($i = 0; $i < 40; $i++) echo random_bytes(65536);",
  'wait.php': "<?php for ($i = 0; $i < 12000 && !file_exists(__DIR__ . '/go'); $i++) { usleep(10000); clearstatcache(); }",
};

// A project with these scripts, and something of everything that the page shows.
async function site(t) {
  const directory = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  t.after(() => rmSync(directory, { recursive: true }));
  chmodSync(directory, 0o755);
  for (const [name, text] of Object.entries(scripts)) writeFileSync(join(directory, name), text);
  writeFileSync(join(directory, 'film.bin'), Buffer.alloc(200_000_000));
  const server = await start(t, directory);
  // Somebody who takes a download slowly for the whole test.
  const slow = connect(new URL(server.address).port, '127.0.0.1');
  slow.write('GET /film.bin HTTP/1.1\r\nHost: web\r\n\r\n');
  slow.on('error', () => {}); // it is cut off when the server stops
  const reading = setInterval(() => slow.read(), 20);
  t.after(() => {
    clearInterval(reading);
    slow.destroy();
  });
  for (const path of ['/', '/boom.php', '/export.php', '/missing']) await (await fetch(server.address + path)).text();
  return { ...server, directory };
}

// A page in a fresh browser, with all it complained about and asked for.
async function look(t, url, options = {}) {
  const context = await (await browser(t)).newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complaints = [];
  const asked = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(url);
  return { page, complaints, asked };
}

test('the page has its parts by name, asks nobody else and complains of nothing', { timeout: 180_000 }, async (t) => {
  const { address, admin } = await site(t);
  const { page, complaints, asked } = await look(t, admin);
  await page.getByRole('heading', { level: 1 }).waitFor();
  for (const name of ['PHP', 'Traffic', 'Downloads', 'Requests', 'Sites']) {
    assert.equal(await page.getByRole('heading', { name, exact: true, level: 2 }).count(), 1, name);
  }
  for (const name of [/^Busy workers and queue/, /^Requests per second/, /^Response time/]) {
    assert.equal(await page.getByRole('img', { name }).count(), 1, `${name}`);
    assert.equal(await page.getByRole('table', { name }).count(), 1, `${name} in figures`);
  }
  const failed = page.getByRole('table', { name: 'The last requests that failed, by UTC' });
  await failed.getByRole('rowheader', { name: /php_error/ }).waitFor();
  assert.match(await failed.innerText(), /PHP Fatal error: <b>no such table<\/b>/);
  const rule = page.getByText('[site.web.offload] types = ["application/pdf"]');
  await rule.waitFor();
  await page.getByRole('table', { name: 'On the way' }).getByRole('rowheader', { name: '/film.bin web' }).waitFor();
  await page.waitForTimeout(2500);
  assert.ok(asked.length > 1, 'it has asked again');
  assert.deepEqual([...new Set(asked.map((url) => new URL(url).origin))].filter((origin) => origin !== 'null'), [new URL(admin).origin]);
  assert.deepEqual(complaints, []);
  assert.ok(address !== admin);
});

test('a real request shows up without a reload, and a selection stays', { timeout: 180_000 }, async (t) => {
  const { address, admin, directory } = await site(t);
  const { page, complaints } = await look(t, admin);
  await page.getByText('New figures each second.').waitFor();
  const selected = await page.evaluate(() => {
    getSelection().selectAllChildren(document.querySelector('#downloads code.rule'));
    return String(getSelection());
  });
  const answer = fetch(`${address}/wait.php`);
  await page.locator('#php li.long', { hasText: 'GET /wait.php' }).waitFor();
  writeFileSync(join(directory, 'go'), '');
  await answer;
  await page.locator('#requests', { hasText: 'GET /wait.php' }).waitFor();
  assert.equal(await page.evaluate(() => String(getSelection())), selected);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('Paused.').waitFor();
  const before = await page.locator('#facts').innerText();
  await page.waitForTimeout(2500);
  assert.equal(await page.locator('#facts').innerText(), before, 'paused is paused');
  assert.deepEqual(complaints, []);
});

test('a server that has gone is said to be gone', { timeout: 180_000 }, async (t) => {
  const { admin, stop } = await site(t);
  const { page } = await look(t, admin);
  await page.getByText('New figures each second.').waitFor();
  await stop();
  await page.getByText('haulier does not answer').waitFor();
});

test('without JavaScript the page is the same', { timeout: 180_000 }, async (t) => {
  const { admin } = await site(t);
  const { page, complaints } = await look(t, admin, { javaScriptEnabled: false });
  assert.equal(await page.getByRole('heading', { level: 2 }).count() >= 5, true);
  await page.getByText('Reload for newer figures.').waitFor();
  await page.getByRole('link', { name: '24 hours' }).click();
  await page.getByText('−24 h').first().waitFor();
  assert.deepEqual(complaints, []);
});

// The least contrast of any text with what is behind it (WCAG 2.2, 1.4.3), and whose it is.
const leastContrast = () => {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if ((color[3] ?? 1) > 0) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = { ratio: 21, text: '' };
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('script, title, desc')) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(element.closest('svg') ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < least.ratio) least = { ratio, text: walker.currentNode.data };
  }
  return { ...least, seen };
};

for (const colorScheme of ['light', 'dark']) {
  for (const width of [1280, 390]) {
    test(`${colorScheme} at ${width} px: nothing to scroll sideways, and all text is easy to read`, { timeout: 180_000 }, async (t) => {
      const { admin } = await site(t);
      const { page } = await look(t, admin, { colorScheme, viewport: { width, height: 900 } });
      await page.getByText('/film.bin').waitFor();
      const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= window, `${wide} px in ${window}`);
      const least = await page.evaluate(leastContrast);
      assert.ok(least.seen > 60, `${least.seen} texts`);
      assert.ok(least.ratio >= 4.5, `${least.ratio} for ${least.text}`);
      const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)[0]);
      assert.equal(background < 100, colorScheme === 'dark');
    });
  }
}

test('on paper it is a few pages of ink on white', { timeout: 180_000 }, async (t) => {
  const { admin } = await site(t);
  const { page } = await look(t, admin, { colorScheme: 'dark' });
  const paper = await page.pdf({ format: 'A4' });
  const pages = paper.toString('latin1').match(/\/Type\s*\/Page\b/g).length;
  assert.ok(pages >= 1 && pages <= 3, `${pages} pages`);
  await page.emulateMedia({ media: 'print' });
  const [ink, hidden] = await page.evaluate(() => [
    getComputedStyle(document.body).color,
    getComputedStyle(document.querySelector('nav')).display,
  ]);
  assert.equal(ink, 'rgb(0, 0, 0)');
  assert.equal(hidden, 'none');
});
