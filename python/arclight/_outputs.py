"""What comes back: names are vLLM's, where it has them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from arclight._forms import parse_as


@dataclass(frozen=True)
class Logprob:
    """How likely a token was.

    Attributes:
        logprob: Natural logarithm of its probability in the model's own softmax, before temperature and penalties.
        rank: 1 for the likeliest token, and so on; ``None`` for one that is not among those that were asked for.
        decoded_token: Its text; parts of characters are U+FFFD.
        bytes: What it stands for.
    """

    logprob: float
    rank: int | None
    decoded_token: str
    bytes: bytes


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model called.

    Attributes:
        name: The tool.
        arguments: Its arguments as JSON text, which may be cut off if the answer is.
    """

    name: str
    arguments: str

    def parsed(self) -> Any:
        """The arguments as a ``dict``.

        Raises:
            json.JSONDecodeError: They are cut off.
        """
        return json.loads(self.arguments)


@dataclass
class CompletionOutput:
    """An answer.

    Attributes:
        index: Which of the answers to its prompt.
        text: What the model wrote, without reasoning, calls and stop strings.
        token_ids: All tokens of the answer, those of reasoning and calls too, without the one that ended it.
        cumulative_logprob: Sum of the log-probabilities; ``None`` if none were asked for.
        logprobs: For each of ``token_ids``, the token itself and the likeliest ones.
        finish_reason: ``"stop"``, ``"length"``, ``"tool_calls"``; ``None`` while it goes on.
        stop_reason: The stop string that ended it, or the token out of ``stop_token_ids``; ``None`` otherwise.
        reasoning: What the model thought.
        tool_calls: The tools that it called.
        delta: Of a stream, the text that the last piece has added.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    delta: str = ""
    _form: Any = field(default=None, repr=False, compare=False)

    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None

    def parsed(self, form: Any = None) -> Any:
        """The text as a value of ``form``, or of what ``structured_outputs.json`` was: an object of the Pydantic model,
        or what ``json.loads`` gives.

        Raises:
            ValueError: It is not of that form, because it is cut off (``finish_reason == "length"``).
        """
        return parse_as(self._form if form is None else form, self.text)


@dataclass(frozen=True)
class RequestMetrics:
    """How a request was served. Times are in seconds; of several answers the last one's.

    Attributes:
        time_in_queue: Before its first step; 0 where an answer ended at a stop string.
        first_token_time: From the call to the first token.
        generation_time: From the first token to the last.
        cached_tokens: Tokens of the prompt that were not computed: an earlier one began alike.
    """

    time_in_queue: float
    first_token_time: float
    generation_time: float
    cached_tokens: int


@dataclass
class RequestOutput:
    """A prompt and its answers.

    Attributes:
        request_id: Number of the prompt in its call.
        prompt: Its text; of a conversation, what the chat template made of it.
        prompt_token_ids: Its tokens.
        prompt_logprobs: For each of its tokens, as in ``CompletionOutput.logprobs``; ``None`` for the first.
        outputs: ``n`` answers.
        finished: Whether all have ended.
        metrics: How it was served; ``None`` while it goes on.
    """

    request_id: str
    prompt: str = ""
    prompt_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: RequestMetrics | None = None

    @property
    def num_cached_tokens(self) -> int | None:
        """Tokens of the prompt that were not computed."""
        return None if self.metrics is None else self.metrics.cached_tokens


@dataclass(frozen=True)
class EmbeddingOutput:
    """A vector: float32, ``[dimensions]``, of length one."""

    embedding: npt.NDArray[np.float32]


@dataclass(frozen=True)
class EmbeddingRequestOutput:
    """A text's vector."""

    request_id: str
    outputs: EmbeddingOutput


@dataclass(frozen=True)
class ScoringOutput:
    """How well a text answers another."""

    score: float


@dataclass(frozen=True)
class ScoringRequestOutput:
    """The score of a pair."""

    request_id: str
    outputs: ScoringOutput


def _logprobs(tokens: list[Any]) -> list[dict[int, Logprob] | None]:
    def one(id: int, data: bytes, logprob: float, rank: int | None) -> Logprob:
        return Logprob(logprob, rank, data.decode("utf-8", "replace"), data)

    found: list[dict[int, Logprob] | None] = []
    for id, data, logprob, top in tokens:
        if logprob is None:
            found.append(None)
            continue
        ranked = {other: one(other, text, value, at + 1) for at, (other, text, value) in enumerate(top)}
        found.append({id: ranked.get(id) or one(id, data, logprob, None), **ranked})
    return found


def _add_logprobs(output: CompletionOutput, tokens: list[Any]) -> None:
    if tokens:
        output.logprobs = (output.logprobs or []) + [entry or {} for entry in _logprobs(tokens)]
        output.cumulative_logprob = (output.cumulative_logprob or 0.0) + sum(token[2] for token in tokens)


def _metrics(finish: dict[str, Any]) -> RequestMetrics:
    return RequestMetrics(finish["queued"], finish["first"], finish["rest"], finish["cached_tokens"])


def _end(output: CompletionOutput, finish: dict[str, Any], stop_tokens: frozenset[int]) -> None:
    output.finish_reason = finish["reason"]
    token = finish["end_token"]
    output.stop_reason = finish["stop"] or (token if token in stop_tokens else None)


class Reader:
    """Makes one output of what the engine tells."""

    def __init__(self, request_id: str, n: int, stop_tokens: frozenset[int], form: Any = None):
        self.output = RequestOutput(request_id, outputs=[CompletionOutput(at, _form=form) for at in range(n)])
        self._stop_tokens = stop_tokens

    def _prompt(self, prompt: dict[str, Any]) -> None:
        self.output.prompt, self.output.prompt_token_ids = prompt["text"], prompt["ids"]
        if prompt["logprobs"]:
            self.output.prompt_logprobs = _logprobs(prompt["logprobs"])

    def whole(self, answer: dict[str, Any]) -> RequestOutput:
        """All of an answer."""
        self._prompt(answer["prompt"])
        for output, choice in zip(self.output.outputs, answer["choices"], strict=True):
            output.text, output.reasoning, output.token_ids = choice["text"], choice["reasoning"], choice["ids"]
            output.tool_calls = [ToolCall(*call) for call in choice["calls"]]
            _add_logprobs(output, choice["logprobs"])
            _end(output, choice["finish"], self._stop_tokens)
            self.output.metrics = _metrics(choice["finish"])
        self.output.finished = True
        return self.output

    def piece(self, piece: dict[str, Any]) -> RequestOutput:
        """One more piece; the output so far."""
        if "prompt" in piece:
            self._prompt(piece["prompt"])
        output = self.output.outputs[piece["choice"]]
        for other in self.output.outputs:
            other.delta = ""
        output.delta = piece.get("text", "")
        output.text += output.delta
        output.reasoning += piece.get("reasoning", "")
        output.token_ids += piece["ids"]
        if "call" in piece:
            index, name, arguments = piece["call"]
            if name is not None:
                output.tool_calls.append(ToolCall(name, ""))
            else:
                call = output.tool_calls[index]
                output.tool_calls[index] = ToolCall(call.name, call.arguments + arguments)
        _add_logprobs(output, piece["logprobs"])
        if "finish" in piece:
            _end(output, piece["finish"], self._stop_tokens)
            self.output.metrics = _metrics(piece["finish"])
        self.output.finished = all(output.finished() for output in self.output.outputs)
        return self.output
