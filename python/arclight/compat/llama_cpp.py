"""The common methods of ``llama_cpp.Llama``, of llama-cpp-python.

>>> from arclight.compat.llama_cpp import Llama
>>> llm = Llama(None, verbose=False)  # the demo model
>>> answer = llm("Once upon a time", max_tokens=4, temperature=0)
>>> answer["usage"]["completion_tokens"]
4

Arguments that have no meaning here are ignored if they are about GPUs, batches or memory (``n_gpu_layers``,
``n_batch``, ``use_mmap``), and refused otherwise. Different are:

* ``embed`` and ``create_embedding`` give one vector of length one for a text, also with ``normalize=False`` and for
  models without pooling, of which the last token's state stands for the text.
* Samplers that this engine does not have (``mirostat_mode``, ``typical_p``, ``tfs_z``), ``logits_processor`` and
  ``stopping_criteria`` are refused. ``repeat_penalty`` holds for all tokens of prompt and answer.
* There is no ``eval``, ``sample`` and ``generate`` and no state to save: requests of all threads are served at once,
  and what they have in common at their beginning is computed once.
* ``chat_format`` is one of ``chatml``, ``gemma``, ``llama-3``, ``mistral-instruct``; otherwise the model's own template
  holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arclight import _sse
from arclight._llm import LLM

_IGNORED = frozenset({
    "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "use_mmap", "use_mlock", "n_batch", "n_ubatch",
    "n_threads_batch", "logits_all", "embedding", "offload_kqv", "flash_attn", "op_offload", "swa_full", "no_perf",
    "last_n_tokens_size", "numa", "attention_type",
})  # fmt: skip
_TEMPLATES = {"chatml": "chatml", "gemma": "gemma", "llama-3": "llama3", "mistral-instruct": "mistral"}
# Numbers of ggml's types.
_KV_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}
_POOLING = {1: "mean", 2: "first", 3: "last"}


class LlamaGrammar:
    """A form of answers."""

    def __init__(self, field: str, value: str):
        self._field, self._value = field, value

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """A grammar in GBNF."""
        return cls("grammar", grammar)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """A JSON schema."""
        return cls("json_schema", json_schema)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], verbose: bool = True) -> LlamaGrammar:
        """A file in GBNF."""
        with open(file, encoding="utf-8") as text:
            return cls.from_string(text.read())


class Llama:
    """A model, as ``llama_cpp.Llama``."""

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None,
        *,
        seed: int | None = None,
        n_ctx: int = 512,
        n_threads: int | None = None,
        pooling_type: int = -1,
        lora_path: str | os.PathLike[str] | None = None,
        lora_scale: float = 1.0,
        chat_format: str | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        verbose: bool = True,
        **more: Any,
    ):
        options: dict[str, Any] = {"threads": n_threads, "pooling": _POOLING.get(pooling_type)}
        for name, kind in (("type_k", type_k), ("type_v", type_v)):
            if kind is None:
                continue
            if kind not in _KV_TYPES:
                raise ValueError(f"{name} = {kind} is none of {sorted(_KV_TYPES)}")
            options[f"cache_{name}"] = _KV_TYPES[kind]
        if chat_format is not None:
            if chat_format not in _TEMPLATES:
                raise ValueError(f"chat_format {chat_format!r} is none of {', '.join(_TEMPLATES)}")
            options["chat_template"] = _TEMPLATES[chat_format]
        if lora_path is not None:
            options["lora"] = f"{os.fspath(lora_path)}:{lora_scale}"
        for name, value in more.items():
            if name not in _IGNORED:
                options[name] = value
        self.model_path = None if model_path is None else os.fspath(model_path)
        self.verbose = verbose
        self._seed = seed
        self._llm = LLM(model_path, max_model_len=n_ctx or None, progress=None if verbose else False, **options)
        self.metadata = {key: str(value) for key, value in self._llm.metadata.items()}

    @classmethod
    def from_pretrained(
        cls, repo_id: str, filename: str | None = None, additional_files: Sequence[str] | None = None, **more: Any
    ) -> Llama:
        """A model of the Hugging Face Hub, which is fetched if it is not here. ``filename`` is a file's name; patterns
        are not known."""
        if additional_files:
            raise ValueError("additional_files is not supported: parts of a split model are found by themselves")
        return cls(f"{repo_id}:{filename}" if filename else repo_id, **more)

    def close(self) -> None:
        """Frees the model's memory."""
        self._llm.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Tokens.

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The tokens of a text in UTF-8."""
        return self._llm.tokenizer.encode(text.decode(), add_bos, special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False) -> bytes:
        """The text of tokens; behind ``prev_tokens``, if there are any."""
        tokenizer = self._llm.tokenizer
        before = list(prev_tokens or [])
        whole = tokenizer.decode_bytes([*before, *tokens], not special)
        return whole[len(tokenizer.decode_bytes(before, not special)) :] if before else whole

    def n_ctx(self) -> int:
        """Tokens of the context."""
        return self._llm.max_model_len

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._llm.tokenizer.vocab_size

    def n_embd(self) -> int:
        """Values of a hidden state."""
        meta = self._llm.metadata
        return int(meta[f"{meta['general.architecture']}.embedding_length"])

    def token_bos(self) -> int:
        """The token that begins a text; -1 if there is none."""
        return _token(self._llm.tokenizer.bos_token_id)

    def token_eos(self) -> int:
        """The token that ends a text; -1 if there is none."""
        return _token(self._llm.tokenizer.eos_token_id)

    # Answers.

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[int, float] | None = None,
    ) -> Any:
        """Continues a text: a ``dict`` in OpenAI's form, or an iterator over such with ``stream=True``."""
        _refuse(stopping_criteria=stopping_criteria, logits_processor=logits_processor)
        body = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt), "suffix": suffix, "echo": echo or None,
            "logprobs": logprobs, "max_tokens": _limit(max_tokens),
            **self._sampling(
                temperature, top_p, min_p, typical_p, stop, frequency_penalty, presence_penalty, repeat_penalty, top_k,
                seed, tfs_z, mirostat_mode, grammar, logit_bias,
            ),
        }  # fmt: skip
        return self._answer("/v1/completions", body, model, stream)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Any = None,
        function_call: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> Any:
        """Answers a conversation: a ``dict`` in OpenAI's form, or an iterator over such with ``stream=True``."""
        _refuse(logits_processor=logits_processor)
        if response_format and response_format.get("type") == "json_object" and "schema" in response_format:
            # llama-cpp-python has the schema there.
            response_format = {"type": "json_schema", "json_schema": {"schema": response_format["schema"]}}
        body = {
            "messages": [dict(message) for message in messages], "functions": functions, "function_call": function_call,
            "tools": tools, "tool_choice": tool_choice, "response_format": response_format, "logprobs": logprobs,
            "top_logprobs": top_logprobs, "max_tokens": _limit(max_tokens),
            **self._sampling(
                temperature, top_p, min_p, typical_p, stop, frequency_penalty, presence_penalty, repeat_penalty, top_k,
                seed, tfs_z, mirostat_mode, grammar, logit_bias,
            ),
        }  # fmt: skip
        return self._answer("/v1/chat/completions", body, model, stream)

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> dict[str, Any]:
        """Texts as vectors, in OpenAI's form."""
        texts = input if isinstance(input, str) else list(input)
        found: dict[str, Any] = self._llm.request("POST", "/v1/embeddings", {"input": texts})
        return self._named(found, model)

    def embed(
        self, input: str | Sequence[str], normalize: bool = False, truncate: bool = True, return_count: bool = False
    ) -> Any:
        """Texts as vectors: a list of numbers for a text, or a list of such for several."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors = [found.outputs.embedding.tolist() for found in self._llm.embed(texts, truncate=truncate)]
        result = vectors[0] if isinstance(input, str) else vectors
        if not return_count:
            return result
        return result, sum(len(self._llm.tokenizer.encode(text)) for text in texts)

    def _sampling(
        self, temperature: float, top_p: float, min_p: float, typical_p: float, stop: str | Sequence[str] | None,
        frequency_penalty: float, presence_penalty: float, repeat_penalty: float, top_k: int, seed: int | None,
        tfs_z: float, mirostat_mode: int, grammar: LlamaGrammar | None, logit_bias: Mapping[int, float] | None,
    ) -> dict[str, Any]:  # fmt: skip
        fields: dict[str, Any] = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "typical_p": typical_p, "top_k": max(top_k, 0),
            "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty, "tfs_z": tfs_z,
            "repeat_penalty": repeat_penalty, "mirostat_mode": mirostat_mode,
            "seed": self._seed if seed is None else seed,
            "stop": ([stop] if isinstance(stop, str) else list(stop)) if stop else None,
        }  # fmt: skip
        if grammar is not None:
            fields[grammar._field] = grammar._value
            if grammar._field == "json_schema":
                fields["structured_outputs"] = {"json": fields.pop("json_schema")}
        if logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in logit_bias.items()}
        return fields

    def _answer(self, path: str, body: dict[str, Any], model: str | None, stream: bool) -> Any:
        body = {name: value for name, value in body.items() if value is not None}
        if not stream:
            return self._named(self._llm.request("POST", path, body), model)
        pieces = _sse.events(self._llm.request("POST", path, {**body, "stream": True}))
        return self._stream(pieces, model)

    def _stream(self, pieces: Iterator[dict[str, Any]], model: str | None) -> Iterator[dict[str, Any]]:
        for piece in pieces:
            yield self._named(piece, model)

    def _named(self, answer: dict[str, Any], model: str | None) -> dict[str, Any]:
        return {**answer, "model": model or self.model_path or answer["model"]}


def _token(id: int | None) -> int:
    return -1 if id is None else id


def _limit(max_tokens: int | None) -> int:
    return -1 if max_tokens is None or max_tokens <= 0 else max_tokens


def _refuse(**values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            raise ValueError(f"{name} is not supported: tokens are chosen in the engine")
