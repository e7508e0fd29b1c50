"""The same for ``asyncio``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from arclight import _requests
from arclight._forms import Tool
from arclight._llm import LLM, Perplexity, _chat, _Running
from arclight._outputs import EmbeddingRequestOutput, RequestOutput, ScoringRequestOutput
from arclight._params import SamplingParams
from arclight._requests import Asked, Messages, Prompt
from arclight._tokenizer import Tokenizer


class AsyncLLM:
    """:class:`LLM` with coroutines. A task that is cancelled ends its requests, which frees their place in the engine.

    Args:
        llm: A model that is loaded, which may be used by both. :meth:`load` loads one.
    """

    def __init__(self, llm: LLM):
        self.llm = llm

    @classmethod
    async def load(cls, model: str | os.PathLike[str] | None = None, **options: Any) -> AsyncLLM:
        """Loads a model in a thread of its own, with the arguments of :class:`LLM`."""
        return cls(await asyncio.to_thread(LLM, model, **options))

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Frees the model's memory."""
        await asyncio.to_thread(self.llm.close)

    async def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """As :meth:`LLM.generate`."""
        return await self._gather(_requests.texts(prompts, sampling_params))

    async def generate_stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """As :meth:`LLM.generate_stream`."""
        async for group, at, news in self._news(_requests.texts(prompts, sampling_params), stream=True):
            yield group.readers[at].piece(news)

    async def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """As :meth:`LLM.chat`."""
        return await self._gather(
            _chat(
                messages, sampling_params, tools, tool_choice, parallel_tool_calls, add_generation_prompt,
                continue_final_message, chat_template_kwargs,
            )  # fmt: skip
        )

    async def chat_stream(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """As :meth:`LLM.chat_stream`."""
        asked = _chat(
            messages, sampling_params, tools, tool_choice, parallel_tool_calls, add_generation_prompt,
            continue_final_message, chat_template_kwargs,
        )  # fmt: skip
        async for group, at, news in self._news(asked, stream=True):
            yield group.readers[at].piece(news)

    async def _gather(self, asked: list[Asked]) -> list[RequestOutput]:
        outputs: dict[int, RequestOutput] = {}
        async for group, at, news in self._news(asked, stream=False):
            outputs[group.at[at]] = group.readers[at].whole(news)
        return [outputs[at] for at in range(len(outputs))]

    async def _news(self, asked: list[Asked], stream: bool) -> AsyncIterator[tuple[Asked, int, dict[str, Any]]]:
        engine = self.llm._ready()
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            # A loop that is closed has nobody who waits.
            if not loop.is_closed():
                loop.call_soon_threadsafe(ready.set)

        # Templates and tokens of many prompts take a while.
        with await asyncio.to_thread(_Running, self.llm, engine, asked, stream) as running:
            open_groups = list(running.groups)
            for _, answers in open_groups:
                answers.on_ready(tell)
            while open_groups:
                ready.clear()
                quiet = True
                for group, answers in list(open_groups):
                    news = answers.wait(0)
                    for at, what in news:
                        if isinstance(what, Exception):
                            raise what
                        yield group, at, what
                    if answers.done:
                        running.check()
                        open_groups.remove((group, answers))
                    quiet = quiet and not news
                if quiet and open_groups:
                    await ready.wait()

    async def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        truncate: bool = False,
        adapter: str | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """As :meth:`LLM.embed`."""
        return await asyncio.to_thread(
            self.llm.embed, prompts, dimensions=dimensions, truncate=truncate, adapter=adapter
        )

    async def score(self, text_1: str | Sequence[str], text_2: str | Sequence[str]) -> list[ScoringRequestOutput]:
        """As :meth:`LLM.score`."""
        return await asyncio.to_thread(self.llm.score, text_1, text_2)

    async def perplexity(self, text: str | Sequence[int], *, context: int | None = None) -> Perplexity:
        """As :meth:`LLM.perplexity`."""
        return await asyncio.to_thread(self.llm.perplexity, text, context=context)

    async def logits(self, prompt: str | Sequence[int]) -> npt.NDArray[np.float32]:
        """As :meth:`LLM.logits`."""
        return await asyncio.to_thread(self.llm.logits, prompt)

    async def hidden_states(self, prompt: str | Sequence[int]) -> npt.NDArray[np.float32]:
        """As :meth:`LLM.hidden_states`."""
        return await asyncio.to_thread(self.llm.hidden_states, prompt)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """As :meth:`LLM.request`."""
        return await asyncio.to_thread(self.llm.request, method, path, body)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.llm.get_tokenizer()
