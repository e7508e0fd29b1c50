// Pages of other sites, and names that lead to this machine, in a real browser: what they reach of a server without
// keys. The server's own counters tell it, since a page cannot see the status of most of its requests.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import test, { after, before } from 'node:test';
import { ARCLIGHT_NAMED_URL, ARCLIGHT_SEVERAL_URL, answers, ask, close, launch, open, quit } from './support.mjs';

const NAMES = ['evil.test', 'rebound.test', 'chat.test'];
const PUBLIC = ['/health', '/ping', '/version', '/openapi.json', '/docs'];
const EMPTY = '<!doctype html><html><head><link rel="icon" href="data:,"></head><body></body></html>';

let browser;
const servers = [];
before(async () => {
  const rules = NAMES.map((name) => `MAP ${name} 127.0.0.1`).join(',');
  // Browsers that ask before a page reaches this machine are not all: the server is tried without their help.
  browser = await launch([`--host-resolver-rules=${rules}`, '--disable-features=LocalNetworkAccessChecks']);
});
after(async () => {
  await quit();
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

async function listen(handle) {
  const server = createServer(handle);
  servers.push(server);
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return server.address().port;
}

/** Every operation that the server describes, and paths that it does not. */
async function routes() {
  const document = await (await fetch(`${ARCLIGHT_SEVERAL_URL}/openapi.json`)).json();
  const all = [...Object.keys(document.paths), '/', '/status', '/icon.svg', '/docs', '/ping', '/rerank', '/nothing'];
  return [...new Set(all)].map((path) => path.replace('{id}', '0').replace('{model}', 'first'));
}

/** How many answers had which status, by route and method. */
async function counted() {
  const text = await (await fetch(`${ARCLIGHT_SEVERAL_URL}/metrics`)).text();
  const counts = new Map();
  for (const [, labels, count] of text.matchAll(/^arclight:http_requests_total\{(.*)\} (\d+)$/gm)) {
    const of = Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]));
    counts.set(`${of.method} ${of.route} ${of.status}`, Number(count));
  }
  return counts;
}

/** Runs something, and gives the answers that it has caused, without those to this test. */
async function caused(act) {
  const before = await counted();
  await act();
  const after = await counted();
  const changes = [...after].map(([what, count]) => [what, count - (before.get(what) ?? 0)]);
  return changes.filter(([what, count]) => count > 0 && what !== 'GET /metrics 200');
}

/** In a page: every way that it has to send a request to every path. */
async function attack({ target, paths }) {
  const headers = [{}, { 'content-type': 'text/plain' }, { 'content-type': 'application/json' }, { authorization: 'Bearer x' }];
  const soon = (start) => new Promise((done) => {
    const timer = setTimeout(done, 3000);
    start(() => {
      clearTimeout(timer);
      done();
    });
  });
  const element = (kind, set) => soon((done) => {
    const made = document.createElement(kind);
    made.onload = made.onerror = done;
    set(made);
    document.body.append(made);
  });
  let read = '';
  for (const path of paths) {
    const url = target + path;
    const sent = [];
    for (const method of ['GET', 'HEAD', 'POST', 'DELETE', 'PUT', 'PATCH', 'OPTIONS']) {
      const body = method === 'GET' || method === 'HEAD' ? undefined : '{"model":"first","prompt":"a","messages":[]}';
      for (const more of headers) {
        sent.push(fetch(url, { method, headers: more, body, redirect: 'manual' }).then(async (answer) => {
          if (answer.ok) read += ` ${method} ${path}`;
        }, () => {}));
      }
      if (['GET', 'HEAD', 'POST'].includes(method)) {
        sent.push(fetch(url, { method, mode: 'no-cors', body, headers: { 'content-type': 'text/plain' } }).catch(() => {}));
        if (method === 'POST') sent.push(fetch(url, { method, mode: 'no-cors', body: new FormData() }).catch(() => {}));
      }
    }
    sent.push(element('img', (made) => (made.src = url)));
    sent.push(element('script', (made) => (made.src = url)));
    sent.push(element('iframe', (made) => (made.src = url)));
    sent.push(soon((done) => {
      const events = new EventSource(url);
      events.onopen = events.onerror = () => {
        events.close();
        done();
      };
    }));
    for (const enctype of ['application/x-www-form-urlencoded', 'multipart/form-data', 'text/plain']) {
      sent.push(soon((done) => {
        const frame = document.createElement('iframe');
        frame.name = `f${Math.random()}`;
        document.body.append(frame);
        frame.onload = done;
        const form = Object.assign(document.createElement('form'), { action: url, method: 'POST', enctype, target: frame.name });
        const field = Object.assign(document.createElement('input'), { name: '{"model":"first","x":"', value: '"}' });
        form.append(field);
        document.body.append(form);
        form.submit();
      }));
    }
    navigator.sendBeacon(url, '{}');
    await Promise.all(sent);
    document.body.replaceChildren();
  }
  return read;
}

/** Only refusals, and what is public. */
function refused(changes) {
  const reached = changes.filter(([what]) => {
    const [method, route, status] = what.split(' ');
    return status !== '403' && !(['GET', 'HEAD'].includes(method) && PUBLIC.includes(route));
  });
  assert.deepEqual(reached, []);
  const all = changes.reduce((sum, [, count]) => sum + count, 0);
  assert.ok(all > 500, `the server saw ${all} requests`);
}

test('a page of another site reaches only what is public', { timeout: 400_000 }, async () => {
  const port = await listen((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end(EMPTY));
  const paths = await routes();
  for (const origin of [`http://evil.test:${port}`, `http://localhost:${port}`]) {
    const page = await (await browser.newContext()).newPage();
    await page.goto(origin);
    refused(await caused(async () => assert.equal(await page.evaluate(attack, { target: ARCLIGHT_SEVERAL_URL, paths }), '')));
    await page.context().close();
  }
});

test('a rebound name reaches only what is public', { timeout: 400_000 }, async () => {
  const target = ARCLIGHT_SEVERAL_URL.replace('127.0.0.1', 'rebound.test');
  const page = await (await browser.newContext()).newPage();
  // The document came from elsewhere, before its name was made to lead here.
  await page.route(`${target}/evil`, (route) => route.fulfill({ contentType: 'text/html', body: EMPTY }));
  await page.goto(`${target}/evil`);
  const paths = await routes();
  let read = '';
  refused(await caused(async () => (read = await page.evaluate(attack, { target, paths }))));
  for (const what of read.trim().split(' ').filter((part) => part.startsWith('/'))) assert.ok(PUBLIC.includes(what), read);
  await page.context().close();
});

test('links of other sites lead to the page', async () => {
  const link = `<!doctype html><a href="${ARCLIGHT_SEVERAL_URL}/">chat</a> <a href="${ARCLIGHT_SEVERAL_URL}/v1/models">list</a>`;
  const port = await listen((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end(link));
  const page = await (await browser.newContext()).newPage();
  await page.goto(`http://evil.test:${port}/`);
  await page.getByText('chat').click();
  await page.getByLabel('Message', { exact: true }).waitFor();
  await page.goto(`http://evil.test:${port}/`);
  await page.getByText('list').click();
  await page.getByText('origin_not_allowed').waitFor();
  await page.context().close();
});

/** The page answers, and what needs its token has it. */
async function works(url) {
  const page = await open(url);
  await page.getByText(/answers on this server/).waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Most tokens').fill('8');
  await page.keyboard.press('Escape');
  await ask(page, 'Hello');
  assert.equal(await answers(page).last().locator('.trouble').count(), 0);
  const statuses = await page.evaluate(async () => {
    const token = document.querySelector('meta[name="arclight-token"]').content;
    const body = JSON.stringify({ name: 'none', arguments: {} });
    const call = async (more) => (await fetch('/page/mcp', { method: 'POST', body, headers: { 'content-type': 'application/json', ...more } })).status;
    return [await call({}), await call({ 'x-arclight-token': token })];
  });
  assert.deepEqual(statuses, [403, 404], 'the token opens it, and there are no tools');
  await close(page);
}

test('the page works by name, by address, and behind a proxy with another name', async () => {
  await works(ARCLIGHT_NAMED_URL);
  await works(ARCLIGHT_NAMED_URL.replace('127.0.0.1', 'localhost'));
  for (const passes of [true, false]) {
    const port = await listen((asked, answer) => {
      const headers = { ...asked.headers };
      if (!passes) headers.host = new URL(ARCLIGHT_NAMED_URL).host;
      const through = request(`${ARCLIGHT_NAMED_URL}${asked.url}`, { method: asked.method, headers }, (reply) => {
        answer.writeHead(reply.statusCode, reply.headers);
        reply.pipe(answer);
      });
      through.on('error', () => answer.destroy());
      asked.pipe(through);
    });
    await works(`http://chat.test:${port}`);
  }
});
