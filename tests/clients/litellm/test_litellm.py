"""The `litellm` package, which speaks three of the protocols, and the `openai` package it brings."""

import os

import litellm
import pytest

URL = os.environ["ARCLIGHT_URL"]
KEY = os.environ["ARCLIGHT_CLIENT_KEY"]
QUESTION = [{"role": "user", "content": "What is your name?"}]
WAYS = {
    "openai/demo": f"{URL}/v1",
    "anthropic/demo": URL,
    "ollama_chat/demo": URL,
}


def ask(way, **more):
    body = {"model": way, "api_base": WAYS[way], "api_key": KEY, "messages": QUESTION}
    return litellm.completion(**{**body, "temperature": 0, "max_tokens": 24, "num_retries": 0, **more})


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_say_the_same(way):
    whole = ask(way)
    text = whole.choices[0].message.content
    assert text == ask("openai/demo").choices[0].message.content
    assert whole.usage.completion_tokens <= 24
    chunks = list(ask(way, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("way", ["openai/demo", "anthropic/demo"])
def test_tools(way):
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    choice = {"type": "function", "function": {"name": "look"}}
    answer = ask(way, tools=[tool], tool_choice=choice, max_tokens=400, parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "look"
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("way", WAYS)
def test_errors(way):
    with pytest.raises(litellm.exceptions.AuthenticationError):
        ask(way, api_key="wrong")
