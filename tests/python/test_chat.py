"""Conversations, tools, forms of answers."""

import enum
import json
import re
from typing import Annotated, Literal

import pydantic
import pytest
from conftest import HELLO

from arclight import SamplingParams, StructuredOutputsParams, ToolCall

GREEDY = SamplingParams(temperature=0, max_tokens=300)


def test_an_answer_is_that_of_the_server(llm):
    (output,) = llm.chat(HELLO, GREEDY)
    served = llm.request("POST", "/v1/chat/completions", {"messages": HELLO, "temperature": 0, "max_tokens": 300})
    answer = output.outputs[0]
    assert answer.text == served["choices"][0]["message"]["content"]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)
    assert len(answer.token_ids) == served["usage"]["completion_tokens"]
    assert len(output.prompt_token_ids) == served["usage"]["prompt_tokens"]
    prompt = llm.tokenizer.apply_chat_template(HELLO, tokenize=False)
    assert output.prompt == prompt and output.prompt_token_ids == llm.tokenizer.apply_chat_template(HELLO)
    *_, last = llm.chat_stream(HELLO, GREEDY)
    assert last.outputs[0].text == answer.text and last.finished


def test_several_conversations_are_answered_in_order(llm):
    several = [HELLO, [{"role": "user", "content": "Who are you?"}], HELLO]
    outputs = llm.chat(several, GREEDY)
    assert outputs[0].outputs[0].text == outputs[2].outputs[0].text != outputs[1].outputs[0].text
    assert llm.chat([]) == []


def test_an_answer_goes_on_with_the_last_message(llm):
    begun = [*HELLO, {"role": "assistant", "content": "Good day to"}]
    (output,) = llm.chat(begun, GREEDY, add_generation_prompt=False, continue_final_message=True)
    assert output.prompt.endswith("Good day to")


def weather(
    city: str, days: int = 3, unit: Literal["C", "F"] = "C", tags: list[str] | None = None,
    exact: Annotated[bool, "With decimals"] = False,
) -> str:  # fmt: skip
    """Tells the weather
    in a city.

    More of it.

    Args:
        city: Its name,
            as people write it.
        days (int): How many days.

    Returns:
        The weather.
    """
    return f"{city}: rain"


def test_functions_are_tools(llm):
    required = llm.chat(HELLO, GREEDY, tools=[weather], tool_choice="required", parallel_tool_calls=False)
    answer = required[0].outputs[0]
    assert answer.finish_reason == "tool_calls" and len(answer.tool_calls) == 1
    call = answer.tool_calls[0]
    assert call.name == "weather" and isinstance(call.parsed()["city"], str)
    assert weather(**call.parsed()).endswith(": rain")
    *_, last = llm.chat_stream(HELLO, GREEDY, tools=[weather], tool_choice="required", parallel_tool_calls=False)
    assert last.outputs[0].tool_calls == answer.tool_calls
    named = {"type": "function", "function": {"name": "weather"}}
    assert llm.chat(HELLO, GREEDY, tools=[weather], tool_choice=named)[0].outputs[0].tool_calls[0].name == "weather"
    assert llm.chat(HELLO, GREEDY, tools=[weather], tool_choice="none")[0].outputs[0].tool_calls == []
    with pytest.raises(json.JSONDecodeError):
        ToolCall("a", '{"b').parsed()
    with pytest.raises(ValueError, match="no tools"):
        llm.chat(HELLO, GREEDY, tool_choice="required")


def test_a_function_says_its_schema(llm):
    from arclight._forms import tool_of

    function = tool_of(weather)["function"]
    assert (function["name"], function["description"]) == ("weather", "Tells the weather in a city.")
    parameters = function["parameters"]
    assert parameters["required"] == ["city"]
    assert parameters["properties"] == {
        "city": {"type": "string", "description": "Its name, as people write it."},
        "days": {"type": "integer", "description": "How many days."},
        "unit": {"enum": ["C", "F"]},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "exact": {"type": "boolean", "description": "With decimals"},
    }
    shown = llm.tokenizer.apply_chat_template(HELLO, tools=[weather], tokenize=False)
    assert "as people write it" in shown

    def sphinx(name: str):
        """Finds it.

        :param name: What it is called.
        """

    assert tool_of(sphinx)["function"]["parameters"]["properties"]["name"]["description"] == "What it is called."
    given = {"type": "function", "function": {"name": "x"}}
    assert tool_of(given) == given


def test_functions_that_are_no_tools():
    from arclight._forms import tool_of

    def bare(x): ...
    def many(*x: int): ...
    def strange(x: re.Pattern[str]): ...

    for wrong, says in [(bare, "annotation"), (many, "named in a call"), (3, "must be a function")]:
        with pytest.raises(TypeError, match=says):
            tool_of(wrong)
    # Pydantic knows a schema for patterns.
    assert tool_of(strange)["function"]["parameters"]["properties"]["x"]["type"] == "string"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Duck(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(max_length=12, pattern="^[A-Za-z]+$")]
    age: Annotated[int, pydantic.Field(ge=0, le=9)]
    colour: Colour


def form(**fields):
    return GREEDY.clone(structured_outputs=StructuredOutputsParams(**fields))


def test_answers_have_the_form_of_a_model(llm):
    (output,) = llm.chat(HELLO, form(json=Duck))
    duck = output.outputs[0].parsed()
    assert isinstance(duck, Duck)
    (plain,) = llm.generate("A duck: ", form(json=Duck.model_json_schema()))
    assert Duck(**plain.outputs[0].parsed()) and isinstance(plain.outputs[0].parsed(Duck), Duck)
    # A schema that is closed ends by itself.
    (typed,) = llm.generate("Colours: ", form(json=Annotated[list[Colour], pydantic.Field(min_length=1, max_length=2)]))
    assert all(isinstance(one, Colour) for one in typed.outputs[0].parsed())
    cut = llm.generate("A duck: ", form(json=Duck).clone(max_tokens=2))[0].outputs[0]
    with pytest.raises(ValueError):
        cut.parsed()


def test_other_forms(llm):
    def answer(**fields):
        return llm.generate("Say: ", form(**fields))[0].outputs[0].text

    assert re.fullmatch("[a-c]{3}-[0-9]", answer(regex="[a-c]{3}-[0-9]"))
    assert answer(choice=["yes", "no"]) in ("yes", "no")
    assert re.fullmatch("(ab)+", answer(grammar='start: "ab" | "ab" start'))
    for fields, says in [
        ({}, "exactly one"), ({"regex": "a", "choice": ["b"]}, "exactly one"), ({"regex": "("}, "unclosed"),
        ({"json": {"type": "nothing"}}, "nothing"), ({"grammar": "x"}, "grammar"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=says):
            answer(**fields)
    with pytest.raises(TypeError, match="no JSON schema"):
        answer(json=re)


def test_tokens_and_texts(llm):
    tokenizer = llm.tokenizer
    text = "The duck says grüß dich 🦆"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.token_bytes(id) for id in ids).decode() == text == tokenizer.decode_bytes(ids).decode()
    assert "�" in tokenizer.decode(ids[:-1])
    assert len(tokenizer) == tokenizer.vocab_size == 2048
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end == tokenizer.eos_token_id and end in tokenizer.eog_token_ids
    assert tokenizer.decode([end]) == "<|im_end|>" and tokenizer.decode(end, skip_special_tokens=True) == ""
    assert tokenizer.encode("<|im_end|>") != [end] == tokenizer.encode("<|im_end|>", parse_special=True)
    assert tokenizer.token_bytes(99999) is None and tokenizer.convert_tokens_to_ids("no such token") is None
    with pytest.raises(ValueError, match="99999"):
        tokenizer.decode([99999])
    with pytest.raises(ValueError, match="no role"):
        tokenizer.apply_chat_template([{"role": "nobody"}])


def test_the_http_api_is_there(llm):
    assert llm.request("GET", "/v1/models")["data"][0]["id"] == llm.name == "arclight-demo"
    message = llm.request("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 20, "model": llm.name})
    assert message["content"][0]["type"] == "text"
    pieces = b"".join(llm.request("POST", "/v1/completions", {"prompt": "a", "stream": True, "max_tokens": 3}))
    assert pieces.endswith(b"data: [DONE]\n\n")
    assert llm.status()["model"] == llm.name and llm.metadata["general.architecture"] == "qwen3"
