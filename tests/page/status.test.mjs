// The dashboard at /status: of the real server, and of machines that this one is not.
import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { Fake } from './fake.mjs';
import { ARCLIGHT_SEVERAL_URL, ARCLIGHT_URL, PHONE, accessible, close, launch, open, quit, shot } from './support.mjs';

let fake;
before(async () => {
  await launch();
  fake = await new Fake().listen(ARCLIGHT_URL);
});
after(async () => {
  await quit();
  fake.close();
});

const body = { messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 1500, ignore_eos: true };
const send = (url, body) => fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
const post = (more) => send(`${ARCLIGHT_URL}/v1/chat/completions`, { ...body, ...more });

test('it shows what the real server does', async () => {
  const page = await open(`${ARCLIGHT_URL}/status`);
  await page.getByRole('heading', { name: 'Why is it slow?' }).waitFor();
  // More than it serves at once: some wait.
  const answers = Array.from({ length: 10 }, (_, seed) => seed).map((seed) => post({ seed }));
  await page.getByText(/\d answers? waits?: all 2 slots are in use\./).waitFor();
  await page.getByText(/^[\d.]+ GB\/s/).first().waitFor();
  await accessible(page, 'the busy dashboard');
  await shot(page, 'status-real');
  const all = await Promise.all(answers);
  await Promise.all(all.map(async (answer) => assert.equal((await answer.json()).usage.completion_tokens, 1500)));
  const rows = page.locator('tbody tr');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length >= 10);
  const cells = await rows.first().locator('td').allInnerTexts();
  assert.equal(cells[1], 'limit');
  assert.equal(cells[4], '1,500');
  // A second without work, and it is known what memory delivers.
  await page.getByText(/Its memory delivers [\d.]+ GB\/s\./).first().waitFor({ timeout: 30_000 });
  await page.getByText(/Nothing is computed: the last answer ended \d+ s ago\./).waitFor();
  await close(page);
});

test('figures of the endpoint agree with those of the metrics', async () => {
  const status = await (await fetch(`${ARCLIGHT_URL}/status.json`)).json();
  const metrics = await (await fetch(`${ARCLIGHT_URL}/metrics`)).text();
  const metric = (name) => Number(metrics.split('\n').find((line) => line.startsWith(`${name}{`)).split(' ').at(-1));
  const totals = status.replicas[0].totals;
  assert.equal(totals.generated_tokens, metric('vllm:generation_tokens_total'));
  assert.equal(totals.cached_tokens, metric('vllm:prefix_cache_hits_total'));
  assert.equal(totals.steps, metric('arclight:steps_total'));
});

/** Two nodes, experts, a long queue, one replica out of service. */
function invented() {
  const group = (node, read, limit, remote, working) => ({
    node,
    threads: 31,
    limit_bytes_per_second: limit,
    rates: {
      read_bytes_per_second: read,
      of_limit: read / limit,
      remote_share: remote,
      working,
      waiting_node: 0.9 - working,
      waiting_machine: 0.1,
      stolen_share: 0.04,
    },
  });
  const shares = Array.from({ length: 64 }, (_, at) => 0.08 * 0.93 ** at);
  return {
    phase: 'ready', version: '0.1.0', model: 'qwen3-30b-a3b', uptime_seconds: 93_000,
    machine: {
      cpu: 'AMD EPYC 9554 64-Core Processor', cores: 64, cache_bytes: 512 << 20,
      nodes: [0, 1].map((node) => ({ node, cores: 32, memory_bytes: 384 * 2 ** 30, available_bytes: (300 - 90 * node) * 2 ** 30 })),
    },
    replicas: [{
      mode: 'tensor parallel', threads: 62, slots: 16, running: 16, waiting: 5, outstanding_tokens: 48_211,
      pages: { total: 4096, used: 3100, cached: 700, free: 296 },
      groups: [group(0, 171e9, 204e9, 0.011, 0.78), group(1, 166e9, 203e9, 0.012, 0.71)],
      experts: { layers: 48, busiest: 5.1, busiest_of_all: 9.4, idle_share: 0.02, by_rank: shares },
      failure: null,
      totals: {
        answers: 811, prompt_tokens: 1_200_400, cached_tokens: 800_300, restored_tokens: 1200, generated_tokens: 402_000,
        drafted_tokens: 0, accepted_tokens: 0, preemptions: 2, steps: 90_000, step_seconds: 3000, between_seconds: 40,
      },
    }],
    rates: {
      seconds: 5.1, generated_per_second: 412.4, prompt_per_second: 1800, steps_per_second: 29, step_ms: 34.2, between_ms: 0.4,
      answers_per_step: 14.2, computing: 0.99, cached_share: 0.61, accepted_share: null, preemptions: 0,
    },
    requests: Array.from({ length: 12 }, (_, at) => ({
      ended: 1_790_000_000 - at * 7, end: ['stop', 'length', 'tool_calls', 'abort', 'error'][at % 5], replica: at % 5 < 3 ? 0 : null,
      queued_ms: at % 5 < 3 ? 120 + at : null, first_ms: 800 + at, total_ms: 6100 + 10 * at, prompt_tokens: 1400, cached_tokens: 1024,
      tokens: 180 + at, tokens_per_second: 31.4,
    })),
    why: [
      { text: '5 answers wait: all 16 slots are in use.', mend: ['more at once: --parallel', 'on a machine with several memory nodes: --replicas'], costs: true },
      { text: 'Memory bounds the work: node 0 is read at 171.0 GB/s of the 204.0 GB/s that it can deliver, 84 % of it (100 % while its threads work).', mend: ['fewer bytes: a file of fewer bits, such as Q4_K_M, or a smaller model'], costs: true },
      { text: 'Experts are chosen unevenly: the busiest of a layer has 5.1 times its even share of the tokens.', costs: false },
    ],
    unknown: [{ what: 'remote_share', why: 'the kernel does not tell on which nodes pages are' }],
  };
}

test('it shows machines with several nodes, and experts', async () => {
  fake.status = invented();
  for (const [name, look] of [
    ['light', { colorScheme: 'light' }],
    ['dark', { colorScheme: 'dark' }],
    ['phone', { viewport: PHONE, hasTouch: true, isMobile: true }],
  ]) {
    const page = await open(`${fake.url}/status`, look);
    await page.getByText('5 answers wait').waitFor();
    const node = page.locator('.node').nth(1);
    assert.match(await node.innerText(), /Node 1\n+32 cores, 31 threads of the model[^]*Read 166\.0 GB\/s of 203\.0 GB\/s[^]*Working 71 %/);
    assert.equal(await node.locator('.squares .used').count(), 31);
    assert.equal(await page.locator('.ranks rect').count(), 64);
    assert.match(await page.locator('main').innerText(), /67 % of 1,200,400 prompt tokens were found in the cache, 1,200 of them on disk/);
    assert.equal(await page.locator('tbody tr').count(), 12);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), (look.viewport ?? { width: 1280 }).width);
    await accessible(page, `the dashboard, ${name}`);
    await page.waitForTimeout(500);
    await shot(page, `status-${name}`);
    if (name === 'light') {
      await page.setViewportSize({ width: 1280, height: 1700 });
      await shot(page, 'status-whole');
    }
    await close(page);
  }
});

const LONG = 'a-model-with-a-name-that-is-longer-than-a-phone-is-wide-q4_k_m';
const model = (name, state, more) => ({ name, state, error: null, pinned: false, running: 0, waiting: 0, bytes: 0, idle_seconds: null, ...more });

test('it shows the models of a server that has several', async () => {
  fake.status = {
    ...invented(),
    models: [
      model('qwen3-30b-a3b', 'loaded', { pinned: true, running: 16, waiting: 5, bytes: 24 * 2 ** 30, idle_seconds: 0 }),
      model('embeddinggemma-300m', 'loaded', { bytes: 700 * 2 ** 20, idle_seconds: 1260 }),
      model(LONG, 'unloaded'),
      model('gpt-oss-20b', 'failed', { error: 'replica 0 is out of service: a thread of its pool has panicked' }),
      model('<b>&"', 'loading'),
    ],
  };
  for (const [name, look] of [
    ['light', { colorScheme: 'light' }],
    ['dark', { colorScheme: 'dark' }],
    ['phone', { viewport: PHONE, hasTouch: true, isMobile: true }],
  ]) {
    const page = await open(`${fake.url}/status?model=qwen3-30b-a3b`, look);
    const models = page.getByRole('region', { name: 'Models' });
    await models.waitFor();
    assert.equal(fake.looked, '?model=qwen3-30b-a3b');
    const rows = await Promise.all((await models.locator('tbody tr').all()).map((row) => row.locator('td').allInnerTexts()));
    assert.deepEqual(rows, [
      ['qwen3-30b-a3b', 'loaded, pinned', '16', '5', '24 GiB', 'now'],
      ['embeddinggemma-300m', 'loaded', '0', '0', '700 MiB', '21 min ago'],
      [LONG, 'unloaded', '0', '0', '–', '–'],
      ['gpt-oss-20b', 'failed', '0', '0', '–', '–'],
      ['<b>&"', 'loading', '0', '0', '–', '–'],
    ]);
    assert.match(await models.innerText(), /gpt-oss-20b: replica 0 is out of service: a thread of its pool has panicked\n+2 of 5 in memory, with 25 GiB\. What follows is of qwen3-30b-a3b\./);
    assert.equal(await models.locator('a[aria-current]').innerText(), 'qwen3-30b-a3b');
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), (look.viewport ?? { width: 1280 }).width);
    await accessible(page, `a dashboard of several models, ${name}`);
    await page.waitForTimeout(500);
    await shot(page, `models-${name}`);
    await close(page);
  }
  const page = await open(`${fake.url}/status`);
  await page.getByRole('link', { name: '<b>&"' }).click();
  await page.waitForURL(/model=%3Cb%3E%26%22$/);
  await page.getByRole('region', { name: 'Models' }).waitFor();
  assert.equal(fake.looked, '?model=%3Cb%3E%26%22');
  await close(page);
});

test('models of the real server are loaded, fail, and are looked at', async () => {
  const page = await open(`${ARCLIGHT_SEVERAL_URL}/status`);
  const models = page.getByRole('region', { name: 'Models' });
  const state = async (name) => (await models.locator('tr', { hasText: name }).locator('td').allInnerTexts())[1];
  await models.waitFor();
  assert.equal(await state('second'), 'unloaded');
  const load = (name) => send(`${ARCLIGHT_SEVERAL_URL}/models/load`, { model: name });
  assert.equal((await load('first')).status, 200);
  await page.getByText('1 of 3 in memory').waitFor();
  assert.equal(await state('first'), 'loaded');
  assert.equal((await load('absent')).status, 503);
  await models.getByText(/^absent: /).waitFor();
  assert.equal(await state('absent'), 'failed');
  await models.getByRole('link', { name: 'second' }).click();
  await page.getByText('The model is not in memory: a request for it loads it.').waitFor();
  await accessible(page, 'a model that is not loaded');
  await models.getByRole('link', { name: 'absent' }).click();
  await page.getByText(/^The model is out of service: /).waitFor();
  await shot(page, 'models-real');
  await close(page);
});

test('what cannot be known is said, and a server that is gone', async () => {
  const some = invented();
  const bare = { ...some.replicas[0], experts: null, groups: [{ node: null, threads: 2, limit_bytes_per_second: null, rates: null }] };
  fake.status = {
    ...some, machine: null, replicas: [bare], rates: null, requests: [],
    why: [{ text: 'Nothing is computed: there has been no request yet.', costs: false }],
  };
  const page = await open(`${fake.url}/status`);
  await page.getByText('there has been no request yet').waitFor();
  assert.match(await page.locator('main').innerText(), /Not known\n+remote_share: the kernel does not tell/);
  assert.match(await page.locator('main').innerText(), /There have been none\./);
  await accessible(page, 'a bare dashboard');
  fake.key = 'secret';
  await page.getByRole('dialog', { name: 'This server asks for a key' }).waitFor();
  fake.key = null;
  await page.keyboard.press('Escape');
  await page.context().setOffline(true);
  await page.getByRole('alert').getByText('The server cannot be reached.').waitFor();
  await page.context().setOffline(false);
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await close(page);
});
