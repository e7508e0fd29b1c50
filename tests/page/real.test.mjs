// The page on `arclight serve` itself, with the built-in demo model.
import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { ARCLIGHT_BARE_URL, ARCLIGHT_CLIENT_KEY, ARCLIGHT_LOCKED_URL, ARCLIGHT_URL, accessible, answers, ask, close, done, launch, open, quit, shot } from './support.mjs';

before(launch);
after(quit);

test('the demo model answers', async () => {
  const page = await open(ARCLIGHT_URL);
  await page.getByText(/answers on this server, with a context of [\d,]+ tokens/).waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Most tokens').fill('40');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'What is your name?');
  const text = await answer.locator('.markdown').innerText();
  assert.ok(text.length > 10, text);
  assert.match(await answer.innerText(), /\d+ tokens? · ([\d,.]+ tokens\/s · )?first after [\d.]+ m?s · prompt of \d+ tokens?, \d+ cached/);
  // The same question at temperature 0 has the same answer, and its prompt is in the cache by then.
  await page.getByRole('button', { name: 'Answer again' }).click();
  await done(page);
  await page.getByText('2/2').waitFor();
  assert.equal(await answers(page).last().locator('.markdown').innerText(), text);
  await ask(page, 'Tell me a story.');
  await accessible(page, 'a conversation');
  await shot(page, 'real');
  await close(page);
});

test('an answer that was cut off goes on', async () => {
  const page = await open(ARCLIGHT_URL);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Most tokens').fill('12');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'Tell me a story.');
  const text = await answer.locator('.markdown').innerText();
  await answer.getByRole('button', { name: 'Go on with this answer' }).click();
  await answer.getByText('last part').waitFor();
  const whole = await answer.locator('.markdown').innerText();
  assert.ok(whole.startsWith(text) && whole.length > text.length + 10, whole);
  // Cut anywhere, the model says what it would have said.
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Most tokens').fill('24');
  await page.keyboard.press('Escape');
  await answer.getByRole('button', { name: 'Answer again' }).click();
  await done(page);
  assert.equal(await answers(page).last().locator('.markdown').innerText(), whole);
  await close(page);
});

test('a text is continued without a template', async () => {
  const page = await open(ARCLIGHT_URL);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Continue the text as it stands').check();
  await page.getByLabel('Most tokens').fill('20');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'Once upon a time there lived');
  assert.match(await answer.innerText(), /\w{3}[^]* tokens · /);
  await close(page);
});

test('a fault of the real server is told in its words', async () => {
  const page = await open(ARCLIGHT_URL);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('-1');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'Hello');
  assert.match(await answer.innerText(), /temperature[^]*Status 400/);
  await close(page);
});

test('a server with keys gives the page, and asks for one', async () => {
  const page = await open(ARCLIGHT_LOCKED_URL);
  const dialog = page.getByRole('dialog', { name: 'This server asks for a key' });
  await dialog.getByLabel('API key').fill(ARCLIGHT_CLIENT_KEY);
  await dialog.getByRole('button', { name: 'Use this key' }).click();
  await page.getByText('answers on this server').waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Most tokens').fill('8');
  await page.keyboard.press('Escape');
  await ask(page, 'Hello');
  assert.equal(await answers(page).last().locator('.trouble').count(), 0);
  // It is kept for the dashboard, too.
  await page.getByRole('link', { name: 'Status' }).click();
  await page.getByRole('heading', { name: 'Why is it slow?' }).waitFor();
  await close(page);
});

test('--no-page leaves the API alone', async () => {
  const ask = (path) => fetch(`${ARCLIGHT_BARE_URL}${path}`, { headers: { accept: 'text/html' } });
  assert.equal(await (await ask('/')).text(), 'Ollama is running');
  assert.deepEqual(await Promise.all(['/status', '/v1/models', '/status.json'].map(async (p) => (await ask(p)).status)), [404, 200, 200]);
});
