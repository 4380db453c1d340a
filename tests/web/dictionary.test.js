// Chromium keeps what it is told to keep, names it, and reads what is coded with it (RFC 9842).

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { open, serve } from './fixture.js';

function site(t, files) {
  const directory = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  t.after(() => rmSync(directory, { recursive: true }));
  chmodSync(directory, 0o755); // PHP runs as somebody else
  mkdirSync(join(directory, 'assets'));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  return directory;
}

// What another client gets that holds this dictionary.
function codingFor(url, dictionary) {
  const hash = createHash('sha256').update(dictionary).digest('base64');
  const headers = { 'Accept-Encoding': 'br, dcz', 'Available-Dictionary': `:${hash}:` };
  return new Promise((resolve, reject) => {
    request(url, { headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.headers['content-encoding']));
    }).on('error', reject).end();
  });
}

async function until(what, isTrue) {
  for (let tries = 0; tries < 300; tries += 1) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`never: ${what}`);
}

const words = Array.from({ length: 4000 }, (_, number) => `word${(number * 7919) % 104729}`).join(' ');
const script = (version) => `/* ${words} */\ndocument.title = ${JSON.stringify(version)};\n`;

test('the next version of a script comes as what it has over the last', { timeout: 240_000 }, async (t) => {
  const [first, second] = [script('first'), script('second')];
  const root = site(t, {
    'assets/app.3f9ab12c.js': first,
    'assets/app.77b1c0de.js': second,
    'first.html': '<!doctype html><title>-</title><link rel=icon href="data:,"><script src="/assets/app.3f9ab12c.js"></script>',
    'second.html': '<!doctype html><title>-</title><link rel=icon href="data:,"><script src="/assets/app.77b1c0de.js"></script>',
  });
  const more = 'app = "static"\ncache = { "/assets/*" = "1h" }\ndictionary = { static = "previous" }';
  const address = await serve(t, root, more);
  const { page, complaints } = await open(t);
  const responses = new Map();
  page.on('response', (response) => responses.set(new URL(response.url()).pathname, response));

  await page.goto(`${address}/first.html`, { waitUntil: 'networkidle' });
  assert.equal(await page.title(), 'first');
  const before = await responses.get('/assets/app.3f9ab12c.js').allHeaders();
  assert.equal(before['use-as-dictionary'], 'match="/assets/app.*.js"');

  const url = `${address}/assets/app.77b1c0de.js`;
  await until('a difference is made', async () => (await codingFor(url, first)) === 'dcz');
  await page.goto(`${address}/second.html`, { waitUntil: 'networkidle' });
  assert.equal(await page.title(), 'second', 'it was decoded and ran');
  const response = responses.get('/assets/app.77b1c0de.js');
  const asked = await response.request().allHeaders();
  assert.match(asked['accept-encoding'], /dcz/);
  assert.match(asked['available-dictionary'], /^:[A-Za-z0-9+/]{43}=:$/);
  assert.equal((await response.allHeaders())['content-encoding'], 'dcz');
  assert.deepEqual(complaints, []);
});

test('a page comes as what it has over the shell of its route', { timeout: 240_000 }, async (t) => {
  const root = site(t, {
    'index.php': `<!doctype html><title><?= $_SERVER['REQUEST_URI'] ?></title><link rel=icon href="data:,"><p>${words}`,
  });
  const more = 'app = "plain"\nfront = "index.php"\ndictionary = { pages = { "/wiki/*" = "/wiki/Main" } }';
  const address = await serve(t, root, more);
  const { page, complaints } = await open(t);
  const fetched = page.waitForEvent('requestfinished', (request) => request.url().includes('/haulier/dictionary/'));
  await until('the shell is known', async () => {
    const response = await page.goto(`${address}/wiki/First`);
    return 'link' in (await response.allHeaders());
  });
  // The browser fetches the dictionary when it has time; who leaves the page before that has it break off.
  await fetched;
  let coding;
  await until('a page in dcz', async () => {
    const response = await page.goto(`${address}/wiki/Second`, { waitUntil: 'networkidle' });
    coding = (await response.allHeaders())['content-encoding'];
    return coding === 'dcz';
  });
  assert.equal(await page.title(), '/wiki/Second');
  assert.ok((await page.locator('p').innerText()).endsWith(words.slice(-40)));
  assert.deepEqual(complaints, []);
});
