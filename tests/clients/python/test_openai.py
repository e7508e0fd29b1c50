"""The `openai` package: chat completions, completions, responses, models."""

import asyncio
import json

import openai
import pytest
from conftest import CITY, KEY, MODEL, QUESTION, URL

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": CITY}}


@pytest.fixture
def client():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def ask(client, **more):
    body = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    return client.chat.completions.create(**{**body, **more})


def test_models(client):
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).object == "model"
    with pytest.raises(openai.NotFoundError) as fault:
        client.models.retrieve("other")
    assert fault.value.code == "model_not_found"


def test_chat_and_its_stream_say_the_same(client):
    whole = ask(client, logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = whole.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 24
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    assert "".join(t.token for t in choice.logprobs.content).startswith(choice.message.content)
    assert len(choice.logprobs.content[0].top_logprobs) == 2

    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    said = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(d.content or "" for d in said) == choice.message.content
    assert [d.role for d in said].count("assistant") == 1 and said[0].role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_embeddings(client):
    # The client asks for base64 unless it is told otherwise.
    texts = ["The dog", "a cat", "The dog"]
    packed = client.embeddings.create(model=MODEL, input=texts)
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    assert [e.index for e in packed.data] == [0, 1, 2]
    for one, other in zip(packed.data, plain.data):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
    assert packed.data[0].embedding == packed.data[2].embedding != packed.data[1].embedding
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1, abs=1e-5)
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 3
    short = client.embeddings.create(model=MODEL, input="a", dimensions=4)
    assert len(short.data[0].embedding) == 4


def test_stream_helper_accumulates(client):
    with client.chat.completions.stream(
        model=MODEL, messages=QUESTION, temperature=0, max_completion_tokens=24
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.content == ask(client).choices[0].message.content


def test_choices_stop_strings_and_bias(client):
    three = ask(client, n=3, temperature=1.2, seed=3)
    assert [c.index for c in three.choices] == [0, 1, 2]
    assert len({c.message.content for c in three.choices}) > 1
    again = ask(client, n=3, temperature=1.2, seed=3)
    assert [c.message.content for c in again.choices] == [c.message.content for c in three.choices]
    text = ask(client).choices[0].message.content
    stop = text.split(" ")[1]
    assert ask(client, stop=[stop]).choices[0].message.content == text[: text.index(stop)]


def test_json_schema(client):
    form = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": CITY}}
    answer = ask(client, response_format=form, max_tokens=400)
    assert json.loads(answer.choices[0].message.content)["city"] in ("Rome", "Oslo")
    with pytest.raises(openai.BadRequestError) as fault:
        bad = {"name": "c", "schema": {"$ref": "https://example.com/schema"}}
        ask(client, response_format={"type": "json_schema", "json_schema": bad})
    assert fault.value.param == "response_format"


def test_tools(client):
    choice = {"type": "function", "function": {"name": "look"}}
    body = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 400}
    answer = ask(client, **body).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    assert call.id.startswith("call_") and call.function.name == "look"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")

    deltas = [
        c.choices[0].delta.tool_calls[0]
        for c in ask(client, **body, stream=True)
        if c.choices and c.choices[0].delta.tool_calls
    ]
    assert all(d.index == 0 for d in deltas) and deltas[0].function.name == "look"
    assert "".join(d.function.arguments or "" for d in deltas) == call.function.arguments

    # The call and its result go back.
    messages = QUESTION + [
        answer.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    assert ask(client, messages=messages, tools=[TOOL]).choices[0].message.content is not None


def test_completions(client):
    body = {"model": MODEL, "max_tokens": 4, "temperature": 0}
    two = client.completions.create(prompt=["Once upon a", "The dog"], echo=True, logprobs=1, **body)
    assert [c.text.startswith(p) for c, p in zip(two.choices, ["Once upon a", "The dog"])] == [True, True]
    offsets = two.choices[0].logprobs.text_offset
    assert offsets[0] == 0 and offsets == sorted(offsets)
    parts = client.completions.create(prompt="Once upon a", stream=True, **body)
    assert "Once upon a" + "".join(p.choices[0].text for p in parts) == two.choices[0].text


def test_errors(client):
    with pytest.raises(openai.AuthenticationError):
        ask(openai.OpenAI(base_url=f"{URL}/v1", api_key="wrong", max_retries=0))
    with pytest.raises(openai.NotFoundError) as fault:
        ask(client, model="other")
    assert fault.value.code == "model_not_found" and fault.value.request_id
    with pytest.raises(openai.BadRequestError) as fault:
        ask(client, temperature=-1)
    assert fault.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as fault:
        ask(client, messages=[{"role": "user", "content": "word " * 100_000}])
    assert fault.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as fault:
        client.embeddings.create(model=MODEL, input="text", dimensions=1 << 20)
    assert fault.value.param == "dimensions"
    # Moderation is not here.
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(model=MODEL, input="text")


def test_many_at_once():
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as client:
            alone = [(await ask(client, seed=i, temperature=1)).choices[0].message.content for i in range(6)]
            together = await asyncio.gather(*(ask(client, seed=i, temperature=1) for i in range(6)))
            return alone, [t.choices[0].message.content for t in together]

    alone, together = asyncio.run(run())
    assert alone == together


# Responses.


def respond(client, **more):
    body = {"model": MODEL, "input": "What is your name?", "temperature": 0, "max_output_tokens": 24}
    return client.responses.create(**{**body, **more})


def test_response_and_its_stream_say_the_same(client):
    whole = respond(client)
    assert whole.id.startswith("resp_") and whole.output_text
    assert whole.output_text == ask(client).choices[0].message.content
    assert whole.status == ("completed" if whole.usage.output_tokens < 24 else "incomplete")
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole.usage.input_tokens_details.cached_tokens <= whole.usage.input_tokens

    events = list(respond(client, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{whole.status}",
    ]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text


def test_response_is_cut_at_the_limit(client):
    cut = respond(client, max_output_tokens=2)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"
    assert cut.usage.output_tokens == 2 and cut.output[0].status == "incomplete"
    last = list(respond(client, max_output_tokens=2, stream=True))[-1]
    assert last.type == "response.incomplete"


def test_responses_go_on_from_each_other(client):
    first = respond(client, instructions="You are an owl.", metadata={"a": "b"})
    assert first.instructions == "You are an owl." and first.metadata == {"a": "b"}
    second = respond(client, previous_response_id=first.id, input="And mine?")
    history = [*QUESTION, {"role": "assistant", "content": first.output_text}]
    history.append({"role": "user", "content": "And mine?"})
    assert second.output_text == ask(client, messages=history).choices[0].message.content
    assert second.previous_response_id == first.id

    kept = client.responses.retrieve(second.id)
    assert kept.output_text == second.output_text
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.type for item in items] == ["message"] * 3
    # An item can be given by its id alone.
    reference = {"type": "item_reference", "id": first.output[0].id}
    again = respond(client, input=[*QUESTION, reference, {"role": "user", "content": "And mine?"}])
    assert again.output_text == second.output_text

    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as fault:
        respond(client, previous_response_id=second.id)
    assert fault.value.code == "previous_response_not_found"
    forgotten = respond(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(forgotten.id)


def test_response_tools(client):
    tool = {"type": "function", "name": "look", "parameters": CITY, "strict": True}
    body = {
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False,
        "max_output_tokens": 400,
    }
    whole = respond(client, **body)
    call = next(item for item in whole.output if item.type == "function_call")
    assert call.call_id.startswith("call_") and call.status == "completed"
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    with client.responses.stream(
        model=MODEL, input="What is your name?", temperature=0, **body
    ) as stream:
        deltas = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == call.arguments
    assert final.output[-1].arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    after = respond(client, previous_response_id=whole.id, input=[result])
    assert after.status in ("completed", "incomplete")


def test_response_tools_of_other_types(client):
    # A pattern leaves a small model no way out.
    patch = {"type": "custom", "name": "patch", "description": "Patches.",
             "format": {"type": "grammar", "syntax": "regex", "definition": "[ab]{2}"}}
    body = {
        "tools": [patch, {"type": "web_search"}],
        "tool_choice": {"type": "custom", "name": "patch"},
        "parallel_tool_calls": False,
        "max_output_tokens": 400,
    }
    whole = respond(client, **body)
    call = whole.output[-1]
    assert call.type == "custom_tool_call" and call.name == "patch"
    assert len(call.input) == 2 and set(call.input) <= {"a", "b"}
    events = list(client.responses.create(
        model=MODEL, input="What is your name?", temperature=0, stream=True, **body
    ))
    done = next(e for e in events if e.type == "response.custom_tool_call_input.done")
    assert done.input == call.input
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}
    assert respond(client, previous_response_id=whole.id, input=[result]).output_text
    shell = respond(client, tools=[{"type": "shell"}], tool_choice={"type": "shell"},
                    parallel_tool_calls=False, max_output_tokens=300)
    # This model never ends its command, and one that was cut off must not be run.
    assert shell.status == "incomplete" and not shell.output


def test_compaction(client):
    said = [{"role": "user", "content": "What is your name?"}]
    compacted = client.responses.compact(model=MODEL, input=said)
    assert compacted.object == "response.compaction" and compacted.output[-1].type == "compaction"
    window = [item.model_dump() for item in compacted.output]
    again = respond(client, input=[*window, {"role": "user", "content": "And now?"}])
    assert again.status in ("completed", "incomplete")


def test_response_schema_and_logprobs(client):
    form = {"format": {"type": "json_schema", "name": "c", "schema": CITY, "strict": True}}
    answer = respond(client, text=form, max_output_tokens=400)
    assert json.loads(answer.output_text)["city"] in ("Rome", "Oslo")
    told = respond(client, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=3)
    part = told.output[0].content[0]
    assert len(part.logprobs) == 3 and len(part.logprobs[0].top_logprobs) == 2


def test_response_errors(client):
    for more, param in [
        ({"background": True}, "background"),
        ({"tools": [{"type": "telepathy"}]}, "tools[0].type"),
        ({"input": [{"type": "computer_call_output"}]}, "input[0].type"),
        ({"temperature": -1}, "temperature"),
    ]:
        with pytest.raises(openai.BadRequestError) as fault:
            respond(client, **more)
        assert fault.value.param == param
    assert client.responses.input_tokens.count(model=MODEL, input="Hello").input_tokens > 1
