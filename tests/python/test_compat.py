"""`llama_cpp.Llama`'s methods."""

import json

import pytest
from conftest import DEMO, HELLO, peft

from arclight import SamplingParams
from arclight.compat.llama_cpp import Llama, LlamaGrammar


@pytest.fixture(scope="module")
def llama():
    with Llama(str(DEMO), n_ctx=1024, n_gpu_layers=-1, verbose=False) as llama:
        yield llama


def test_completions(llama, llm):
    whole = llama("Once upon", max_tokens=6, temperature=0, echo=True, logprobs=2)
    want = llm.generate("Once upon", SamplingParams(temperature=0, max_tokens=6))[0].outputs[0].text
    choice = whole["choices"][0]
    assert choice["text"] == "Once upon" + want and choice["finish_reason"] == "length"
    assert whole["object"] == "text_completion" and whole["model"] == str(DEMO)
    assert len(choice["logprobs"]["token_logprobs"]) == whole["usage"]["total_tokens"] == 8
    pieces = list(llama.create_completion("Once upon", max_tokens=6, temperature=0, stream=True))
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == want
    tokens = llama.tokenize(b"Once upon")
    assert llama(tokens, max_tokens=6, temperature=0)["choices"][0]["text"] == want
    assert llama("Once upon", max_tokens=6, seed=1)["choices"] == llama("Once upon", max_tokens=6, seed=1)["choices"]
    likeliest = llama("Once upon", max_tokens=6, top_k=1, temperature=2.0)["choices"][0]["text"]
    assert likeliest == llama("Once upon", max_tokens=6, min_p=1.0, temperature=2.0)["choices"][0]["text"] == want
    unlimited = llama("Once upon", max_tokens=None, temperature=0, stop=["."])["choices"][0]
    assert unlimited["finish_reason"] == "stop" and "." not in unlimited["text"]


def test_conversations(llama, llm):
    want = llm.chat(HELLO, SamplingParams(temperature=0, max_tokens=100))[0].outputs[0].text
    answer = llama.create_chat_completion(HELLO, temperature=0)
    assert answer["choices"][0]["message"]["content"] == want
    pieces = llama.create_chat_completion(HELLO, temperature=0, stream=True)
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert deltas[0]["role"] == "assistant" and "".join(delta.get("content") or "" for delta in deltas) == want
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["n"]}
    schema["additionalProperties"] = False
    forced = llama.create_chat_completion(HELLO, response_format={"type": "json_object", "schema": schema})
    assert json.loads(forced["choices"][0]["message"]["content"])["n"] < 100
    tool = {"type": "function", "function": {"name": "look", "parameters": schema}}
    called = llama.create_chat_completion(HELLO, tools=[tool], tool_choice="required", temperature=0, max_tokens=400)
    assert called["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"


def test_grammars(llama):
    gbnf = LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert llama("x", grammar=gbnf)["choices"][0]["text"] in ("yes", "no")
    schema = LlamaGrammar.from_json_schema('{"enum": ["a", "b"]}')
    assert llama("x", grammar=schema)["choices"][0]["text"] in ('"a"', '"b"')


def test_tokens_and_vectors(llama, llm):
    text = "grüß dich".encode()
    tokens = llama.tokenize(text)
    assert llama.detokenize(tokens) == text and llama.detokenize(tokens[2:], prev_tokens=tokens[:2]) == llama.detokenize(tokens)[len(llama.detokenize(tokens[:2])):]
    assert (llama.n_ctx(), llama.n_embd(), llama.n_vocab()) == (1024, 256, 2048)
    assert llama.token_eos() == llm.tokenizer.eos_token_id and llama.token_bos() >= -1
    assert llama.embed("a") == llm.embed("a")[0].outputs.embedding.tolist()
    vectors, count = llama.embed(["a", "b c"], return_count=True)
    assert len(vectors) == 2 and count == sum(len(llm.tokenizer.encode(text)) for text in ["a", "b c"])
    data = llama.create_embedding(["a", "b"])["data"]
    assert data[0]["embedding"] == pytest.approx(llama.embed("a"), abs=1e-7)
    assert llama.metadata["general.architecture"] == "qwen3"


def test_what_cannot_be_is_refused(llama, tmp_path):
    for arguments in [{"mirostat_mode": 2}, {"typical_p": 0.5}, {"stopping_criteria": []}, {"logits_processor": []}]:
        with pytest.raises(ValueError, match="not supported"):
            llama("a", **arguments)
    for options in [{"chat_format": "other"}, {"nonsense": 1}, {"type_k": 99}, {"type_v": 99}]:
        with pytest.raises(ValueError):
            Llama(DEMO, verbose=False, **options)
    with pytest.raises(FileNotFoundError):
        Llama("nowhere.gguf", verbose=False)
    with Llama(DEMO, n_ctx=0, type_k=8, type_v=8, n_threads=1, verbose=False, lora_path=peft(tmp_path / "a", 1)) as other:
        assert other.n_ctx() == 2048
        assert other("Once", temperature=0)["choices"] != llama("Once", temperature=0)["choices"]
