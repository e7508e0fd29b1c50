"""Random configurations: fields with choices, drawn from a seed, and changed one at a time.

A family's fields are a dict from a key of the configuration to a value, a `Choice`, or a function of what is drawn so far
that gives either. Dots lead into dicts (`rope_parameters.factor`). Keys that begin with `_` are for later fields alone.
`STATED_NOT` leaves a key out of the configuration."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

STATED_NOT = ...


@dataclass(frozen=True)
class Choice:
    usual: object
    others: tuple
    share: float  # of the usual value

    def draw(self, rng: random.Random) -> object:
        number = rng.random()  # drawn in any case, so that later fields do not depend on it
        if not self.others or number < self.share:
            return self.usual
        return self.others[int((number - self.share) / (1 - self.share) * len(self.others))]


def either(*values) -> Choice:
    """Values that are as likely as each other."""
    return Choice(values[0], values[1:], 1 / len(values))


def usual(value, *others) -> Choice:
    """A value that most models have, and others that files can state."""
    return Choice(value, tuple(other for other in others if other != value), 0.7)


def seldom(value, *others) -> Choice:
    """The same with others that no published model has."""
    return Choice(value, tuple(other for other in others if other != value), 0.96)


def resolved(field, drawn: dict) -> Choice:
    if isinstance(field, Callable):
        field = field(drawn)
    return field if isinstance(field, Choice) else Choice(field, (), 1.0)


def draw(fields: dict, seed: str) -> dict:
    """A configuration: the same for the same seed, on every version of Python."""
    rng, drawn = random.Random(seed), {}
    for key, field in fields.items():
        drawn[key] = resolved(field, drawn).draw(rng)
    return drawn


def with_usual(fields: dict, fixed: dict | None = None) -> dict:
    """The usual configuration, but for what is fixed."""
    drawn = {}
    for key, field in fields.items():
        value = resolved(field, drawn).usual
        drawn[key] = fixed[key] if fixed and key in fixed else value
    return drawn


def changes(fields: dict) -> Iterator[dict]:
    """Every field with each of its other values, the rest as usual. Where a value opens further fields, as a kind of scaling
    does, these are changed together with it."""
    base = with_usual(fields)
    for key, field in fields.items():
        if key.startswith("_"):
            continue
        for value in resolved(field, base).others:
            yield {key: value}
            beside = with_usual(fields, {key: value})
            for other, choice in fields.items():
                if other != key and opened(choice, base, beside):
                    yield from ({key: value, other: another} for another in resolved(choice, beside).others)


def opened(field, base: dict, beside: dict) -> bool:
    """Whether a field has other values beside those values, and none beside the usual ones."""
    return not resolved(field, base).others and bool(resolved(field, beside).others)


def unusual(fields: dict, drawn: dict) -> dict:
    """What a draw has otherwise than it would usually have beside the same earlier fields; sizes are not told."""
    return {key: drawn[key] for key, field in fields.items()
            if not key.startswith("_") and (choice := resolved(field, drawn)).share > 0.6 and drawn[key] != choice.usual}


def nested(drawn: dict) -> dict:
    """The configuration that the fields state."""
    config = {}
    for key, value in drawn.items():
        if key.startswith("_") or value is STATED_NOT:
            continue
        at = config
        *path, last = key.split(".")
        for name in path:
            at = at.setdefault(name, {})
        at[last] = value
    return config


# Keys of classes that change no logits: training, caches, tokens, and names.
NEVER = ("initializer", "use_cache", "_token_id", "_token_index", "dropout", "pdrop", "pretraining_tp", "_coef", "output_",
         "loss", "return_dict", "chunk_size", "problem_type", "id2label", "label2id", "dtype", "transformers_version",
         "_name_or_path", "architectures", "model_type", "summary_", "init_device", "vocab_size", "per_layer_config",
         "is_encoder_decoder", "is_decoder", "gradient", "time_step_m", "time_step_floor", "num_logits_to_keep",
         "rescale_prenorm", "jitter", "tie_word_embeddings", "max_position_embeddings", "n_positions", "add_cross",
         "use_mamba_kernels", "attn_impl", "slow_but_exact", "reorder_and_upcast")


def other_values(key: str, value: object) -> list:
    """Other values of a key of a class that the family's fields do not have."""
    if any(part in key for part in NEVER):
        return []
    match value:
        case bool():
            return [not value]
        case int() | float() if value != value or value in (float("inf"), float("-inf")):
            return []
        case int():
            return [value + 1, value * 2] if value > 0 else [1]
        case float():
            return [value * 1.5 if value else 0.5]
        case str() if "act" in key:
            return [name for name in ("relu", "gelu") if name != value]
        case None if key == "clip_qkv" or "softcapping" in key:
            return [2.0]
        case None if "sliding_window" in key:
            return [24]
    return []
