"""Arclight's models for LangChain: a chat model and embeddings, in this process.

>>> from arclight import LLM
>>> from langchain_arclight import ChatArclight
>>> chat = ChatArclight(llm=LLM(), temperature=0, max_tokens=20)
>>> bool(chat.invoke("Hello").content)
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arclight import LLM, CompletionOutput, RequestOutput, SamplingParams, StructuredOutputsParams
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr

__all__ = ["ArclightEmbeddings", "ChatArclight"]


class ChatArclight(BaseChatModel):
    """A chat model. Give it a model that is loaded (``llm``), or a ``model`` with ``options`` of :class:`arclight.LLM`,
    which is loaded with the first message."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: str | None = None
    """A file or a name; ``None``: the demo model."""
    llm: Any = Field(default=None, exclude=True)
    """A model that is loaded."""
    options: dict[str, Any] = Field(default_factory=dict)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    json_schema: dict[str, Any] | None = None
    """A schema that answers fit."""
    _loaded: LLM | None = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "arclight"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": self.temperature, "max_tokens": self.max_tokens}

    def _engine(self) -> LLM:
        if self.llm is not None:
            return self.llm
        if self._loaded is None:
            self._loaded = LLM(self.model, **self.options)
        return self._loaded

    def _asked(
        self, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], SamplingParams, dict[str, Any]]:
        names = ("temperature", "top_p", "top_k", "max_tokens", "seed")
        fields = {name: given.pop(name, getattr(self, name)) for name in names}
        schema = given.pop("json_schema", self.json_schema)
        form = StructuredOutputsParams(json=schema) if schema is not None else None
        more = {name: given[name] for name in ("tools", "tool_choice", "chat_template_kwargs") if name in given}
        converted = convert_to_openai_messages(messages)
        return list(converted), SamplingParams(stop=stop, structured_outputs=form, **fields), more

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked, params, more = self._asked(messages, stop, kwargs)
        output = self._engine().chat(asked, params, **more)[0]
        answer = output.outputs[0]
        calls = [_call(f"call_{output.request_id}_{at}", call) for at, call in enumerate(answer.tool_calls)]
        message = AIMessage(
            content=answer.text,
            additional_kwargs={"reasoning_content": answer.reasoning} if answer.reasoning else {},
            tool_calls=[call for call, whole in calls if whole],
            invalid_tool_calls=[
                {**call, "args": given.arguments, "error": "the call is cut off", "type": "invalid_tool_call"}
                for (call, whole), given in zip(calls, answer.tool_calls, strict=True)
                if not whole
            ],
            usage_metadata=_usage(output),
            response_metadata={"finish_reason": answer.finish_reason, "model_name": self._engine().name},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        asked, params, more = self._asked(messages, stop, kwargs)
        told: list[str] = []
        for output in self._engine().chat_stream(asked, params, **more):
            answer = output.outputs[0]
            calls = []
            for at, call in enumerate(answer.tool_calls):
                first = at == len(told)
                if first:
                    told.append("")
                new = call.arguments[len(told[at]) :]
                if first or new:
                    name, id = (call.name, f"call_{output.request_id}_{at}") if first else (None, None)
                    calls.append(tool_call_chunk(name=name, args=new, id=id, index=at))
                told[at] = call.arguments
            if not (answer.delta or calls or output.finished):
                continue
            chunk = AIMessageChunk(
                content=answer.delta,
                tool_call_chunks=calls,
                usage_metadata=_usage(output) if output.finished else None,
                response_metadata={"finish_reason": answer.finish_reason} if output.finished else {},
            )
            if run_manager and answer.delta:
                run_manager.on_llm_new_token(answer.delta)
            yield ChatGenerationChunk(message=chunk)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Tells the model of tools. ``tool_choice``: ``auto``, ``none``, ``any``, or a tool's name."""
        converted = [convert_to_openai_tool(tool) for tool in tools]
        choice: Any = "required" if tool_choice == "any" else tool_choice
        if choice is not None and choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        return super().bind(tools=converted, tool_choice=choice, **kwargs)


def _call(id: str, call: Any) -> tuple[Any, bool]:
    try:
        return tool_call(name=call.name, args=json.loads(call.arguments), id=id), True
    except ValueError:
        return {"name": call.name, "id": id}, False


def _usage(output: RequestOutput) -> UsageMetadata:
    answers: list[CompletionOutput] = output.outputs
    read, written = len(output.prompt_token_ids), sum(len(answer.token_ids) for answer in answers)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


class ArclightEmbeddings(Embeddings):
    """Texts as vectors of length one.

    Args:
        model: A file or a name.
        llm: A model that is loaded, instead.
        options: Arguments of :class:`arclight.LLM`.
    """

    def __init__(self, model: str | None = None, *, llm: LLM | None = None, **options: Any):
        self.llm = llm or LLM(model, **options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        return [found.outputs.embedding.tolist() for found in self.llm.embed(texts, truncate=True)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        return self.embed_documents([text])[0]
