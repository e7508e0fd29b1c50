"""The model ``arclight`` for lm-evaluation-harness.

The harness finds models in a table of its own and has no entry points for others, so this module is its command with
that table made longer::

    python -m arclight.lm_eval run --model arclight --model_args pretrained=model.gguf --tasks hellaswag

In a program, importing this module is enough for ``lm_eval.simple_evaluate(model="arclight", …)``.
"""

from __future__ import annotations

from typing import Any

# The harness enters its own models in the table only while that is empty.
import lm_eval.models  # noqa: F401
from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from arclight._llm import LLM
from arclight._params import SamplingParams

# Requests that are handed over at a time: as many as keep the engine busy, and memory small.
_AT_ONCE = 256


@register_model("arclight")
class ArclightLM(TemplateLM):  # type: ignore[misc]
    """A model of :class:`arclight.LLM`.

    Args:
        pretrained: The model; ``None``: the demo model.
        max_length: Tokens of the context.
        max_gen_toks: Tokens of an answer where a task does not say.
        batch_size: Requests that are computed at once.
        llm: A model that is loaded already.
        options: Further arguments of :class:`arclight.LLM`.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        batch_size: int | str = 32,
        max_batch_size: int | None = None,
        device: str | None = None,
        llm: LLM | None = None,
        **options: Any,
    ):
        super().__init__()
        at_once = 32 if str(batch_size).startswith("auto") else int(batch_size)
        # What the harness says by default is no wish of anybody.
        at_once = max(at_once, 32)
        self.llm = llm or LLM(pretrained, max_model_len=max_length, max_num_seqs=at_once, **options)
        self.tokenizer = self.llm.get_tokenizer()
        self.max_length = self.llm.max_model_len
        self.max_gen_toks = max_gen_toks

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        if self.tokenizer.eos_token_id is None:
            raise ValueError("this model has no token that ends a text")
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token that stands before a text without a beginning."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        """For caches of prompts."""
        return self.llm.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """The tokens of a text."""
        special = True if add_special_tokens is None else add_special_tokens
        ids = self.tokenizer.encode(string, special, parse_special=True)
        if add_special_tokens is None and ids[:2] == [self.tokenizer.bos_token_id] * 2:
            return ids[1:]
        return ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt that a conversation becomes."""
        return self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template's source."""
        return self.tokenizer.chat_template or ""

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **more: Any
    ) -> list[tuple[float, bool]]:
        params = SamplingParams(max_tokens=0, prompt_logprobs=1)
        found: list[tuple[float, bool]] = []
        with tqdm(total=len(requests), disable=disable_tqdm, desc="loglikelihood") as bar:
            for begin in range(0, len(requests), _AT_ONCE):
                some = [(context, continuation) for _, context, continuation in requests[begin : begin + _AT_ONCE]]
                prompts = [[*context, *continuation][-self.max_length :] for context, continuation in some]
                outputs = self.llm.generate(prompts, params, use_tqdm=False)
                for (_, continuation), prompt, output in zip(some, prompts, outputs, strict=True):
                    # A continuation that is longer than the context has lost its first tokens, and is scored as it is.
                    first = max(1, len(prompt) - len(continuation))
                    known = (output.prompt_logprobs or [])[first:]
                    chosen = [of[id] for id, of in zip(prompt[first:], known, strict=True) if of is not None]
                    found.append((sum(one.logprob for one in chosen), all(one.rank == 1 for one in chosen)))
                bar.update(len(some))
        return found

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """How likely whole texts are, in windows of the context."""
        found = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            windows = [(None, *window) for window in map(utils.make_disjoint_window, windows)]
            found.append(sum(likely for likely, _ in self._loglikelihood_tokens(windows, disable_tqdm=True)))
        return found

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answers that end at texts."""
        prompts, params = [], []
        for request in requests:
            context, given = request.args
            given = dict(given)
            until = given.pop("until", None) or []
            limit = int(given.pop("max_gen_toks", self.max_gen_toks))
            sampled = given.pop("do_sample", None)
            temperature = float(given.pop("temperature", 0.0))
            ids = self.tok_encode(context)
            limit = min(limit, self.max_length - 1)
            prompts.append(ids[-(self.max_length - limit) :])
            params.append(
                SamplingParams(
                    max_tokens=limit,
                    temperature=0.0 if sampled is False else temperature,
                    top_p=given.get("top_p"),
                    top_k=given.get("top_k"),
                    stop=[until] if isinstance(until, str) else [text for text in until if text],
                )
            )
        outputs = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        return [output.outputs[0].text for output in outputs]


def main() -> None:
    """The harness's own command."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
