"""The model's own tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from arclight import _native
from arclight._forms import Tool, tool_of
from arclight._params import to_json


class Tokenizer:
    """Texts as tokens, with the names that tokenizers of ``transformers`` have. It is made from the model's file."""

    def __init__(self, engine: _native.Engine):
        self._engine = engine
        (self.bos_token_id, self.eos_token_id, self.pad_token_id), self.eog_token_ids = engine.roles()

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return self._engine.vocab_size

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template; ``None`` if the model has none."""
        return self._engine.chat_template

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """The tokens of a text.

        Args:
            text: Any text.
            add_special_tokens: Add what the model expects at the ends of texts, such as BOS.
            parse_special: Read the names of control tokens in the text as these tokens. Not for texts from outside.
        """
        return self._engine.encode(text, add_special_tokens, parse_special)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of tokens. What is no whole character is U+FFFD.

        Raises:
            ValueError: There is no such token.
        """
        return self.decode_bytes(token_ids, skip_special_tokens).decode("utf-8", "replace")

    def decode_bytes(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> bytes:
        """What tokens stand for, as bytes, which may begin or end within a character."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._engine.decode_bytes(ids, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for; ``None`` if there is no such token."""
        return self._engine.token_bytes(token_id)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The token that has this text and no other; ``None`` if there is none."""
        return self._engine.token_id(token)

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Tool] | None = None,
        tokenize: Literal[True] = True, add_generation_prompt: bool = True, **variables: Any,
    ) -> list[int]: ...  # fmt: skip

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Tool] | None = None, *,
        tokenize: Literal[False], add_generation_prompt: bool = True, **variables: Any,
    ) -> str: ...  # fmt: skip

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool] | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int] | str:
        """The prompt that a conversation becomes.

        Args:
            conversation: Messages in OpenAI's form.
            tools: Functions, or tools in OpenAI's form.
            tokenize: Give its tokens instead of its text.
            add_generation_prompt: End it with the opening of the assistant's turn.
            variables: Further variables of the template, such as ``enable_thinking``.

        Raises:
            ValueError: The model has no template, or it refuses the messages.
        """
        body: dict[str, Any] = {"messages": list(conversation), "add_generation_prompt": add_generation_prompt}
        if tools:
            body["tools"] = [tool_of(tool) for tool in tools]
        if variables:
            body["chat_template_kwargs"] = variables
        text, ids = self._engine.prompt_of(to_json(body))
        return ids if tokenize else text
