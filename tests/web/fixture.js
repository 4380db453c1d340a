// A real haulier and a real browser for one test each. Both are closed whatever the test does: a browser left behind
// would keep the runner waiting.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

export const program = process.env.HAULIER ?? new URL('../../target/debug/haulier', import.meta.url).pathname;

// How long a page may take for anything, milliseconds. A machine with little to give makes a browser slow.
export const PATIENCE = 60_000;

// A copy of a directory that PHP may write to, with what its links point to.
export function copy(t, from) {
  const directory = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  t.after(() => rmSync(directory, { recursive: true }));
  execFileSync('chmod', ['755', directory]);
  execFileSync('cp', ['-rL', from, join(directory, 'copy')]);
  execFileSync('chmod', ['-R', 'a+rwX', join(directory, 'copy')]);
  return join(directory, 'copy');
}

// Starts `haulier run` for this project, with these further lines of its site, and gives the address it printed.
export async function serve(t, root, more = '') {
  return (await start(t, root, more)).address;
}

// The same with further lines of `[server]`; gives the addresses of site and dashboard, that with TLS where there is one,
// and what ends it before the test's end.
export async function start(t, root, more = '', server = '') {
  const directory = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  const config = join(directory, 'haulier.toml');
  const site = `[site.web]\nroot = ${JSON.stringify(root)}\n${more}\n`;
  const spool = `spool_dir = ${JSON.stringify(directory)}\n`;
  writeFileSync(config, `[server]\nhttp = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\ngrace = "1s"\n${spool}${server}\n${site}`);
  const running = spawn(program, ['run', '-c', config], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise((resolve) => running.once('exit', resolve));
  const stop = async () => {
    running.kill('SIGTERM');
    await ended;
  };
  t.after(async () => {
    await stop();
    rmSync(directory, { recursive: true });
  });
  const lines = [];
  for (const stream of [running.stdout, running.stderr]) {
    const reader = createInterface({ input: stream });
    stream.addresses = new Promise((resolve) => {
      reader.on('line', (line) => {
        lines.push(line);
        const site = line.match(/"listen":\["([^"]+)"/);
        const admin = line.match(/"admin":"([^"]+)"/);
        const secure = line.match(/"https":\["([^"]+)"/)?.[1];
        if (site && admin) resolve({ address: `http://${site[1]}`, admin: `http://${admin[1]}/`, secure, stop });
      });
    });
  }
  const failed = ended.then(() => { throw new Error(`haulier did not start:\n${lines.join('\n')}`); });
  return Promise.race([running.stdout.addresses, running.stderr.addresses, failed]);
}

// A browser for one test.
export async function browser(t) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
    timeout: 2 * PATIENCE,
  });
  t.after(() => browser.close());
  return browser;
}

// A page of a fresh browser, and what it complained about.
export async function open(t, acceptEncoding) {
  const context = await (await browser(t)).newContext();
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('requestfailed', (request) => {
    const why = request.failure()?.errorText;
    // The page went on and needs it no more: nobody's fault. What a server breaks off has other names.
    if (why !== 'net::ERR_ABORTED') complaints.push(`${request.url()}: ${why}`);
  });
  if (acceptEncoding) await page.setExtraHTTPHeaders({ 'Accept-Encoding': acceptEncoding });
  return { page, complaints };
}
