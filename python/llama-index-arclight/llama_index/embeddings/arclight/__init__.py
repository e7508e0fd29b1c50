"""Texts as vectors by Arclight's models, for LlamaIndex, in this process."""

from __future__ import annotations

import asyncio
from typing import Any

from arclight import LLM
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr

__all__ = ["ArclightEmbedding"]


class ArclightEmbedding(BaseEmbedding):
    """An embedding model: one that is loaded (``llm``), or a ``model`` with ``options`` of :class:`arclight.LLM`."""

    model: str | None = Field(default=None, description="A file or a name; none for the demo model.")
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of arclight.LLM.")
    _engine: LLM = PrivateAttr()

    def __init__(self, *, llm: LLM | None = None, **fields: Any):
        super().__init__(**fields)
        self._engine = llm or LLM(self.model, **self.options)
        self.model_name = self._engine.name

    @classmethod
    def class_name(cls) -> str:
        """Its name in files."""
        return "ArclightEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [found.outputs.embedding.tolist() for found in self._engine.embed(texts, truncate=True)]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
