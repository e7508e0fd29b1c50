"""Arclight's models in LangChain, LlamaIndex and llm, with their own packages."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest
from conftest import DEMO, HELLO

from arclight import SamplingParams

GREEDY = {"temperature": 0, "max_tokens": 200}


def answer(llm):
    return llm.chat(HELLO, SamplingParams(**GREEDY))[0].outputs[0].text


class TestLangChain:
    @pytest.fixture
    def chat(self, llm):
        from langchain_arclight import ChatArclight

        return ChatArclight(llm=llm, **GREEDY)

    def test_answers(self, chat, llm):
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

        message = chat.invoke("Hello")
        assert message.content == answer(llm) and message.response_metadata["finish_reason"] == "stop"
        assert message.usage_metadata["output_tokens"] > 0
        assert chat.invoke([SystemMessage("Be kind."), HumanMessage("Hello"), AIMessage("Hi"), HumanMessage("Hello")]).content
        chunks = list(chat.stream("Hello"))
        whole = sum(chunks[1:], chunks[0])
        assert whole.content == message.content and len(chunks) > 3
        assert whole.usage_metadata == message.usage_metadata
        assert [m.content for m in chat.batch(["Hello", "Hello"])] == [message.content] * 2
        assert asyncio.run(chat.ainvoke("Hello")).content == message.content
        assert chat.invoke("Hello", stop=[message.content.split()[1]]).content.strip() == message.content.split()[0]

    def test_tools_and_forms(self, chat):
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool

        class Wanted(pydantic.BaseModel):
            """The weather."""

            days: int = pydantic.Field(ge=0, le=9)

        @tool(args_schema=Wanted)
        def weather(days: int) -> str:
            """The weather."""
            return "rain"

        bound = chat.bind_tools([weather], tool_choice="any")
        message = bound.invoke("Hello")
        call = message.tool_calls[0]
        assert call["name"] == "weather" and weather.invoke(call["args"]) == "rain"
        chunks = list(bound.stream("Hello"))
        assert sum(chunks[1:], chunks[0]).tool_calls[0]["args"] == call["args"]
        assert chat.invoke([HumanMessage("Hello"), message, ToolMessage("rain", tool_call_id=call["id"])]).content is not None
        assert isinstance(chat.with_structured_output(Wanted).invoke("Hello"), Wanted)

    def test_vectors(self, llm):
        from langchain_arclight import ArclightEmbeddings

        vectors = ArclightEmbeddings(llm=llm)
        assert vectors.embed_documents(["a", "b"])[1] == pytest.approx(vectors.embed_query("b"), abs=1e-6)


class TestLlamaIndex:
    def test_answers(self, llm):
        from llama_index.core.llms import ChatMessage
        from llama_index.llms.arclight import Arclight

        model = Arclight(llm=llm, **GREEDY)
        want = llm.generate("Once upon a time", SamplingParams(**GREEDY))[0].outputs[0].text
        assert model.complete("Once upon a time").text == want
        *_, last = model.stream_complete("Once upon a time")
        assert last.text == want
        assert model.chat([ChatMessage(content="Hello")]).message.content == answer(llm)
        assert "".join(part.delta for part in model.stream_chat([ChatMessage(content="Hello")])) == answer(llm)
        assert model.metadata.context_window == 2048 and model.metadata.is_chat_model
        assert asyncio.run(model.acomplete("Once upon a time")).text == want

    def test_vectors(self, llm):
        from llama_index.embeddings.arclight import ArclightEmbedding

        model = ArclightEmbedding(llm=llm)
        assert model.get_text_embedding("a") == pytest.approx(model.get_query_embedding("a"))
        assert len(model.get_text_embedding_batch(["a", "b", "c"])) == 3


class TestLlm:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
        program = Path(sys.executable).parent / "llm"

        def run(*args):
            done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        return run

    def test_answers(self, run, llm):
        options = ["-o", "temperature", 0, "-o", "max_tokens", 200]
        assert run("-m", "arclight-demo", *options, "Hello") == answer(llm)
        assert run("-m", "arclight-demo", "--no-stream", *options, "Hello") == answer(llm)
        assert run("-c", "Hello")
        form = run("-m", "arclight-demo", *options, "--schema", '{"enum": ["a", "b"]}', "Hello")
        assert json.loads(form) in ("a", "b")
        logged = json.loads(run("logs", "-n", 1, "--json"))[0]
        assert logged["input_tokens"] > 0 and logged["output_tokens"] > 0

    def test_models_are_added_and_removed(self, run):
        name = run("arclight", "add", DEMO)
        assert name == f"arclight/{DEMO}" and name in run("models")
        assert run("-m", name, "-o", "max_tokens", 5, "Hello")
        run("arclight", "remove", DEMO)
        assert name not in run("models")

    def test_vectors(self, run, llm):
        vector = json.loads(run("embed", "-m", "arclight-demo", "-c", "a"))
        assert vector == pytest.approx(llm.embed("a")[0].outputs.embedding.tolist(), abs=1e-6)
