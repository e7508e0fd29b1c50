"""A model in this process."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from arclight import _native, _requests
from arclight._forms import Tool
from arclight._outputs import (
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from arclight._params import SamplingParams, to_json
from arclight._requests import Asked, Messages, Prompt, prompts_of
from arclight._tokenizer import Tokenizer

_FOREVER = 1e9
_LOGGED = threading.Lock()
_logs = False


def _log() -> None:
    global _logs
    with _LOGGED:
        if not _logs:
            _native.log_warnings()
            _logs = True


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes:
        perplexity: ``exp`` of the mean negative log-likelihood of the scored tokens.
        standard_error: Of ``perplexity``.
        scored: Tokens that were scored.
        chunks: Pieces into which the text was cut.
    """

    perplexity: float
    standard_error: float
    scored: int
    chunks: int


class LLM:
    """A model that is loaded, and answers many requests at once.

    All requests of all threads go through one queue and share the steps of the engine, as in ``arclight serve``; a
    token's bits do not depend on what else is computed. Calls release the interpreter's lock. Ctrl-C ends what the main
    thread waits for, and the model can be used on. As a context manager it frees its memory at the end.

    Args:
        model: A GGUF file, a folder of the Hugging Face Hub, or a name such as ``qwen3:4b`` or ``OWNER/REPO:QUANT``,
            which is fetched if it is not on this machine. ``None``: the built-in demo model.
        max_model_len: Tokens that a prompt and its answer can have. ``None``: the model's, if memory allows.
        max_num_seqs: Requests that are computed at once. More wait.
        adapters: LoRA adapters by the names that ``SamplingParams.adapter`` gives them: files or folders.
        enable_prefix_caching: Keep what was computed for requests that begin alike.
        progress: Show a bar while the model is loaded. ``None``: on a terminal.
        options: Any other option of ``arclight serve``, by its name with ``_`` for ``-``: ``threads=8``,
            ``kv_type="q8_0"``, ``numa="mirror"``, ``replicas=2``, ``cache_dir="cache"``, ``temp=0.7``,
            ``speculate="..."``, ``mmproj="..."``, ``offline=True``.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: An option cannot be, or is about a server.
        MemoryError: There is too little memory.
        RuntimeError: The file cannot be read or run.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        max_model_len: int | None = None,
        max_num_seqs: int = 32,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        enable_prefix_caching: bool = True,
        progress: bool | None = None,
        **options: Any,
    ):
        _log()
        args = [] if model is None else [f"--model={os.fspath(model)}"]
        options = {"parallel": max_num_seqs, "ctx": max_model_len, **options}
        if not enable_prefix_caching:
            options["no_prefix_cache"] = True
        if adapters:
            named = [f"{name}={os.fspath(path)}" for name, path in adapters.items()]
            given = options.get("lora") or []
            options["lora"] = named + ([given] if isinstance(given, str) else list(given))
        for name, value in options.items():
            args += _option(name, value)
        bar = _Bar(progress)
        with bar:
            self._engine = _native.Engine(args, bar)
        self._pid = os.getpid()
        self._closed = False
        self._running: weakref.WeakSet[_Running] = weakref.WeakSet()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({self._engine.name!r}{', closed' if self._closed else ''})"

    def close(self) -> None:
        """Frees the model's memory. Requests that other threads wait for fail."""
        if not self._closed:
            self._closed = True
            for running in list(self._running):
                running.close()
            self._engine.close()

    def _ready(self) -> _native.Engine:
        if self._closed:
            raise RuntimeError("this LLM is closed")
        if os.getpid() != self._pid:
            raise RuntimeError("an LLM cannot be used in a process that was forked after it was loaded: load it there")
        return self._engine

    # Generation.

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
    ) -> list[RequestOutput]:
        """Continues texts, as many at once as ``max_num_seqs`` says.

        Args:
            prompts: A text, a list of token ids, ``{"prompt": …}`` or ``{"prompt_token_ids": …}``, or a list of such.
            sampling_params: How; one for all or one for each.
            use_tqdm: Show a bar. ``None``: for several prompts, on a terminal.

        Returns:
            An output for each prompt, in their order.

        Raises:
            ValueError: A prompt or a parameter cannot be; nothing is computed then.
        """
        return self._gather(_requests.texts(prompts, sampling_params), use_tqdm)

    def generate_stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[RequestOutput]:
        """Continues texts and gives an output each time that it has grown: one object for each prompt, the same every
        time. Its ``outputs[…].delta`` is the text that is new. Closing the iterator ends the requests."""
        return self._stream(_requests.texts(prompts, sampling_params))

    def chat(
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
        use_tqdm: bool | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations, with the model's own chat template.

        Args:
            messages: A conversation in OpenAI's form, or a list of such.
            sampling_params: How. Without them an answer has as many tokens as the context holds.
            tools: What the model may call: Python functions, of whose signature and docstring a schema is made, or tools
                in OpenAI's form. Calls are in ``outputs[…].tool_calls``; nothing is run.
            tool_choice: ``"auto"``, ``"none"``, ``"required"``, or a tool in OpenAI's form.
            parallel_tool_calls: Whether an answer may have several calls.
            add_generation_prompt: Open the assistant's turn.
            continue_final_message: Go on with the last message, which is the assistant's.
            chat_template_kwargs: Variables of the template, such as ``{"enable_thinking": False}``.
            use_tqdm: Show a bar.

        Raises:
            ValueError: The model has no template or no way to call tools, or a message cannot be.
            TypeError: A function cannot be a tool.
        """
        return self._gather(
            _chat(
                messages, sampling_params, tools, tool_choice, parallel_tool_calls, add_generation_prompt,
                continue_final_message, chat_template_kwargs,
            ),  # fmt: skip
            use_tqdm,
        )

    def chat_stream(
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
    ) -> Iterator[RequestOutput]:
        """As :meth:`chat`, and as :meth:`generate_stream`."""
        return self._stream(
            _chat(
                messages, sampling_params, tools, tool_choice, parallel_tool_calls, add_generation_prompt,
                continue_final_message, chat_template_kwargs,
            )  # fmt: skip
        )

    def _gather(self, asked: list[Asked], use_tqdm: bool | None) -> list[RequestOutput]:
        engine = self._ready()
        count = sum(len(group.at) for group in asked)
        outputs: dict[int, RequestOutput] = {}
        shown = use_tqdm if use_tqdm is not None else count > 1 and sys.stderr.isatty()
        with _Running(self, engine, asked, stream=False) as running, tqdm(total=count, disable=not shown) as bar:
            tokens = 0
            for group, at, news in running.news():
                output = group.readers[at].whole(news)
                outputs[group.at[at]] = output
                tokens += sum(len(one.token_ids) for one in output.outputs)
                if shown:
                    elapsed = max(bar.format_dict["elapsed"], 1e-9)
                    bar.set_postfix_str(f"{tokens / elapsed:.1f} tokens/s", refresh=False)
                bar.update()
        return [outputs[at] for at in range(count)]

    def _stream(self, asked: list[Asked]) -> Iterator[RequestOutput]:
        # Started now, and not with the first piece that is asked for.
        running = _Running(self, self._ready(), asked, stream=True)

        def pieces() -> Iterator[RequestOutput]:
            with running:
                for group, at, news in running.news():
                    yield group.readers[at].piece(news)

        return pieces()

    # Texts as numbers.

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        truncate: bool = False,
        adapter: str | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Texts as vectors of length one.

        Args:
            prompts: As in :meth:`generate`.
            dimensions: Keep the first so many values, for models that were trained so.
            truncate: Cut what is longer than the context.
            adapter: Name of a LoRA adapter.

        Returns:
            ``outputs.embedding`` of each is float32, ``[dimensions]``: a row of one array, without a copy.

        Raises:
            ValueError: A text is empty or too long, or the model makes no vectors.
        """
        texts = prompts_of(prompts)
        if not texts:
            return []
        vectors = self._ready().vectors(texts, dimensions, truncate, adapter)
        return [EmbeddingRequestOutput(str(at), EmbeddingOutput(vector)) for at, vector in enumerate(vectors)]

    def score(self, text_1: str | Sequence[str], text_2: str | Sequence[str]) -> list[ScoringRequestOutput]:
        """How well texts answer others, by a model that ranks.

        Args:
            text_1: A query for all, or one for each of the texts.
            text_2: The texts.

        Raises:
            ValueError: The model ranks nothing, or there are not as many texts as queries.
        """
        engine = self._ready()
        texts = [text_2] if isinstance(text_2, str) else list(text_2)
        if isinstance(text_1, str) or len(text_1) == 1:
            scores = engine.scores(text_1 if isinstance(text_1, str) else text_1[0], texts)
        elif len(text_1) == len(texts):
            scores = [engine.scores(query, [text])[0] for query, text in zip(text_1, texts, strict=True)]
        else:
            raise ValueError(f"there are {len(text_1)} first texts and {len(texts)} second ones: give one, or as many")
        return [ScoringRequestOutput(str(at), ScoringOutput(score)) for at, score in enumerate(scores)]

    def perplexity(self, text: str | Sequence[int], *, context: int | None = None) -> Perplexity:
        """How well the model predicts a text, as ``arclight perplexity`` measures it: in chunks, of whose tokens the
        second half is scored.

        Args:
            text: A text, or its tokens.
            context: Tokens of a chunk; ``None``: 512, or what the context holds.

        Raises:
            ValueError: The text fills no chunk.
        """
        engine, tokenizer = self._ready(), self.get_tokenizer()
        ids = tokenizer.encode(text) if isinstance(text, str) else list(text)
        context = min(512, engine.context) if context is None else context
        if context < 4:
            raise ValueError(f"a context of {context} leaves nothing to score: use 4 or more")
        if len(ids) < context:
            raise ValueError(
                f"the text has {len(ids)} tokens, fewer than one chunk of {context}: use a longer text or a smaller "
                "context"
            )
        begin = tokenizer.encode("")[:1]
        begin = begin if begin == [tokenizer.bos_token_id] else []
        chunks = [ids[at : at + context] for at in range(0, len(ids) - context + 1, context)]
        chunks = [[*begin, *chunk[len(begin) :]] for chunk in chunks]
        scored: list[float] = []
        params = SamplingParams(max_tokens=0, prompt_logprobs=0)
        for output in self.generate(chunks, params, use_tqdm=False):
            for id, known in zip(output.prompt_token_ids, output.prompt_logprobs or [], strict=True):
                scored.append(math.nan if known is None else known[id].logprob)
        # The logits of the first token of the second half are the first that count.
        likely = np.array(scored).reshape(len(chunks), context)[:, context // 2 + 1 :]
        perplexity = math.exp(-likely.mean())
        error = perplexity * math.sqrt(likely.var() / (likely.size - 1))
        return Perplexity(perplexity, error, likely.size, len(chunks))

    def logits(self, prompt: str | Sequence[int]) -> npt.NDArray[np.float32]:
        """What the model says of the token behind each token of a text.

        Returns:
            float32, ``[tokens, vocabulary]``, before temperature and penalties. The array is the memory that the engine
            has written, without a copy; other libraries take it over by ``__dlpack__``.

        Raises:
            ValueError: The text is empty or too long.
        """
        return self._ready().rows(prompts_of([prompt])[0], True)

    def hidden_states(self, prompt: str | Sequence[int]) -> npt.NDArray[np.float32]:
        """The last layer's state of each token of a text, behind the final norm.

        Returns:
            float32, ``[tokens, hidden]``, as :meth:`logits`.
        """
        return self._ready().rows(prompts_of([prompt])[0], False)

    # The model.

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return Tokenizer(self._ready())

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.get_tokenizer()

    @property
    def name(self) -> str:
        """What the model is called."""
        return self._engine.name

    @property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its answer can have."""
        return self._ready().context

    @property
    def metadata(self) -> dict[str, Any]:
        """What the model's file says of itself that is neither long nor a list."""
        found: dict[str, Any] = json.loads(self._ready().metadata())
        return found

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters that are loaded."""
        return self._engine.adapters

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Answers a request of the server's HTTP API in this process: ``llm.request("POST", "/v1/messages", {…})``.

        Returns:
            The body of the answer: what its JSON says, or its text; with ``"stream": true`` in the request, an iterator
            over bytes.

        Raises:
            ValueError: The request is refused.
            RuntimeError: The model fails.
        """
        status, response = self._ready().request(method, path, b"" if body is None else to_json(body))
        if status < 400 and isinstance(body, Mapping) and body.get("stream"):
            return response
        text = b"".join(response).decode()
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if status >= 400:
            error = value.get("error", value) if isinstance(value, dict) else value
            message = error.get("message", error) if isinstance(error, dict) else error
            raise (ValueError if status < 429 else RuntimeError)(f"{message}")
        return value

    def status(self) -> dict[str, Any]:
        """The machine and what it does: nodes, memory, rates, as ``/status.json`` has them."""
        found: dict[str, Any] = self.request("GET", "/status.json")
        return found


class _Running:
    """Requests of a call, which end with it."""

    def __init__(self, llm: LLM, engine: _native.Engine, asked: list[Asked], stream: bool):
        self.groups: list[tuple[Asked, _native.Answers]] = []
        self.closed = False
        llm._running.add(self)
        try:
            for group in asked:
                self.groups.append((group, group.begin(engine, stream)))
        except BaseException:
            self.cancel()
            raise

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        for _, answers in self.groups:
            answers.cancel()

    def close(self) -> None:
        self.closed = True
        self.cancel()

    def check(self) -> None:
        """Raises if the model was closed while it was waited for."""
        if self.closed:
            raise RuntimeError("this LLM was closed before the request was finished")

    def news(self) -> Iterator[tuple[Asked, int, dict[str, Any]]]:
        """What is new, as it comes."""
        open_groups = list(self.groups)
        while open_groups:
            # Where several are waited for, none is for long.
            patience = _FOREVER if len(open_groups) == 1 else 0.005
            for group, answers in list(open_groups):
                news = answers.wait(patience)
                for at, what in news:
                    if isinstance(what, Exception):
                        raise what
                    yield group, at, what
                if answers.done:
                    self.check()
                    open_groups.remove((group, answers))


def _chat(
    messages: Messages | Sequence[Messages],
    params: SamplingParams | Sequence[SamplingParams] | None,
    tools: Sequence[Tool] | None,
    tool_choice: str | Mapping[str, Any] | None,
    parallel_tool_calls: bool | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> list[Asked]:
    more = {
        "tool_choice": tool_choice,
        "parallel_tool_calls": parallel_tool_calls,
        "add_generation_prompt": None if add_generation_prompt else False,
        "continue_final_message": continue_final_message or None,
        "chat_template_kwargs": chat_template_kwargs,
    }
    params = SamplingParams(max_tokens=None) if params is None else params
    return _requests.conversations(messages, params, tools, more)


def _option(name: str, value: Any) -> list[str]:
    """An option of the command line."""
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, (list, tuple)):
        return [f"{option}={one}" for one in value]
    return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]


class _Bar:
    """A bar over the bytes of a model."""

    def __init__(self, shown: bool | None):
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        if not self._shown:
            return
        if self._bar is None:
            self._bar = tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, desc="loading")
        self._bar.update(done - self._bar.n)
