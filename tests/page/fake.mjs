// A server of the same wire format as `arclight serve`, for what the demo model cannot do: it answers by the last
// message. The page itself comes from a real server, with its headers.
import { createServer, request } from 'node:http';
import { readFileSync } from 'node:fs';

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const TEXTS = new URL('texts/', import.meta.url);
const text = (name) => readFileSync(new URL(`${name}.md`, TEXTS), 'utf8');

export class Fake {
  /** Bodies of the requests for answers, in their order. */
  asked = [];
  /** The key that it wants. */
  key = null;
  capabilities = ['completion', 'tools', 'thinking', 'vision'];
  models = ['first-model', 'second-model'];
  /** What the list of models says of some. */
  states = {};
  /** What `/status.json` gives. */
  status = null;
  /** The query of the last request for it. */
  looked = '';
  /** Tools of MCP servers, and the calls of them. */
  tools = null;
  called = [];
  /** Streams that the page has left before their end. */
  left = 0;

  /** @param real the address of a real server */
  async listen(real) {
    this.real = real;
    this.server = createServer((asked, answer) => {
      this.handle(asked, answer).catch((error) => {
        console.error(error);
        answer.destroy();
      });
    });
    await new Promise((done) => this.server.listen(0, '127.0.0.1', done));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
    return this;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async handle(asked, answer) {
    const { pathname, search } = new URL(asked.url, 'http://x');
    const api = pathname.startsWith('/v1/') || pathname.startsWith('/api/') || pathname === '/status.json' || (this.tools && pathname === '/page/mcp');
    if (!api) return this.pass(asked, answer);
    if (this.key && asked.headers.authorization !== `Bearer ${this.key}`) {
      return fault(answer, 401, 'an API key is needed, in the header: Authorization: Bearer KEY', 'invalid_api_key');
    }
    let body = '';
    for await (const part of asked) body += part;
    if (pathname === '/v1/models') {
      const model = (id) => ({ id, object: 'model', max_model_len: 4096, parent: null, ...this.states[id] });
      return json(answer, { object: 'list', data: this.models.map(model) });
    }
    if (pathname === '/api/show') return json(answer, { capabilities: this.capabilities, parameters: 'temperature                    0.8\ntop_k                          40' });
    if (pathname === '/status.json') {
      this.looked = search;
      return json(answer, this.status);
    }
    if (pathname === '/page/mcp') {
      if (asked.method === 'GET') return json(answer, { tools: this.tools });
      const call = JSON.parse(body);
      this.called.push(call);
      if (call.arguments.city === 'Oslo' && this.called.length < 3) return fault(answer, 502, 'sums: it has ended', 'tool_not_called');
      return json(answer, { content: `snow in ${call.arguments.city}`, is_error: false });
    }
    return this.chat(JSON.parse(body), answer);
  }

  pass(asked, answer) {
    const { host: _, ...headers } = asked.headers;
    const through = request(`${this.real}${asked.url}`, { method: asked.method, headers }, (reply) => {
      answer.writeHead(reply.statusCode, reply.headers);
      reply.pipe(answer);
    });
    through.on('error', () => answer.destroy());
    asked.pipe(through);
  }

  /** More of a text. */
  async complete(body, answer) {
    answer.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    for (const text of [' once', ' upon', ' a time.']) {
      answer.write(`data: ${JSON.stringify({ model: body.model, choices: [{ index: 0, text, finish_reason: null }] })}\n\n`);
    }
    answer.write(`data: ${JSON.stringify({ choices: [{ index: 0, text: '', finish_reason: 'stop' }] })}\n\n`);
    answer.end('data: [DONE]\n\n');
  }

  async chat(body, answer) {
    this.asked.push(body);
    if (body.prompt !== undefined) return this.complete(body, answer);
    const last = body.messages.at(-1);
    const said = typeof last.content === 'string' ? last.content : last.content.find((p) => p.type === 'text')?.text ?? '';
    if (said === 'refuse') return fault(answer, 400, 'temperature: must be at most 2', 'bad_value');
    if (said === 'base') {
      return fault(answer, 400, 'this model has no chat template: it continues texts (/v1/completions)', 'no_chat_template');
    }
    if (said === 'busy') {
      answer.setHeader('retry-after', '7');
      return fault(answer, 429, 'the queue is full: 64 requests wait', 'queue_full');
    }
    if (said === 'proxy') {
      answer.writeHead(502, { 'content-type': 'text/html' });
      return answer.end('<html>Bad Gateway</html>');
    }
    answer.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    answer.on('close', () => (this.left += answer.writableFinished ? 0 : 1));
    const send = (delta, more = {}) => {
      const choices = [{ index: 0, delta, logprobs: null, finish_reason: null, ...more }];
      answer.write(`data: ${JSON.stringify({ model: body.model, choices, usage: null })}\n\n`);
    };
    send({ role: 'assistant', content: '' });
    const end = (finish_reason = 'stop', usage = {}) => {
      send({}, { finish_reason });
      const counts = { prompt_tokens: 20, completion_tokens: 11, total_tokens: 31, ...usage };
      answer.write(`data: ${JSON.stringify({
        model: body.model,
        choices: [],
        usage: {
          prompt_tokens_details: { cached_tokens: 16 },
          completion_tokens_details: { reasoning_tokens: said.startsWith('think') ? 4 : 0 },
          ...counts,
        },
      })}\n\n`);
      answer.end('data: [DONE]\n\n');
    };
    const stream = async (whole, ms = 5, name = 'content') => {
      for (const piece of whole.match(/[^]{1,7}/g) ?? []) {
        if (answer.destroyed) return;
        send({ [name]: piece });
        await sleep(ms);
      }
    };
    if (body.continue_final_message) {
      await stream('and more.');
      return end();
    }
    if (last.role === 'tool') {
      await stream(`The tool said: ${said}`);
      return end();
    }
    if (said.startsWith('think')) {
      await stream('First I look at **both** sides.', 10, 'reasoning_content');
      await stream('The answer is 42.');
      return end();
    }
    if (said.startsWith('call') && body.tools) {
      const name = body.tools[0].function.name;
      const calls = said === 'call two' ? ['Rome', 'Oslo'] : ['Rome'];
      await stream('I have to look.', 2, 'reasoning_content');
      for (const [index, city] of calls.entries()) {
        send({ tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name, arguments: '' } }] });
        for (const piece of [`{"city"`, `: "${city}"}`]) {
          send({ tool_calls: [{ index, function: { arguments: piece } }] });
          await sleep(5);
        }
      }
      return end('tool_calls');
    }
    if (said === 'slow') {
      await stream('one two three four five six seven eight nine ten '.repeat(40), 25);
      return end();
    }
    if (said === 'fail') {
      await stream('It began well ');
      answer.write(`data: ${JSON.stringify({ error: { message: 'replica 0 is out of service: no pages', code: 'replica_failed' } })}\n\n`);
      return answer.end('data: [DONE]\n\n');
    }
    if (said === 'cut') {
      await stream('It began well ', 50);
      return answer.destroy();
    }
    if (said === 'long') {
      await stream('word '.repeat(10));
      return end('length');
    }
    if (said.startsWith('show ')) {
      await stream(text(said.slice(5)), 1);
      return end();
    }
    const images = body.messages.flatMap((m) => (Array.isArray(m.content) ? m.content : [])).filter((p) => p.type === 'image_url');
    await stream(`Answer ${this.asked.length} to “${said}”${images.length ? ` with ${images.length} image` : ''}.`, 90);
    end();
  }
}

function json(answer, value, status = 200) {
  answer.writeHead(status, { 'content-type': 'application/json' });
  answer.end(JSON.stringify(value));
}

function fault(answer, status, message, code) {
  json(answer, { error: { message, type: 'error', param: null, code } }, status);
}
