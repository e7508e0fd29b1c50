// The page at /, against a server that can do what the demo model cannot.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { crc32, deflateSync } from 'node:zlib';
import test, { after, before } from 'node:test';
import { Fake } from './fake.mjs';
import { ARCLIGHT_URL, PHONE, accessible, answers, ask, close, done, field, launch, open, quit, shot, snapshot } from './support.mjs';

let fake;
before(async () => {
  await launch();
  fake = await new Fake().listen(ARCLIGHT_URL);
});
after(async () => {
  await quit();
  fake.close();
});

/** A PNG: a square of one colour. */
function square(side) {
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.concat([Buffer.from([0]), Buffer.alloc(3 * side, Buffer.from([47, 75, 208]))]);
  const rows = deflateSync(Buffer.concat(Array(side).fill(row)));
  const mark = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
  return Buffer.concat([mark, chunk('IHDR', head), chunk('IDAT', rows), chunk('IEND', Buffer.alloc(0))]);
}
const lastAsked = () => fake.asked.at(-1);

test('an answer comes piece by piece, with its figures', async () => {
  const page = await open(fake.url);
  await page.getByText('answers on this server, with a context of 4,096 tokens').waitFor();
  await accessible(page, 'the empty page');
  await shot(page, 'empty');
  await snapshot(page.locator('.app'), 'empty');
  const answer = await ask(page, 'Hello');
  assert.match(await answer.innerText(), /Answer \d+ to “Hello”\./);
  // 11 tokens, of which the first ends the wait.
  assert.match(await answer.innerText(), /11 tokens · [\d,.]+ tokens\/s · first after [\d.]+ m?s · prompt of 20 tokens, 16 cached/);
  assert.deepEqual(lastAsked().messages, [{ role: 'user', content: 'Hello' }]);
  assert.equal(lastAsked().model, 'first-model');
  assert.equal(await page.title(), 'Hello · Arclight');
  await ask(page, 'And then?');
  assert.deepEqual(lastAsked().messages.map((m) => m.role), ['user', 'assistant', 'user']);
  await close(page);
});

test('what is stopped stays, and the server hears of it', async () => {
  const page = await open(fake.url);
  const { left } = fake;
  await field(page).fill('slow');
  await page.keyboard.press('Enter');
  await page.getByText('one two three').waitFor();
  await page.getByRole('button', { name: 'Stop the answer' }).click();
  await done(page);
  assert.match(await answers(page).last().innerText(), /one two three[^]*stopped/);
  for (let i = 0; fake.left === left && i < 100; i += 1) await new Promise((r) => setTimeout(r, 20));
  assert.equal(fake.left, left + 1);
  // Escape does it, too.
  await field(page).fill('slow');
  await page.keyboard.press('Enter');
  await answers(page).nth(1).getByText('one two').waitFor();
  await page.keyboard.press('Escape');
  await done(page);
  await close(page);
});

test('answers and questions have versions', async () => {
  const page = await open(fake.url);
  const first = await (await ask(page, 'Tell me')).locator('.markdown').innerText();
  await page.getByRole('button', { name: 'Answer again' }).click();
  await done(page);
  await page.getByText('2/2').waitFor();
  const second = await answers(page).last().locator('.markdown').innerText();
  assert.notEqual(first, second);
  await page.getByRole('button', { name: 'Version before' }).click();
  await page.getByText('1/2').waitFor();
  assert.equal(await answers(page).last().locator('.markdown').innerText(), first);
  // A changed question begins a branch of its own.
  await page.getByRole('button', { name: 'Edit this message' }).click();
  await page.getByLabel('Text of the message').fill('Tell me more');
  await page.getByLabel('Text of the message').press('Control+Enter');
  await done(page);
  assert.deepEqual(lastAsked().messages, [{ role: 'user', content: 'Tell me more' }]);
  const you = page.getByRole('article', { name: 'You' });
  await you.getByText('2/2').waitFor();
  await you.getByRole('button', { name: 'Version before' }).click();
  assert.match(await you.innerText(), /Tell me\n/);
  assert.equal(await answers(page).last().locator('.markdown').innerText(), first);
  // A changed answer is what the model hears of.
  await page.getByRole('button', { name: 'Edit this answer' }).click();
  await page.getByLabel('Text of the message').fill('Changed.');
  await page.getByRole('button', { name: 'Keep as another version' }).click();
  await answers(page).getByText('3/3').waitFor();
  await ask(page, 'Next');
  assert.deepEqual(lastAsked().messages.map((m) => m.content), ['Tell me', 'Changed.', 'Next']);
  await accessible(page, 'versions');
  await close(page);
});

test('Markdown, code and tables', async () => {
  const page = await open(fake.url, { permissions: ['clipboard-read', 'clipboard-write'] });
  const answer = await ask(page, 'show markdown');
  await answer.locator('.hljs-keyword').first().waitFor();
  assert.equal(await answer.locator('h1').innerText(), 'Memory nodes');
  assert.equal(await answer.locator('td').nth(2).innerText(), '180.5');
  assert.ok((await answer.locator('li .code .hljs-keyword').count()) > 0, 'code within a list has colours');
  const link = answer.locator('a').first();
  assert.match(await link.getAttribute('rel'), /noopener/);
  assert.equal(await answer.locator('.code').last().locator('code').innerText(), 'no language <b>here</b>\n');
  await snapshot(answer.locator('.markdown'), 'markdown');
  await answer.getByRole('button', { name: 'Copy this python code' }).click();
  await answer.getByText('Copied').waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^def reads\(node: int\) -> float:\n {4}"""GB\/s/);
  await accessible(page, 'Markdown');
  await shot(page, 'markdown');
  await close(page);
});

test('formulas', async () => {
  const page = await open(fake.url);
  const answer = await ask(page, 'show math');
  await answer.locator('.katex').first().waitFor();
  assert.equal(await answer.locator('.katex').count(), 4);
  assert.equal(await answer.locator('.katex-display').count(), 2);
  assert.equal(await answer.locator('.katex-error').count(), 1);
  assert.match(await answer.innerText(), /it costs \$5 and \$10, no formula/);
  // Fonts come from this server, and styles of elements are not refused.
  await page.waitForFunction(() => [...document.fonts].some((font) => font.family.startsWith('KaTeX') && font.status === 'loaded'));
  await accessible(page, 'formulas');
  await shot(page, 'math');
  await close(page);
});

test('nothing that a model writes runs', async () => {
  const page = await open(fake.url);
  const answer = await ask(page, 'show attack');
  await answer.locator('.katex').first().waitFor();
  for (const link of await answer.locator('a').all()) {
    assert.match(await link.getAttribute('href'), /^(https?:|mailto:)/);
    assert.match(await link.getAttribute('rel'), /noopener/);
  }
  const dangerous = 'script, img, iframe, object, embed, form[action], [onerror], [onclick], [onload]';
  assert.equal(await answer.locator(`.markdown :is(${dangerous})`).count(), 0);
  assert.match(await answer.innerText(), /<script>window.hacked = 1<\/script>/);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await close(page);
});

test('thoughts are folded', async () => {
  const page = await open(fake.url);
  await field(page).fill('think');
  await page.keyboard.press('Enter');
  await page.getByText('Thinking…').waitFor();
  await done(page);
  const answer = answers(page).last();
  const thoughts = answer.getByText('Thoughts, 4 tokens');
  assert.equal(await answer.getByText('First I look at').isVisible(), false);
  await thoughts.click();
  assert.equal(await answer.locator('.thoughts strong').innerText(), 'both');
  assert.match(await answer.innerText(), /The answer is 42\./);
  await accessible(page, 'thoughts');
  // They are not sent with what follows.
  await ask(page, 'Next');
  assert.deepEqual(lastAsked().messages[1], { role: 'assistant', content: 'The answer is 42.' });
  await close(page);
});

test('tools: defined, called, answered', async () => {
  const page = await open(fake.url);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Tools').fill('[{"name": 1}]');
  await page.getByText('Tool 1 has no function with a name.').waitFor();
  await page.getByLabel('Tools').fill('');
  await page.getByRole('button', { name: 'Insert an example tool' }).click();
  await accessible(page, 'settings');
  await shot(page, 'settings');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'call two');
  assert.equal(lastAsked().tools[0].function.name, 'get_weather');
  assert.match(await answer.innerText(), /get_weather\n+\{\n {2}"city": "Rome"\n\}[^]*"city": "Oslo"/);
  await answer.getByLabel('Result of get_weather').first().fill('{"sky": "clear"}');
  await answer.getByLabel('Result of get_weather').last().fill('snow');
  await accessible(page, 'calls');
  await shot(page, 'tools');
  await answer.getByRole('button', { name: 'Send the results' }).click();
  await answers(page).getByText('The tool said: snow').waitFor();
  await done(page);
  const [, calls, first, second] = lastAsked().messages;
  assert.equal(calls.tool_calls.length, 2);
  assert.equal(calls.content, null);
  // Thoughts go on after the result.
  assert.equal(calls.reasoning_content, 'I have to look.');
  assert.deepEqual(calls.tool_calls[0].function, { name: 'get_weather', arguments: '{"city": "Rome"}' });
  assert.deepEqual(first, { role: 'tool', tool_call_id: 'call_0', content: '{"sky": "clear"}' });
  assert.deepEqual(second, { role: 'tool', tool_call_id: 'call_1', content: 'snow' });
  await close(page);
});

test('tools of the server: offered, called when the user says so', async () => {
  fake.tools = [{ type: 'function', function: { name: 'get_sky', parameters: { type: 'object' } } }];
  const page = await open(fake.url);
  await ask(page, 'call none: nothing is offered yet');
  assert.equal(lastAsked().tools, undefined);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Offer the tools of this server').check();
  await page.getByText('get_sky. Each call is shown').waitFor();
  await accessible(page, 'settings with tools of the server');
  await page.keyboard.press('Escape');
  const answer = await ask(page, 'call two');
  assert.equal(lastAsked().tools[0].function.name, 'get_sky');
  assert.equal(fake.called.length, 0, 'nothing is called before the user says so');
  await accessible(page, 'calls of tools of the server');
  await shot(page, 'server-tools');
  const call = answer.getByRole('button', { name: 'Call the tools' });
  await call.click();
  // The second call fails the first time; what the first has brought stays.
  await answer.getByText('sums: it has ended').waitFor();
  await call.click();
  await answers(page).getByText('The tool said: snow in Oslo').waitFor();
  await done(page);
  assert.deepEqual(fake.called.map((one) => one.arguments.city), ['Rome', 'Oslo', 'Oslo']);
  const results = lastAsked().messages.filter((message) => message.role === 'tool');
  assert.deepEqual(results.map((result) => result.content), ['snow in Rome', 'snow in Oslo']);
  fake.tools = null;
  await close(page);
});

test('images: chosen, pasted, dropped, and refused where the model sees none', async () => {
  const png = square(64);
  const page = await open(fake.url);
  await page.getByRole('button', { name: 'Add images' }).waitFor();
  await page.getByLabel('Images', { exact: true }).setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: png });
  await page.getByAltText('Image 1').waitFor();
  const bring = (kind) => page.evaluate(([kind, bytes]) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], 'dot.png', { type: 'image/png' }));
    const at = document.querySelector('#question');
    at.dispatchEvent(kind === 'paste'
      ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })
      : new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [kind, [...png]]);
  await bring('paste');
  await page.getByAltText('Image 2').waitFor();
  await bring('drop');
  await page.getByAltText('Image 3').waitFor();
  await accessible(page, 'images to send');
  await page.getByRole('button', { name: 'Remove image 3' }).click();
  await ask(page, 'What is it?');
  const { content } = lastAsked().messages[0];
  assert.deepEqual(content.map((part) => part.type), ['image_url', 'image_url', 'text']);
  assert.equal(content[0].image_url.url, `data:image/png;base64,${png.toString('base64')}`);
  await shot(page, 'images');
  await close(page);

  fake.capabilities = ['completion'];
  const blind = await open(fake.url);
  await blind.getByText('answers on this server').waitFor();
  assert.equal(await blind.getByRole('button', { name: 'Add images' }).count(), 0);
  fake.capabilities = ['completion', 'tools', 'thinking', 'vision'];
  await close(blind);
});

test('settings go with the requests, and new conversations can have them', async () => {
  const page = await open(fake.url);
  await page.getByRole('button', { name: 'Settings' }).click();
  assert.equal(await page.getByLabel('Temperature').getAttribute('placeholder'), '0.8');
  assert.equal(await page.getByLabel('Top p').getAttribute('placeholder'), '');
  await snapshot(page.getByRole('dialog'), 'settings');
  await page.getByLabel('System prompt').fill('Be short.');
  await page.getByLabel('Temperature').fill('0.3');
  await page.getByLabel('Most tokens').fill('64');
  await page.getByLabel('Seed').fill('7');
  await page.getByLabel('Stop at').fill('END\n###');
  await page.getByLabel('Reasoning').selectOption('none');
  await page.getByRole('button', { name: 'Use for new conversations' }).click();
  await ask(page, 'Hi');
  const { messages, temperature, max_tokens, seed, stop, reasoning_effort, top_p } = lastAsked();
  assert.deepEqual(messages[0], { role: 'system', content: 'Be short.' });
  assert.deepEqual({ temperature, max_tokens, seed, stop, reasoning_effort, top_p },
    { temperature: 0.3, max_tokens: 64, seed: 7, stop: ['END', '###'], reasoning_effort: 'none', top_p: undefined });
  await page.getByRole('button', { name: 'New conversation' }).click();
  await page.getByLabel('Model').selectOption('second-model');
  await ask(page, 'Again');
  assert.equal(lastAsked().messages[0].content, 'Be short.');
  assert.equal(lastAsked().model, 'second-model');
  await close(page);
});

test('conversations are kept, found, renamed, exported, deleted, imported', async () => {
  const page = await open(fake.url);
  const list = page.getByRole('navigation', { name: 'Conversations' });
  await ask(page, 'About apples');
  await page.getByRole('button', { name: 'New conversation' }).click();
  await ask(page, 'About pears');
  await page.waitForTimeout(600);
  await page.reload();
  await page.getByRole('article', { name: 'You' }).getByText('About pears').waitFor();
  await page.getByLabel('Search conversations').fill('to “about APPLES');
  await list.getByRole('button', { name: 'About apples', exact: true }).waitFor();
  assert.equal(await list.getByRole('button', { name: 'About pears', exact: true }).count(), 0);
  await page.getByLabel('Search conversations').fill('');
  await list.getByRole('button', { name: 'About apples', exact: true }).click();
  await list.getByRole('button', { name: 'Rename About apples' }).click();
  await page.getByLabel('New title').fill('Fruit');
  await page.getByLabel('New title').press('Enter');
  await list.getByRole('button', { name: 'Fruit', exact: true }).waitFor();
  await accessible(page, 'the list');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Export all conversations' }).click(),
  ]);
  const file = await download.path();
  const { format, version, conversations } = JSON.parse(readFileSync(file, 'utf8'));
  assert.deepEqual([format, version, conversations.length], ['arclight-conversations', 1, 2]);
  for (const name of ['Fruit', 'About pears']) {
    await list.getByRole('button', { name, exact: true }).hover();
    await list.getByRole('button', { name: `Delete ${name}` }).click();
    await list.getByRole('button', { name: 'Delete', exact: true }).click();
  }
  await list.getByText('Conversations are kept in this browser.').waitFor();
  await page.reload();
  await list.getByText('Conversations are kept in this browser.').waitFor();
  await page.getByLabel('File of conversations').setInputFiles(file);
  await list.getByRole('button', { name: 'Fruit', exact: true }).waitFor();
  await page.getByRole('article', { name: 'You' }).getByText(/About (apples|pears)/).waitFor();
  // Twice is twice; what is no export is refused in words.
  await page.getByLabel('File of conversations').setInputFiles(file);
  await page.waitForFunction(() => document.querySelectorAll('.entry').length === 4);
  for (const [text, words] of [['{', 'The file is no JSON'], ['{"format": "x"}', 'The file was not exported by Arclight.']]) {
    await page.getByLabel('File of conversations').setInputFiles({ name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await page.getByRole('alert').getByText(words).waitFor();
  }
  await close(page);
});

test('faults are told in the words of the server, and can be tried again', async () => {
  const page = await open(fake.url);
  for (const [question, words] of [
    ['refuse', /temperature: must be at most 2[^]*Status 400/],
    ['busy', /the queue is full: 64 requests wait[^]*Status 429; it may work in 7 s/],
    ['proxy', /The server answered with status 502\./],
    ['fail', /It began well[^]*replica 0 is out of service: no pages/],
    ['cut', /It began well[^]*The connection broke before the answer ended\./],
  ]) {
    await page.getByRole('button', { name: 'New conversation' }).click();
    const answer = await ask(page, question);
    assert.match(await answer.innerText(), words);
    const asked = fake.asked.length;
    await answer.getByRole('button', { name: 'Try again' }).click();
    await done(page);
    assert.equal(fake.asked.length, asked + 1);
    assert.match(await answers(page).last().innerText(), words);
  }
  await accessible(page, 'a fault');
  await shot(page, 'fault');
  const long = await ask(page, 'long');
  assert.match(await long.innerText(), /cut off at the limit of tokens/);
  // The model goes on from what it has written.
  await long.getByRole('button', { name: 'Go on with this answer' }).click();
  await answers(page).last().getByText('and more.').waitFor();
  await done(page);
  assert.match(await answers(page).last().innerText(), /^(word ){10}and more\.\s+last part · 11 tokens/);
  assert.deepEqual(lastAsked().messages.at(-1), { role: 'assistant', content: 'word '.repeat(10) });
  assert.equal(lastAsked().continue_final_message, true);
  await page.context().setOffline(true);
  const lost = await ask(page, 'offline');
  assert.match(await lost.innerText(), /The server cannot be reached\./);
  await page.context().setOffline(false);
  await lost.getByRole('button', { name: 'Try again' }).click();
  await answers(page).getByText('to “offline”.').waitFor();
  await close(page);
});

test('a key is asked for where there must be one', async () => {
  fake.key = 'secret';
  const page = await open(fake.url);
  const dialog = page.getByRole('dialog', { name: 'This server asks for a key' });
  await dialog.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.type), 'password');
  await accessible(page, 'the question for a key');
  await shot(page, 'key');
  await dialog.getByLabel('API key').fill('wrong');
  await dialog.getByRole('button', { name: 'Use this key' }).click();
  await dialog.getByText('The server does not know this key.').waitFor();
  await dialog.getByLabel('API key').fill('secret');
  await dialog.getByRole('button', { name: 'Use this key' }).click();
  await page.getByText('answers on this server').waitFor();
  await ask(page, 'Hello');
  await page.reload();
  await ask(page, 'Still known?');
  assert.match(await answers(page).last().innerText(), /Still known/);
  // Given up, it is asked for again, and the answer can be tried again.
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Forget the API key' }).click();
  await page.keyboard.press('Escape');
  await ask(page, 'Without');
  await dialog.getByLabel('API key').fill('secret');
  await dialog.getByRole('button', { name: 'Use this key' }).click();
  await answers(page).last().getByRole('button', { name: 'Try again' }).click();
  await answers(page).getByText('to “Without”.').waitFor();
  fake.key = null;
  await close(page);
});

test('light and dark, by the system and by choice', async () => {
  const back = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const page = await open(fake.url, { colorScheme: 'dark' });
  await ask(page, 'show markdown');
  await page.locator('.hljs-keyword').first().waitFor();
  const dark = await back(page);
  await accessible(page, 'dark');
  await shot(page, 'dark');
  await page.getByRole('radio', { name: 'Light' }).check();
  const light = await back(page);
  assert.notEqual(light, dark);
  await page.reload();
  await answers(page).first().waitFor();
  assert.equal(await back(page), light);
  await page.getByRole('radio', { name: 'As the system' }).check();
  assert.equal(await back(page), dark);
  await ask(page, 'refuse');
  await accessible(page, 'a fault, dark');
  await close(page);
});

test('a phone', async () => {
  const page = await open(fake.url, { viewport: PHONE, hasTouch: true, isMobile: true });
  await ask(page, 'show markdown').catch(async () => {
    // Enter makes a line where there is no keyboard.
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await answers(page).first().waitFor();
    await done(page);
  });
  await page.locator('.hljs-keyword').first().waitFor();
  // Nothing is wider than the screen.
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), PHONE.width);
  await accessible(page, 'a phone');
  await shot(page, 'phone');
  await page.getByRole('button', { name: 'Show conversations' }).click();
  await page.getByRole('button', { name: 'show markdown', exact: true }).waitFor();
  await accessible(page, 'the list on a phone');
  await page.waitForTimeout(300);
  await shot(page, 'phone-list');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Settings' }).click();
  await accessible(page, 'settings on a phone');
  await shot(page, 'phone-settings');
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), PHONE.width);
  await close(page);
});

test('the keyboard is enough, and what happens is said', async () => {
  const page = await open(fake.url);
  await page.getByText('answers on this server').waitFor();
  // The field has the focus.
  await page.keyboard.type('Hello');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('there');
  await page.keyboard.press('Enter');
  await answers(page).first().waitFor();
  await done(page);
  assert.equal(lastAsked().messages[0].content, 'Hello\nthere');
  const said = page.locator('[aria-live="polite"]');
  assert.match(await said.innerText(), /^Answer: Answer \d+ to/);
  await page.keyboard.press('Control+k');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
  await page.keyboard.press('Control+Shift+O');
  await page.getByRole('heading', { name: 'What would you like to know?' }).waitFor();
  // From the start of the page on, everything can be reached and can be seen to be.
  await page.evaluate(() => document.activeElement.blur());
  const names = new Set();
  for (let i = 0; i < 30; i += 1) {
    await page.keyboard.press('Tab');
    names.add(await page.evaluate(() => {
      const it = document.activeElement;
      return it.getAttribute('aria-label') ?? it.labels?.[0]?.querySelector('span')?.textContent ?? it.labels?.[0]?.textContent ?? it.innerText;
    }));
  }
  for (const name of ['Skip to the message field', 'New conversation', 'Search conversations', 'Export all conversations', 'Model', 'Settings', 'Message']) {
    assert.ok([...names].some((one) => one?.trim() === name), `${name} in ${[...names].join(', ')}`);
  }
  await close(page);
});

test('models that are not there yet', async () => {
  fake.states = {
    'first-model': { max_model_len: null },
    'second-model': { max_model_len: null, status: { value: 'failed', error: 'there are 12 GB, and it needs 20 GB' } },
  };
  const page = await open(fake.url);
  await page.getByText('first-model is being loaded.').waitFor();
  await page.getByLabel('Model').selectOption('second-model');
  await page.getByText('second-model could not be loaded: there are 12 GB, and it needs 20 GB').waitFor();
  fake.states = { 'second-model': { max_model_len: null, status: { value: 'unloaded' } } };
  await page.getByText('second-model is loaded when it is asked for the first time.').waitFor();
  fake.states = {};
  await page.getByText('second-model answers on this server').waitFor();
  await close(page);
});

test('a model without a chat template continues texts', async () => {
  const page = await open(fake.url);
  const answer = await ask(page, 'base');
  assert.match(await answer.innerText(), /this model has no chat template/);
  await answer.getByRole('button', { name: 'Continue the text instead' }).click();
  await answers(page).last().getByText('once upon a time.').waitFor();
  await done(page);
  assert.equal(lastAsked().prompt, 'base');
  assert.equal(lastAsked().messages, undefined);
  // The failed answer has made room; what follows is one text.
  assert.equal(await answers(page).count(), 1);
  await ask(page, 'And');
  assert.equal(lastAsked().prompt, 'base once upon a time.\nAnd');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Continue the text as it stands').uncheck();
  await page.keyboard.press('Escape');
  await ask(page, 'Now a chat');
  assert.equal(lastAsked().messages.length, 5);
  await close(page);
});
