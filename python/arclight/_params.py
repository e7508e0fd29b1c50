"""How answers are made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arclight._forms import schema_of


@dataclass
class StructuredOutputsParams:
    """What an answer must look like; one of these fields. The answer is complete when it ends by itself
    (``finish_reason == "stop"``): a limit on tokens may cut it off.

    Attributes:
        json: A JSON schema as ``dict`` or text, a Pydantic model, or any type that ``pydantic.TypeAdapter`` knows.
        regex: A regular expression that the whole answer matches.
        choice: Texts, one of which is the answer.
        grammar: A grammar in Lark's language.
        json_object: Any JSON object.
    """

    json: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def _fields(self) -> dict[str, Any]:
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        given = {name: value for name, value in given.items() if value is not None and value is not False}
        if len(given) != 1:
            raise ValueError(
                "structured outputs need exactly one of json, regex, choice, grammar and json_object, "
                f"and have {sorted(given) or 'none'}"
            )
        if "json" in given:
            given["json"] = schema_of(given["json"])
        if "choice" in given:
            given["choice"] = list(given["choice"])
        return given


@dataclass
class SamplingParams:
    """How tokens are chosen and how an answer ends. Names and defaults are vLLM's, but for ``max_tokens``.

    Attributes:
        n: Answers to each prompt. They share what is computed of it.
        temperature: Divisor of the logits; 0 takes the likeliest token. ``None``: the model's loading option ``temp``,
            or 1. The same holds for ``top_p``, ``top_k``, ``min_p`` and ``repetition_penalty``, whose defaults are off.
        top_p: Share of the probability, in (0, 1], from whose likeliest tokens is drawn.
        top_k: Number of likeliest tokens from which is drawn; 0 and -1 are all.
        min_p: Least probability as a share of the likeliest token's, in [0, 1].
        presence_penalty: Taken off the logits of tokens that the answer has.
        frequency_penalty: Taken off a token's logit for each time that the answer has it.
        repetition_penalty: Factor above 0 against tokens of prompt and answer; 1 is none.
        seed: The same seed gives the same answer, whatever else is computed at the time. The second of ``n`` answers
            has ``seed + 1``. ``None``: another one for every prompt.
        stop: Texts that end the answer, which then ends before them; 64 at most.
        stop_token_ids: Tokens that end it.
        ignore_eos: Go on after tokens with which the model ends a text.
        max_tokens: Most tokens of an answer; ``None``: as many as the context holds.
        min_tokens: Tokens before which the answer does not end.
        logprobs: Gives the log-probability of each token, and of so many likeliest ones, 20 at most.
        prompt_logprobs: The same for the prompt's tokens but the first, which takes a pass over all of them.
        logit_bias: Token ids, and what is added to their logits, from -100 to 100.
        structured_outputs: What the answer must look like.
        truncate_prompt_tokens: Last tokens of the prompt that are read; -1: as many as the context holds.
        priority: Lower ones are computed first.
        adapter: Name of a LoRA adapter that the model was loaded with.
        lora: Adapters by their numbers and factors: ``[{"id": 0, "scale": 0.5}]``; ``[]`` for none.
    """

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    truncate_prompt_tokens: int | None = None
    priority: int = 0
    adapter: str | None = None
    lora: Sequence[Mapping[str, float]] | None = field(default=None)

    def clone(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def _fields(self) -> dict[str, Any]:
        """The fields of a request, as the server knows them."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "min_tokens",
                "truncate_prompt_tokens",
            )
        }  # fmt: skip
        given["presence_penalty"] = self.presence_penalty or None
        given["frequency_penalty"] = self.frequency_penalty or None
        given["ignore_eos"] = self.ignore_eos or None
        given["priority"] = self.priority or None
        given["model"] = self.adapter
        if self.stop is not None:
            given["stop"] = self.stop if isinstance(self.stop, str) else list(self.stop)
        if self.stop_token_ids is not None:
            given["stop_token_ids"] = list(self.stop_token_ids)
        if self.logit_bias is not None:
            given["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        if self.structured_outputs is not None:
            given["structured_outputs"] = self.structured_outputs._fields()
        if self.lora is not None:
            given["lora"] = [dict(one) for one in self.lora]
        return {name: value for name, value in given.items() if value is not None}

    def _of_text(self) -> bytes:
        """For texts to be continued."""
        fields = self._fields()
        limits = {"max_tokens": self.max_tokens, "logprobs": self.logprobs, "echo": self.prompt_logprobs}
        return to_json(fields | {name: value for name, value in limits.items() if value is not None})

    def _of_chat(self) -> dict[str, Any]:
        """For conversations."""
        if self.prompt_logprobs is not None:
            raise ValueError(
                "prompt_logprobs goes with generate, not with chat: render the conversation with "
                "tokenizer.apply_chat_template"
            )
        fields = self._fields()
        fields["max_tokens"] = -1 if self.max_tokens is None else self.max_tokens
        if self.logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": self.logprobs}
        return fields


def to_json(value: Any) -> bytes:
    """Any value as JSON.

    Raises:
        ValueError: It has something that JSON does not, such as NaN.
        TypeError: It has objects of other types.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
