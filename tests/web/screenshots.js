// The pictures of README.md, from a haulier that serves examples/site: the dashboard, the image page and a report of
// `haulier bench`, each in light and dark. `make screenshots` runs it; MINUTES says how long the dashboard is fed.

import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const project = new URL('../..', import.meta.url).pathname;
const program = process.env.HAULIER ?? join(project, 'target/release/haulier');
const minutes = Number(process.env.MINUTES ?? 16);
const pictures = join(project, 'docs/images');
const directory = mkdtempSync(join(tmpdir(), 'haulier-pictures-'));
const children = [];

// Starts `haulier run` with this configuration and gives its addresses.
async function serve(name, config) {
  const file = join(directory, `${name}.toml`);
  writeFileSync(file, `[server]\nhttp = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\ncontrol = "${directory}/${name}.sock"\n${config}`);
  const child = spawn(program, ['run', '-c', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  for await (const line of createInterface({ input: child.stderr })) {
    const [site, admin] = [line.match(/"listen":\["([^"]+)"/), line.match(/"admin":"([^"]+)"/)];
    if (site && admin) {
      child.stderr.resume();
      return { address: `http://${site[1]}`, admin: `http://${admin[1]}/`, pid: child.pid };
    }
  }
  throw new Error(`haulier did not start with ${file}`);
}

// What visitors of the example site do for some minutes: pages, files, pictures, downloads over slow lines.
function visit(address) {
  const list = join(directory, 'visits');
  writeFileSync(list, ['6 /', '4 /?shelf={Rope|Light}', '3 /item.php?id={hemp-rope|storm-lantern|tide-clock|oilskin}', '8 /assets/{style.css|harbour.svg|anchor.svg}',
    '2 /tides.php', '1 /slow.php?s=0.4', '4 /photos/parrots.jpg?w={200|320|480}&f=auto'].join('\n'));
  // A minute more than it takes, so that there is life in the picture.
  const length = ['--duration', `${(minutes + 1) * 60}s`, '-q', '--json', '/dev/null', '--accept', 'zstd, br, gzip'];
  const load = (...more) => children.push(spawn(program, ['bench', ...length, ...more, address], { stdio: 'ignore' }));
  load('--urls', list, '--rate', '25/s', '--arrivals', 'poisson', '-c', '60');
  children.push(spawn(program, ['bench', ...length, '-c', '5', '--read', '150KB/s', `${address}/download.php`], { stdio: 'ignore' }));
}

async function report(pages) {
  const target = async (workers) => {
    const server = await serve(`w${workers}`, `[site.a]\nroot = "${pages}"\napp = "plain"\n[pool.php]\nworkers = ${workers}\n`);
    return { server, argument: `${workers === 4 ? 'four' : 'eight'}=${server.address}/page.php` };
  };
  const [four, eight] = [await target(4), await target(8)];
  const pids = [four, eight].flatMap(({ server, argument }) => ['--pid', `${argument.split('=')[0]}=${server.pid}`]);
  const page = join(directory, 'report.html');
  await promisify(execFile)(program, ['bench', '-c', '12', '--rounds', '6', '--slice', '1500ms', ...pids, '-o', page, '--json', join(directory, 'run.json'),
    four.argument, eight.argument]);
  return `file://${page}`;
}

// One page in light and dark, cut to what README.md shows of it.
async function take(browser, name, height, open, colours = ['-dither', 'None', '-colors', '128']) {
  for (const colorScheme of ['light', 'dark']) {
    const page = await browser.newPage({ colorScheme, viewport: { width: 1180, height }, deviceScaleFactor: 1 });
    await open(page);
    const file = join(pictures, `${name}-${colorScheme}.png`);
    await page.screenshot({ path: file });
    await page.close();
    // A palette is enough for pages, and a third of the bytes.
    await promisify(execFile)('convert', [file, '-strip', ...colours, `PNG8:${file}`]);
  }
}

async function dropPhoto(page) {
  await page.setInputFiles('#file', join(project, 'crates/haulier-image/tests/photos/parrots.jpg'));
  await page.waitForFunction(() => {
    const facts = [...document.querySelectorAll('.card .name span')];
    return facts.length > 0 && facts.every((fact) => / × /.test(fact.textContent));
  });
  await page.waitForLoadState('networkidle');
}

async function main() {
  mkdirSync(pictures, { recursive: true });
  const site = join(directory, 'site');
  await promisify(execFile)('cp', ['-rL', join(project, 'examples/site'), site]);
  mkdirSync(join(site, 'public/photos'));
  await promisify(execFile)('cp', [join(project, 'crates/haulier-image/tests/photos/parrots.jpg'), join(site, 'public/photos')]);
  const pages = join(directory, 'pages');
  mkdirSync(pages);
  writeFileSync(join(pages, 'page.php'), "<?php usleep(20_000); echo 'A page that waits for its database.';");
  mkdirSync(join(directory, 'pictures'));
  await promisify(execFile)('chmod', ['-R', 'a+rwX', directory]);

  const shop = await serve('shop', `[pool.php]\nworkers = 4\n[site.shop]\nroot = "${site}"\n[site.shop.images]\nroot = "photos"\n`);
  const images = await serve('images', `[site.images.images]\nstore = "${directory}/pictures"\ncache = ["memory:64MiB"]\n`);
  visit(shop.address);
  const compared = await report(pages);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  await take(browser, 'report', 800, (page) => page.goto(compared));
  await take(browser, 'images', 900, async (page) => {
    await page.goto(images.address);
    await dropPhoto(page);
  }, ['-colors', '256']);
  await sleep(Math.max(0, minutes * 60 - 40) * 1000);
  await take(browser, 'dashboard', 1060, async (page) => {
    await page.goto(shop.admin);
    await sleep(2500);
  });
  await browser.close();
}

try {
  await main();
} finally {
  children.forEach((child) => child.kill('SIGTERM'));
  await sleep(1500);
  rmSync(directory, { recursive: true, force: true });
}
