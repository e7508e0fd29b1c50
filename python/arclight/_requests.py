"""Requests as the engine takes them, for :class:`LLM` and :class:`AsyncLLM` alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arclight import _native
from arclight._forms import Tool, tool_of
from arclight._outputs import Reader
from arclight._params import SamplingParams, to_json

Prompt = str | Sequence[int] | Mapping[str, Any]
Messages = Sequence[Mapping[str, Any]]


def prompts_of(prompts: Prompt | Sequence[Prompt]) -> list[str | Sequence[int]]:
    """A list of texts and lists of tokens, of all that prompts may be given as.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(prompts, (str, Mapping)):
        return [_prompt(prompts)]
    try:
        several = list(prompts)
    except TypeError:
        raise TypeError(f"prompts must be a text, a list of token ids, or a list of such, and not {prompts!r}") from None
    if several and not isinstance(several[0], (str, Mapping, Sequence)) and hasattr(several[0], "__index__"):
        return [_prompt(several)]
    return [_prompt(prompt) for prompt in several]


def _prompt(prompt: Any) -> str | Sequence[int]:
    if isinstance(prompt, Mapping):
        for name in ("prompt_token_ids", "prompt"):
            if (value := prompt.get(name)) is not None:
                return _prompt(value)
        raise TypeError(f"a prompt must have 'prompt' or 'prompt_token_ids', and has {sorted(prompt)}")
    if isinstance(prompt, str):
        return prompt
    try:
        return [int(token) for token in prompt]
    except (TypeError, ValueError):
        raise TypeError(f"a prompt must be a str, a list of token ids or a dict, and not {prompt!r}") from None


def params_of(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """One for each prompt.

    Raises:
        ValueError: There are not as many.
    """
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ValueError(f"there are {count} prompts and {len(params)} sampling parameters")
    return list(params)


def _reader(at: int, params: SamplingParams) -> Reader:
    form = params.structured_outputs.json if params.structured_outputs else None
    return Reader(str(at), params.n, frozenset(params.stop_token_ids or ()), form)


@dataclass
class Asked:
    """Some requests of a call that the engine takes together: which of the call's, and how they are read."""

    texts: list[str | Sequence[int]]
    bodies: list[bytes]
    fields: bytes
    echo: bool
    at: list[int]
    readers: list[Reader]

    def begin(self, engine: _native.Engine, stream: bool) -> _native.Answers:
        """Starts them."""
        if self.bodies:
            return engine.converse(self.bodies, stream)
        return engine.ask(self.texts, self.fields, stream, self.echo)


def texts(prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None) -> list[Asked]:
    """Texts to be continued, in groups of equal parameters."""
    all_texts = prompts_of(prompts)
    groups: dict[bytes, Asked] = {}
    for at, (text, of) in enumerate(zip(all_texts, params_of(params, len(all_texts)), strict=True)):
        fields = of._of_text()
        group = groups.setdefault(fields, Asked([], [], fields, of.prompt_logprobs is not None, [], []))
        group.texts.append(text)
        group.at.append(at)
        group.readers.append(_reader(at, of))
    return list(groups.values())


def conversations(
    messages: Messages | Sequence[Messages],
    params: SamplingParams | Sequence[SamplingParams] | None,
    tools: Sequence[Tool] | None,
    more: Mapping[str, Any],
) -> list[Asked]:
    """Conversations to be answered."""
    if len(messages) == 0:
        return []
    several: Sequence[Messages] = [messages] if isinstance(messages[0], Mapping) else messages  # type: ignore[assignment,list-item]
    given = {name: value for name, value in more.items() if value is not None}
    if tools:
        given["tools"] = [tool_of(tool) for tool in tools]
    asked = Asked([], [], b"", False, [], [])
    for at, (one, of) in enumerate(zip(several, params_of(params, len(several)), strict=True)):
        asked.bodies.append(to_json({**of._of_chat(), **given, "messages": list(one)}))
        asked.at.append(at)
        asked.readers.append(_reader(at, of))
    return [asked]
