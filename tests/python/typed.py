"""A program as its author's mypy sees it."""

from collections.abc import AsyncIterator

import numpy as np
from typing_extensions import assert_type

from arclight import LLM, AsyncLLM, CompletionOutput, Prompt, RequestOutput, SamplingParams, StructuredOutputsParams
from arclight.compat.llama_cpp import Llama


def look(city: str) -> str:
    """Looks."""
    return city


def sync() -> None:
    with LLM("model.gguf", max_model_len=256, threads=2, adapters={"sql": "sql.gguf"}) as llm:
        assert_type(llm, LLM)
        prompts: list[Prompt] = ["a", [1, 2], {"prompt": "c"}]
        outputs = llm.generate(prompts, SamplingParams(temperature=0, stop=["x"]))
        assert_type(outputs, list[RequestOutput])
        assert_type(outputs[0].outputs[0], CompletionOutput)
        assert_type(llm.chat([{"role": "user", "content": "a"}], tools=[look])[0].outputs[0].text, str)
        assert_type(llm.tokenizer.apply_chat_template([], tokenize=False), str)
        assert_type(llm.tokenizer.apply_chat_template([]), list[int])
        assert_type(llm.logits("a").dtype, np.dtype[np.float32])
        SamplingParams(structured_outputs=StructuredOutputsParams(choice=["a"]))


async def coroutines(llm: AsyncLLM) -> None:
    stream = llm.generate_stream("a")
    assert_type(stream, AsyncIterator[RequestOutput])
    assert_type(await llm.generate("a"), list[RequestOutput])


def other() -> None:
    assert_type(Llama("model.gguf").tokenize(b"a"), list[int])
    LLM(3)  # type: ignore[arg-type]
    SamplingParams(max_token=3)  # type: ignore[call-arg]
