// The page that `haulier bench` leaves: in light and dark, on a phone, on paper, without a script and from no server.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { faint } from './contrast.js';
import { PATIENCE, browser, program } from './fixture.js';

// Two targets of one small server, compared; the page and the document beside it.
async function measured(t, connections) {
  const server = createServer((request, response) => {
    setTimeout(() => response.end('the same page'), request.url === '/slow' ? 6 : 0);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const directory = mkdtempSync(join(tmpdir(), 'haulier-report-'));
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(directory, { recursive: true });
  });
  const at = `http://127.0.0.1:${server.address().port}`;
  const shape = ['-n', '60', '-c', connections, '--rounds', '3', '--warmup', '10ms', '--pid', String(process.pid)];
  const files = ['-o', join(directory, 'report.html'), '--json', join(directory, 'run.json')];
  await promisify(execFile)(program, ['bench', ...shape, ...files, `quick=${at}/quick`, `slow=${at}/slow`]);
  return { directory, page: join(directory, 'report.html') };
}

async function open(t, page, options) {
  const context = await (await browser(t)).newContext(options);
  context.setDefaultTimeout(PATIENCE);
  const tab = await context.newPage();
  const complaints = [];
  const requests = [];
  tab.on('console', (message) => complaints.push(message.text()));
  tab.on('pageerror', (error) => complaints.push(String(error)));
  tab.on('request', (request) => requests.push(request.url()));
  await tab.goto(`file://${page}`);
  return { tab, complaints, requests };
}

test('the report reads well in light and dark, on a desk and on a phone', { timeout: 240_000 }, async (t) => {
  const { page } = await measured(t, '4');
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1280, 390]) {
      const shape = { colorScheme, viewport: { width, height: 900 } };
      const { tab, complaints, requests } = await open(t, page, shape);
      assert.deepEqual(complaints, [], `${colorScheme} ${width}`);
      assert.deepEqual(requests, [`file://${page}`], 'nothing is loaded');
      const beyond = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(beyond <= 0, `${colorScheme} ${width}: ${beyond} px sideways`);
      assert.deepEqual(await tab.evaluate(faint), [], `${colorScheme} ${width}`);
    }
  }
});

test('everything in the report can be read without seeing it', { timeout: 240_000 }, async (t) => {
  const { page } = await measured(t, '4');
  const { tab } = await open(t, page, { javaScriptEnabled: false });
  assert.match(await tab.getByRole('heading', { level: 1 }).innerText(), /slow|difference/i);
  const table = tab.getByRole('table').filter({ has: tab.getByRole('rowheader', { name: 'requests/s' }) }).first();
  assert.equal(await table.getByRole('columnheader', { name: 'slow' }).count(), 1);
  for (const chart of await tab.locator('svg.chart').all()) {
    assert.equal(await chart.getAttribute('role'), 'img');
    assert.ok((await chart.locator('title').first().textContent()).length > 5, 'a chart has a name');
  }
  assert.equal(await tab.getByRole('img', { name: 'Time by percentile' }).count(), 1);
  await tab.getByText('All percentiles').click();
  assert.ok(await tab.getByRole('rowheader', { name: '99.9 %' }).isVisible(), 'the figures of the chart');
});

test('printed it has two pages', { timeout: 240_000 }, async (t) => {
  const { page } = await measured(t, '4');
  const { tab } = await open(t, page, {});
  const pdf = (await tab.pdf({ preferCSSPageSize: true })).toString('latin1');
  const pages = pdf.match(/\/Type\s*\/Page[^s]/g).length;
  assert.ok(pages <= 2, `${pages} pages`);
});

test('a sweep has its curves, and the data in the page is that of the file', { timeout: 240_000 }, async (t) => {
  const { directory, page } = await measured(t, '1,4,12');
  const { tab, complaints } = await open(t, page, { viewport: { width: 390, height: 800 } });
  assert.deepEqual(complaints, []);
  assert.equal(await tab.getByRole('img', { name: 'Requests a second by connections' }).count(), 1);
  const again = join(directory, 'again.json');
  execFileSync(program, ['bench', 'report', page, '-o', again]);
  assert.deepEqual(JSON.parse(readFileSync(again, 'utf8')), JSON.parse(readFileSync(join(directory, 'run.json'), 'utf8')));
});
