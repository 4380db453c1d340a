// The page of `haulier serve --images`: a picture is dropped, seen in every mode, and its address copied.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'node:test';
import { open, program } from './fixture.js';

const modes = ['cover', 'contain', 'fit', 'fill', 'scale-down', 'crop'];

async function serve(t) {
  const directory = mkdtempSync(join(tmpdir(), 'haulier-web-'));
  const server = spawn(program, ['serve', '--images', directory, '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((resolve) => server.once('exit', resolve));
  t.after(async () => {
    server.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true });
  });
  for await (const line of createInterface({ input: server.stderr })) {
    const found = line.match(/"listen":\["([^"]+)"/);
    if (found) {
      server.stderr.resume();
      return `http://${found[1]}`;
    }
  }
  throw new Error('haulier did not start');
}

// Where to leave screenshots for somebody to look at, if anywhere.
async function picture(page, name) {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`), fullPage: true });
}

// A picture with a subject that is not in its middle.
async function drawn(page) {
  const data = await page.evaluate(async () => {
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [900, 600];
    const to = canvas.getContext('2d');
    const sky = to.createLinearGradient(0, 0, 0, 600);
    sky.addColorStop(0, '#1d3f72');
    sky.addColorStop(0.6, '#e8a87c');
    sky.addColorStop(1, '#41303c');
    to.fillStyle = sky;
    to.fillRect(0, 0, 900, 600);
    to.fillStyle = '#fff4d6';
    to.beginPath();
    to.arc(660, 250, 80, 0, 7);
    to.fill();
    to.fillStyle = '#241b2b';
    for (let x = 0; x < 900; x += 3) to.fillRect(x, 430 + 40 * Math.sin(x / 70) + 12 * Math.sin(x / 13), 3, 200);
    return canvas.toDataURL('image/jpeg', 0.9).split(',')[1];
  });
  return Buffer.from(data, 'base64');
}

async function drop(page, name, bytes) {
  const transfer = await page.evaluateHandle(([name, data]) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type: 'image/jpeg' }));
    return transfer;
  }, [name, bytes.toString('base64')]);
  await page.dispatchEvent('#drop', 'drop', { dataTransfer: transfer });
}

async function everyCardIsDone(page) {
  await page.waitForFunction((count) => {
    const facts = [...document.querySelectorAll('.card .name span')];
    return facts.length === count && facts.every((fact) => / × /.test(fact.textContent));
  }, modes.length);
}

test('a dropped picture is seen in every mode and its address is copied', { timeout: 240_000 }, async (t) => {
  const address = await serve(t);
  const { page, complaints } = await open(t);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: address });
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(`${address}/`);
  await picture(page, 'images-empty');
  const bytes = await drawn(page);
  const id = createHash('md5').update(bytes).digest('hex');
  await drop(page, 'evening.jpg', bytes);
  await page.getByText(`evening.jpg is uploaded`).waitFor();
  await everyCardIsDone(page);
  assert.equal(await page.locator('#id').innerText(), id);
  assert.match(await page.locator('#facts').innerText(), /^JPEG, 900 × 600, /);
  for (const mode of modes) {
    const card = page.getByRole('article', { name: mode, exact: true });
    const facts = await card.locator('.name span').innerText();
    const [width, height] = facts.split(' · ')[0].split(' × ').map(Number);
    const expected = mode === 'fit' || mode === 'scale-down' ? [400, 267] : [400, 300];
    assert.deepEqual([width, height], expected, `${mode}: ${facts}`);
  }
  await page.getByRole('button', { name: 'Copy the address of cover' }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.startsWith(`${address}/${id}?w=400&h=300&mode=cover`), copied);
  const answer = await page.request.get(copied);
  assert.equal(answer.status(), 200);
  await picture(page, 'images-light');

  await page.getByLabel('Width, pixels').fill('200');
  await page.getByLabel('Format').selectOption('png');
  await page.waitForFunction(() => [...document.querySelectorAll('.card .name span')].every((fact) => fact.textContent.endsWith('png')));
  assert.match(await page.getByRole('article', { name: 'cover', exact: true }).locator('.name span').innerText(), /^200 × 300 /);

  await page.reload();
  await everyCardIsDone(page);
  assert.equal(await page.locator('#id').innerText(), id, 'the browser remembers it');
  assert.deepEqual(complaints, []);
});

test('what is no picture is refused in words', { timeout: 240_000 }, async (t) => {
  const address = await serve(t);
  const { page, complaints } = await open(t);
  await page.goto(`${address}/`);
  await drop(page, 'notes.jpg', Buffer.from('these are words'));
  await page.getByText('notes.jpg was refused: File type not support.').waitFor();
  assert.equal(await page.locator('#picture').isVisible(), false);
  assert.deepEqual(complaints, []);
});

for (const { name, scheme, width } of [
  { name: 'dark', scheme: 'dark', width: 1280 },
  { name: 'narrow', scheme: 'light', width: 390 },
  { name: 'narrow-dark', scheme: 'dark', width: 390 },
]) {
  test(`the page is readable ${name}`, { timeout: 240_000 }, async (t) => {
    const address = await serve(t);
    const { page, complaints } = await open(t);
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 844 });
    await page.goto(`${address}/`);
    await drop(page, 'evening.jpg', await drawn(page));
    await everyCardIsDone(page);
    const sideways = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
    assert.equal(sideways, false, 'nothing to scroll sideways');
    const faint = await page.evaluate(() => {
      const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
      const light = (colour) => { const [r, g, b] = colour.match(/[\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
      const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
          const colour = getComputedStyle(at).backgroundColor;
          if (!/rgba\(.*, 0\)|transparent/.test(colour)) return colour;
        }
        return 'rgb(255, 255, 255)';
      };
      const texts = [...document.querySelectorAll('h1, h2, p, label, b, span, code, button, strong, select, input')];
      return texts.filter((element) => element.offsetParent && element.textContent.trim()).map((element) => {
        const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), element.textContent.trim().slice(0, 30)];
      }).filter(([ratio]) => ratio < 4.5);
    });
    assert.deepEqual(faint, []);
    await picture(page, `images-${name}`);
    assert.deepEqual(complaints, []);
  });
}
