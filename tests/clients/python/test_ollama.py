"""The `ollama` package: chat, generate, and what models there are."""

import json

import ollama
import pytest
from conftest import CITY, KEY, MODEL, QUESTION, URL

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": CITY}}
OPTIONS = {"temperature": 0, "num_predict": 24}


@pytest.fixture
def client():
    return ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})


def test_chat_and_its_stream_say_the_same(client):
    whole = client.chat(MODEL, QUESTION, options=OPTIONS)
    assert whole.done and whole.done_reason in ("stop", "length") and whole.message.content
    assert whole.total_duration >= whole.load_duration + whole.prompt_eval_duration
    assert whole.eval_count <= 24 and whole.prompt_eval_count > 1

    lines = list(client.chat(f"{MODEL}:latest", QUESTION, options=OPTIONS, stream=True))
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "".join(line.message.content for line in lines) == whole.message.content
    assert lines[-1].eval_count == whole.eval_count and lines[-1].eval_duration > 0
    assert lines[0].created_at < lines[-1].created_at


def test_embed(client):
    two = client.embed(MODEL, ["The dog", "a cat"])
    assert len(two.embeddings) == 2 and two.prompt_eval_count >= 2 and two.total_duration > 0
    one = client.embed(f"{MODEL}:latest", "The dog", dimensions=4)
    assert len(one.embeddings[0]) == 4


def test_options(client):
    stop = client.chat(MODEL, QUESTION, options=OPTIONS).message.content.split(" ")[1]
    cut = client.chat(MODEL, QUESTION, options={**OPTIONS, "stop": [stop]})
    assert stop not in cut.message.content and cut.done_reason == "stop"
    two = client.chat(MODEL, QUESTION, options={**OPTIONS, "num_predict": 2})
    assert two.eval_count == 2 and two.done_reason == "length"
    hot = {"temperature": 1.5, "seed": 5, "num_predict": 12}
    assert (
        client.chat(MODEL, QUESTION, options=hot).message.content
        == client.chat(MODEL, QUESTION, options=hot).message.content
    )
    for options in [{"num_ctx": 1 << 30}, {"repeat_penalty": 1.1, "repeat_last_n": 64}]:
        assert client.chat(MODEL, QUESTION, options={**options, "num_predict": 4}).eval_count == 4
    for options in [{"mirostat": 2}, {"temperature": -1.0}]:
        with pytest.raises(ollama.ResponseError) as fault:
            client.chat(MODEL, QUESTION, options=options)
        assert fault.value.status_code == 400


def test_format(client):
    answer = client.chat(MODEL, QUESTION, format=CITY, options={**OPTIONS, "num_predict": 400})
    assert json.loads(answer.message.content)["city"] in ("Rome", "Oslo")


def test_tools_are_taken(client):
    # Nothing forces a call here; the request and its history must be understood.
    call = {"function": {"name": "look", "arguments": {"city": "Rome"}}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "look", "content": "rain"},
    ]
    answer = client.chat(MODEL, messages, tools=[TOOL], options=OPTIONS)
    assert answer.done_reason in ("stop", "length")


def test_generate(client):
    whole = client.generate(MODEL, "What is your name?", options=OPTIONS)
    assert whole.response == client.chat(MODEL, QUESTION, options=OPTIONS).message.content
    lines = list(client.generate(MODEL, "What is your name?", options=OPTIONS, stream=True))
    assert "".join(line.response for line in lines) == whole.response
    assert list(lines[-1].context) == list(whole.context)
    # The context of one exchange is where the next goes on.
    after = client.generate(MODEL, "And mine?", context=whole.context, options=OPTIONS)
    assert list(after.context)[: len(whole.context)] == list(whole.context)
    assert after.prompt_eval_count > len(whole.context)


def test_generate_raw_and_with_a_template(client):
    raw = client.generate(MODEL, "Once upon a", raw=True, options=OPTIONS)
    assert raw.response and raw.context is None
    template = "{{ if .System }}{{ .System }} {{ end }}{{ .Prompt }}{{ .Response }} never"
    same = client.generate(MODEL, "upon a", system="Once", template=template, options=OPTIONS)
    assert same.response == raw.response
    for more in [{"raw": True, "template": "x"}, {"template": "{{ .Tools }}"}, {"suffix": "end"}]:
        with pytest.raises(ollama.ResponseError) as fault:
            client.generate(MODEL, "a", **more)
        assert fault.value.status_code == 400


def test_loading_is_no_work(client):
    assert client.generate(MODEL, "", keep_alive="5m").done_reason == "load"
    assert client.chat(MODEL, [], keep_alive=-1).done_reason == "load"


def test_models(client):
    (model,) = client.list().models
    assert model.model == f"{MODEL}:latest" and model.size > 0 and len(model.digest) == 64
    shown = client.show(MODEL)
    assert "completion" in shown.capabilities and shown.template and shown.details.format == "gguf"
    architecture = shown.modelinfo["general.architecture"]
    assert isinstance(shown.modelinfo[f"{architecture}.context_length"], int)
    (running,) = client.ps().models
    assert running.context_length > 0 and running.expires_at > model.modified_at


def test_errors(client):
    with pytest.raises(ollama.ResponseError) as fault:
        client.chat("other", QUESTION)
    assert fault.value.status_code == 404 and "other" in fault.value.error
    with pytest.raises(ollama.ResponseError) as fault:
        ollama.Client(host=URL).chat(MODEL, QUESTION)
    assert fault.value.status_code == 401
    # The endpoint that `embed` has replaced.
    assert list(client.embeddings(MODEL, "text").embedding) == list(client.embed(MODEL, "text").embeddings[0])
    with pytest.raises(ollama.ResponseError) as fault:
        client.pull("other")
    assert fault.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as fault:
        client.embed(MODEL, "word " * 100_000, truncate=False)
    assert fault.value.status_code == 400
