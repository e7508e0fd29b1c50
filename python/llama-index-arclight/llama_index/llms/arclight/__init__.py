"""Arclight's models for LlamaIndex, in this process.

>>> from arclight import LLM
>>> from llama_index.llms.arclight import Arclight
>>> llm = Arclight(llm=LLM(), temperature=0, max_tokens=8)
>>> bool(llm.complete("Once upon a time").text)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclight import LLM, RequestOutput, SamplingParams
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

__all__ = ["Arclight"]


class Arclight(CustomLLM):
    """A model: one that is loaded (``llm``), or a ``model`` with ``options`` of :class:`arclight.LLM`."""

    model: str | None = Field(default=None, description="A file or a name; none for the demo model.")
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of arclight.LLM.")
    temperature: float | None = Field(default=None, description="0 takes the likeliest token.")
    max_tokens: int = Field(default=512, description="Most tokens of an answer.")
    sampling: dict[str, Any] = Field(default_factory=dict, description="More fields of SamplingParams.")
    _engine: LLM = PrivateAttr()

    def __init__(self, *, llm: LLM | None = None, **fields: Any):
        super().__init__(**fields)
        self._engine = llm or LLM(self.model, **self.options)

    @classmethod
    def class_name(cls) -> str:
        """Its name in files."""
        return "Arclight"

    @property
    def metadata(self) -> LLMMetadata:
        """Sizes and name."""
        return LLMMetadata(
            context_window=self._engine.max_model_len,
            num_output=self.max_tokens,
            is_chat_model=self._engine.tokenizer.chat_template is not None,
            model_name=self._engine.name,
        )

    def _params(self, given: dict[str, Any]) -> SamplingParams:
        return SamplingParams(**{"temperature": self.temperature, "max_tokens": self.max_tokens, **self.sampling, **given})

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Continues a text."""
        output = self._engine.generate(prompt, self._params(kwargs))[0]
        return CompletionResponse(text=output.outputs[0].text, additional_kwargs=_counts(output))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Continues a text, piece by piece."""
        outputs = self._engine.generate_stream(prompt, self._params(kwargs))

        def pieces() -> CompletionResponseGen:
            for output in outputs:
                answer = output.outputs[0]
                yield CompletionResponse(text=answer.text, delta=answer.delta)

        return pieces()

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answers a conversation."""
        output = self._engine.chat(_messages(messages), self._params(kwargs))[0]
        return ChatResponse(message=_answer(output), additional_kwargs=_counts(output))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answers a conversation, piece by piece."""
        outputs = self._engine.chat_stream(_messages(messages), self._params(kwargs))

        def pieces() -> ChatResponseGen:
            for output in outputs:
                yield ChatResponse(message=_answer(output), delta=output.outputs[0].delta)

        return pieces()


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [{"role": message.role.value, "content": message.content or ""} for message in messages]


def _answer(output: RequestOutput) -> ChatMessage:
    return ChatMessage(role=MessageRole.ASSISTANT, content=output.outputs[0].text)


def _counts(output: RequestOutput) -> dict[str, int]:
    read, written = len(output.prompt_token_ids), len(output.outputs[0].token_ids)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
