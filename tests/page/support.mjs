// A browser, pages in it, and what is looked for on all of them.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// Packages are those of the page.
const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

export const { ARCLIGHT_URL, ARCLIGHT_LOCKED_URL, ARCLIGHT_BARE_URL, ARCLIGHT_NAMED_URL, ARCLIGHT_SEVERAL_URL, ARCLIGHT_CLIENT_KEY, PAGE_SHOTS } = process.env;
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

let browser;
/** Starts it; node:test passes something of its own for the options. */
export async function launch(options) {
  const args = ['--no-sandbox', ...(Array.isArray(options) ? options : [])];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args });
  return browser;
}
export const quit = () => browser.close();

/** A page of a browser that knows nothing yet. Whatever goes wrong on it, or leaves for elsewhere, is noted. */
export async function open(url, { viewport = DESKTOP, colorScheme = 'light', ...more } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce', acceptDownloads: true, ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(String(error)));
  page.on('console', (message) => {
    // A status that is no success is the matter of the test.
    if (message.type() === 'error' && !message.text().includes('Failed to load resource')) page.faults.push(message.text());
  });
  const { origin } = new URL(url);
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== origin) page.faults.push(`asked ${request.url()}`);
  });
  await page.goto(url);
  return page;
}

export async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

/** No fault of accessibility that axe knows. */
export async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((n) => n.html.slice(0, 200)).join(' | ')}`);
  assert.deepEqual(told, [], what);
}

const SNAPSHOTS = new URL('snapshots/', import.meta.url);

/** What a region says to who cannot see it is as it was. With PAGE_UPDATE=1 it is written anew: look at the diff. */
export async function snapshot(region, name) {
  const file = new URL(`${name}.yaml`, SNAPSHOTS);
  const now = `${await region.ariaSnapshot()}\n`;
  if (process.env.PAGE_UPDATE) {
    mkdirSync(SNAPSHOTS, { recursive: true });
    writeFileSync(file, now);
  }
  assert.equal(now, readFileSync(file, 'utf8'), name);
}

/** For a person to look at. */
export async function shot(page, name) {
  if (!PAGE_SHOTS) return;
  mkdirSync(PAGE_SHOTS, { recursive: true });
  await page.screenshot({ path: `${PAGE_SHOTS}/${name}.png` });
}

export const answers = (page) => page.getByRole('article', { name: 'Answer', exact: true });

export const field = (page) => page.getByLabel('Message', { exact: true });

/** Asks, and waits until the answer has ended. */
export async function ask(page, text) {
  const before = await answers(page).count();
  await field(page).fill(text);
  await field(page).press('Enter');
  await answers(page).nth(before).waitFor();
  await done(page);
  return answers(page).nth(before);
}

export async function done(page) {
  await page.getByRole('button', { name: 'Send', exact: true }).waitFor();
}
