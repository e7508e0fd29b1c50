"""Arclight's models for the ``llm`` command, in this process.

``llm -m arclight-demo 'Hello'`` asks the demo model; ``llm arclight add qwen3:4b`` makes ``arclight/qwen3:4b`` known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import llm
from arclight import LLM, SamplingParams, StructuredOutputsParams
from pydantic import Field

DEMO = "arclight-demo"
_loaded: dict[str | None, LLM] = {}


def _file() -> Path:
    return llm.user_dir() / "arclight.json"


def _known() -> list[str]:
    """Models that were added."""
    if not _file().exists():
        return []
    found: list[str] = json.loads(_file().read_text())
    return found


def _load(model: str | None) -> LLM:
    if model not in _loaded:
        _loaded[model] = LLM(model)
    return _loaded[model]


@llm.hookimpl
def register_models(register: Any) -> None:
    """The demo model and those that were added."""
    register(Arclight(DEMO, None))
    for model in _known():
        register(Arclight(f"arclight/{model}", model))


@llm.hookimpl
def register_embedding_models(register: Any) -> None:
    """The same, for vectors."""
    register(ArclightEmbedding(DEMO, None))
    for model in _known():
        register(ArclightEmbedding(f"arclight/{model}", model))


@llm.hookimpl
def register_commands(cli: Any) -> None:
    """``llm arclight``."""

    @cli.group()
    def arclight() -> None:
        """Models of Arclight"""

    @arclight.command()
    @click.argument("model")
    def add(model: str) -> None:
        """Makes a model known: a GGUF file, or a name such as qwen3:4b"""
        known = _known()
        model = str(Path(model).resolve()) if Path(model).exists() else model
        if model not in known:
            _file().parent.mkdir(parents=True, exist_ok=True)
            _file().write_text(json.dumps([*known, model], indent=2))
        click.echo(f"arclight/{model}")

    @arclight.command()
    @click.argument("model")
    def remove(model: str) -> None:
        """Forgets a model; its file stays"""
        known = _known()
        if model not in known:
            raise click.ClickException(f"{model} is not known: there are {', '.join(known) or 'none'}")
        _file().write_text(json.dumps([one for one in known if one != model], indent=2))


class Arclight(llm.Model):
    """A model of the command."""

    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        """What ``-o`` can say."""

        temperature: float | None = Field(default=None, description="0 takes the likeliest token")
        max_tokens: int | None = Field(default=None, description="Most tokens of the answer")
        top_p: float | None = Field(default=None, description="Share of the probability to draw from")
        seed: int | None = Field(default=None, description="The same seed gives the same answer")

    def __init__(self, model_id: str, model: str | None):
        self.model_id, self._model = model_id, model

    def __str__(self) -> str:
        return f"Arclight: {self.model_id}"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None = None
    ) -> Iterator[str]:
        """Answers a prompt."""
        engine = _load(self._model)
        messages = []
        for before in conversation.responses if conversation else []:
            messages.append({"role": "user", "content": before.prompt.prompt or ""})
            messages.append({"role": "assistant", "content": before.text()})
        messages.append({"role": "user", "content": prompt.prompt or ""})
        system = prompt.system or next(
            (before.prompt.system for before in (conversation.responses if conversation else []) if before.prompt.system),
            None,
        )
        if system:
            messages.insert(0, {"role": "system", "content": system})
        given = {name: value for name, value in dict(prompt.options).items() if value is not None}
        form = StructuredOutputsParams(json=prompt.schema) if prompt.schema else None
        params = SamplingParams(**{"max_tokens": None, **given}, structured_outputs=form)
        output = None
        for output in engine.chat_stream(messages, params):
            if stream and output.outputs[0].delta:
                yield output.outputs[0].delta
        if output is None:
            return
        if not stream:
            yield output.outputs[0].text
        response.set_usage(input=len(output.prompt_token_ids), output=len(output.outputs[0].token_ids))


class ArclightEmbedding(llm.EmbeddingModel):
    """A model of ``llm embed``."""

    supports_text = True

    def __init__(self, model_id: str, model: str | None):
        self.model_id, self._model = model_id, model

    def embed_batch(self, items: Iterable[str | bytes]) -> Iterator[list[float]]:
        """A vector for each text."""
        texts = [item if isinstance(item, str) else item.decode() for item in items]
        for found in _load(self._model).embed(texts, truncate=True):
            yield found.outputs.embedding.tolist()
