// Chromium decodes what haulier codes, whole pages with all they load.

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import test from 'node:test';
import { copy, open, serve } from './fixture.js';

const example = new URL('../../examples/site', import.meta.url).pathname;

// The wiki as Debian packages it, in copies: /etc and /var stay as they are.
function wiki(t) {
  const [root, conf, data] = ['/usr/share/dokuwiki', '/etc/dokuwiki', '/var/lib/dokuwiki/data'].map((from) => copy(t, from));
  writeFileSync(`${root}/inc/preload.php`, `<?php if (!defined('DOKU_CONF')) define('DOKU_CONF', '${conf}/');`);
  writeFileSync(`${conf}/local.php`, `<?php $conf['savedir'] = '${data}'; $conf['useacl'] = 0; $conf['updatecheck'] = 0;`);
  return root;
}

const projects = [
  { name: 'the example site', installed: example, project: () => example, path: '/' },
  { name: 'DokuWiki', installed: '/usr/share/dokuwiki', project: wiki, path: '/doku.php' },
];

for (const { name, installed, project, path } of projects) {
  for (const coding of ['zstd', 'br', 'gzip']) {
    test(`${name} in ${coding} loads without a complaint`, { timeout: 240_000 }, async (t) => {
      if (!existsSync(installed)) return t.skip(`${installed} is not installed`);
      // Over plain HTTP browsers offer gzip only, but read every coding: the server is told to use this one.
      const address = await serve(t, project(t));
      const { page, complaints } = await open(t, coding);
      const codings = new Map();
      page.on('response', (response) => {
        const found = response.headers()['content-encoding'];
        if (found) codings.set(response.url(), found);
      });
      const response = await page.goto(address + path, { waitUntil: 'networkidle' });
      assert.equal(response.status(), 200);
      assert.equal(response.headers()['content-encoding'], coding);
      assert.match(response.headers().vary ?? '', /accept-encoding/i);
      assert.ok((await page.locator('body').innerText()).length > 100, 'a page with words');
      assert.deepEqual([...new Set(codings.values())], [coding], 'every part that is coded');
      assert.deepEqual(complaints, []);
    });
  }
}
