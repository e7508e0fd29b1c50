// The `openai` package of JavaScript: chat completions and responses, whole and as streams.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';

const [url, apiKey] = [process.env.ARCLIGHT_URL, process.env.ARCLIGHT_CLIENT_KEY];
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const body = {
  model: 'demo',
  messages: [{ role: 'user', content: 'What is your name?' }],
  temperature: 0,
  max_tokens: 24,
};
const city = {
  type: 'object',
  properties: { city: { enum: ['Rome', 'Oslo'] } },
  required: ['city'],
  additionalProperties: false,
};

test('a chat and its stream say the same', async () => {
  const whole = await client.chat.completions.create(body);
  const { content } = whole.choices[0].message;
  assert.ok(content.length > 0);
  let text = '';
  let usage = null;
  const options = { include_usage: true };
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true, stream_options: options })) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, content);
  assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
});

test('vectors come as base64 and as numbers', async () => {
  const ask = { model: 'demo', input: ['The dog', 'a cat'] };
  const packed = await client.embeddings.create(ask);
  const plain = await client.embeddings.create({ ...ask, encoding_format: 'float' });
  assert.deepEqual(
    packed.data.map((item) => item.embedding.map(Math.fround)),
    plain.data.map((item) => item.embedding.map(Math.fround)),
  );
});

test('the stream helper puts calls together', async () => {
  const stream = client.chat.completions.stream({
    ...body,
    max_tokens: 400,
    tools: [{ type: 'function', function: { name: 'look', parameters: city } }],
    tool_choice: { type: 'function', function: { name: 'look' } },
    parallel_tool_calls: false,
  });
  const final = await stream.finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
  assert.ok(['Rome', 'Oslo'].includes(JSON.parse(call.function.arguments).city));
});

test('an aborted stream leaves the server well', async () => {
  const stream = await client.chat.completions.create({ ...body, max_tokens: 200, stream: true });
  for await (const _ of stream) break;
  stream.controller.abort();
  const after = await client.chat.completions.create(body);
  assert.ok(after.choices[0].message.content);
});

test('a response and its stream say the same', async () => {
  const ask = { model: 'demo', input: 'What is your name?', temperature: 0, max_output_tokens: 24 };
  const whole = await client.responses.create(ask);
  assert.ok(whole.output_text.length > 0);
  const stream = client.responses.stream(ask);
  let text = '';
  stream.on('response.output_text.delta', (event) => (text += event.delta));
  for await (const event of stream) assert.ok(event.sequence_number >= 0);
  assert.equal(text, whole.output_text);
  const second = await client.responses.create({ ...ask, previous_response_id: whole.id, input: 'And mine?' });
  assert.equal(second.previous_response_id, whole.id);
});

test('errors have their classes', async () => {
  await assert.rejects(client.chat.completions.create({ ...body, model: 'other' }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...body, temperature: -1 }), (error) => {
    return error instanceof OpenAI.BadRequestError && error.param === 'temperature';
  });
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});
