"""The `anthropic` package: messages, streams, tools, counting."""

import json

import anthropic
import pytest
from conftest import CITY, KEY, MODEL, QUESTION, URL

TOOL = {"name": "look", "description": "Looks.", "input_schema": CITY}


@pytest.fixture
def client():
    return anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)


def ask(client, **more):
    # This version of the client has no word for the temperature any more.
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "extra_body": {"temperature": 0}}
    return client.messages.create(**{**body, **more})


def test_message_and_its_stream_say_the_same(client):
    whole = ask(client)
    assert whole.id.startswith("msg_") and whole.role == "assistant" and whole.type == "message"
    assert [block.type for block in whole.content] == ["text"]
    assert whole.stop_reason == ("end_turn" if whole.usage.output_tokens < 24 else "max_tokens")
    assert whole.usage.input_tokens + whole.usage.cache_read_input_tokens > 1

    kinds, text, events = [], "", ask(client, stream=True)
    for event in events:
        kinds.append(event.type)
        if event.type == "content_block_delta":
            text += event.delta.text
    assert text == whole.content[0].text
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]

    with client.messages.stream(
        model=MODEL, messages=QUESTION, max_tokens=24, extra_body={"temperature": 0}
    ) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    prompt = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == prompt


def test_the_cache_is_told(client):
    system = [{"type": "text", "text": "You are a kind old owl. " * 30, "cache_control": {"type": "ephemeral"}}]
    first = ask(client, system=system).usage
    second = ask(client, system=system).usage
    assert second.cache_read_input_tokens > 100
    both = [usage.input_tokens + usage.cache_read_input_tokens for usage in (first, second)]
    assert both[0] == both[1]


def test_stops(client):
    cut = ask(client, max_tokens=2)
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2
    text = ask(client).content[0].text
    stop = text.split(" ")[1]
    stopped = ask(client, stop_sequences=["never", stop])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)
    assert stopped.content[0].text == text[: text.index(stop)]


def test_an_answer_can_be_begun(client):
    begun = [*QUESTION, {"role": "assistant", "content": "My name is"}]
    answer = ask(client, messages=begun)
    assert not answer.content or not answer.content[0].text.startswith("My name is")
    assert ask(client, messages=begun).content == answer.content


def test_tools(client):
    choice = {"type": "tool", "name": "look", "disable_parallel_tool_use": True}
    body = {"tools": [TOOL], "tool_choice": choice, "max_tokens": 400}
    answer = ask(client, **body)
    assert answer.stop_reason == "tool_use"
    call = answer.content[-1]
    assert call.type == "tool_use" and call.id.startswith("toolu_") and call.name == "look"
    assert call.input["city"] in ("Rome", "Oslo")

    with client.messages.stream(
        model=MODEL, messages=QUESTION, extra_body={"temperature": 0}, **body
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert pieces and final.content[-1].input == call.input

    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    after = ask(client, messages=messages, tools=[TOOL], tool_choice={"type": "none"})
    assert after.stop_reason in ("end_turn", "max_tokens")


def test_schema(client):
    form = {"format": {"type": "json_schema", "schema": CITY}}
    answer = ask(client, output_config=form, max_tokens=400)
    assert json.loads(answer.content[0].text)["city"] in ("Rome", "Oslo")


def test_counting(client):
    count = client.messages.count_tokens(model=MODEL, messages=QUESTION, system="Be brief.")
    usage = ask(client, system="Be brief.").usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_errors(client):
    with pytest.raises(anthropic.AuthenticationError) as fault:
        ask(anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0))
    assert fault.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as fault:
        ask(client, model="other")
    assert fault.value.body["error"]["type"] == "not_found_error" and fault.value.request_id
    for more in [
        {"messages": []},
        {"tools": [{"type": "oracle_20300101", "name": "oracle"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"extra_headers": {"anthropic-version": "2023-01-01"}},
    ]:
        with pytest.raises(anthropic.BadRequestError) as fault:
            ask(client, **more)
        assert fault.value.body["type"] == "error"
        assert fault.value.body["error"]["type"] == "invalid_request_error"


def test_tools_that_nobody_can_run_are_left_out(client):
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    raw = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=8, messages=QUESTION, tools=tools, tool_choice={"type": "auto"}
    )
    assert raw.headers["x-arclight-left-out"] == "web_search_20250305"
    assert raw.parse().usage.output_tokens <= 8
