"""Fields that families share: shapes, positions, windows, experts, recurrences."""

from collections.abc import Callable
from dataclasses import dataclass, field

from draw import STATED_NOT, Choice, either, resolved, seldom, usual

VOCAB = 320
TOKENS = 162  # of a prompt and its continuation


@dataclass(frozen=True)
class Family:
    """How configurations of a class of `transformers` are drawn."""
    name: str
    reference: str  # class prefix in transformers
    fields: dict
    model: str = ""  # the class, where it is not the prefix with ForCausalLM
    vocabulary: str = "bytes"  # which of `vocabulary.py`
    part: str = ""  # of the configuration that has the fields, in models that read images too
    around: dict = field(default_factory=dict)  # the rest of that configuration
    stronger: float = 1.0  # gain of the blocks
    published: Callable | None = None  # makes a configuration of today one as published
    architecture: str = ""  # the class that the published folder names
    encoder: str = ""  # how vectors are made of hidden states: mean or first


def even(values, least: int = 1) -> Choice:
    return either(*[value for value in values if value >= least])


def shape(layers=(2, 3, 4), head_dim: bool | None = None, groups: bool = True) -> dict:
    """Sizes. `head_dim`: whether the class has the key; `None` for classes that derive it where nothing is stated."""
    def heads(d):
        return even([n for n in (4, 2, 8) if d["hidden_size"] // n >= 8])

    fields = {
        "num_hidden_layers": either(*layers), "hidden_size": either(64, 32, 96, 128), "num_attention_heads": heads,
        "_per_head": lambda d: d["hidden_size"] // d["num_attention_heads"]}
    if groups:
        fields["num_key_value_heads"] = lambda d: even(
            [n for n in (2, 1, 4, 8) if d["num_attention_heads"] % n == 0])
    if head_dim is not False:
        stated = lambda d: (d["_per_head"], 16, 32, 24, *(() if head_dim else (STATED_NOT,)))
        fields["head_dim"] = lambda d: usual(*dict.fromkeys(stated(d)))
    return fields | {"vocab_size": either(VOCAB, 352, 384), "max_position_embeddings": either(512, 1024)}


def dim(d: dict) -> int:
    """Elements of a head."""
    stated = d.get("head_dim", STATED_NOT)
    return d["_per_head"] if stated in (STATED_NOT, None) else stated


def width(*more) -> dict:
    return {"intermediate_size": either(96, 64, 80, 160), **dict(more)}


def ends(tied: bool = False, eps: str = "rms_norm_eps", least: float = 1e-6) -> dict:
    return {"tie_word_embeddings": usual(tied, not tied), eps: usual(least, 1e-5, 1e-3, 1e-2)}


def act(name: str = "silu", key: str = "hidden_act", *more) -> dict:
    others = [a for a in ("gelu", "relu", "gelu_pytorch_tanh", "silu") if a != name]
    return {key: seldom(name, *others[:2], *more)}


KINDS = ("linear", "yarn", "llama3", "dynamic", "longrope")


def rope(theta: float = 1e4, at: str = "rope_parameters", partial: tuple = (), kinds=KINDS, elements=dim) -> dict:
    """Positions, of every kind that the class computes. `partial`: parts of a head that turn, the usual one first."""
    end = lambda key: f"{at}.{key}"
    kind = end("rope_type")

    def only(of: tuple, choice) -> Callable:
        return lambda d: resolved(choice, d) if d[kind] in of else STATED_NOT

    def pairs(d) -> int:
        part = d.get(end("partial_rotary_factor"), STATED_NOT)
        return int(elements(d) * (1.0 if part is STATED_NOT else part)) // 2

    stretched = lambda most: lambda d: [round(1 + (most - 1) * (i / max(pairs(d) - 1, 1)) ** 2, 3) for i in range(pairs(d))]
    fields = {kind: usual("default", *kinds), end("rope_theta"): usual(theta, 700.0, 12345.0, 5e5, 2e6)}
    if partial:
        fields[end("partial_rotary_factor")] = usual(*partial)
    return fields | {
        end("factor"): only(("linear", "yarn", "llama3", "dynamic"), usual(4.0, 8.0, 2.5)),
        end("original_max_position_embeddings"): only(
            ("yarn", "llama3", "longrope"),
            lambda d: usual(64, 128, d["max_position_embeddings"]) if d[kind] == "longrope" else usual(64, 128)),
        end("beta_fast"): only(("yarn",), usual(STATED_NOT, 16.0)),
        end("beta_slow"): only(("yarn",), usual(STATED_NOT, 2.0)),
        end("attention_factor"): only(("yarn", "longrope"), usual(STATED_NOT, 1.2)),
        end("mscale"): only(("yarn",), usual(STATED_NOT, 0.8)),
        end("mscale_all_dim"): only(("yarn",), lambda d: STATED_NOT if d[end("mscale")] is STATED_NOT else usual(0.8, 0.5)),
        end("truncate"): only(("yarn",), usual(STATED_NOT, False)),
        end("low_freq_factor"): only(("llama3",), usual(1.0, 2.0)),
        end("high_freq_factor"): only(("llama3",), usual(4.0, 8.0)),
        end("short_factor"): lambda d: stretched(1.7)(d) if d[kind] == "longrope" else STATED_NOT,
        end("long_factor"): lambda d: stretched(9.0)(d) if d[kind] == "longrope" else STATED_NOT,
    }


def by_layer(theta: float, local: float, kinds=KINDS, partial: tuple = (), local_kinds=("linear",), **more) -> dict:
    """Positions of layers with a window and of those without."""
    return {**rope(theta, "rope_parameters.full_attention", partial, kinds, **more),
            **rope(local, "rope_parameters.sliding_attention", (), local_kinds)}


WINDOW = either(24, 8, 40)


def window(*otherwise) -> dict:
    return {"sliding_window": usual(24, 8, 40, *otherwise)}


def layer_types(*, every: int = 0, first: int = 0, other: str = "sliding_attention", full: str = "full_attention") -> dict:
    """Kinds of layers: as the class has them where nothing is stated, or others."""
    def choice(d):
        n = d["num_hidden_layers"]
        kinds = lambda number: [full if number(i) else other for i in range(n)]
        return usual(STATED_NOT, kinds(lambda i: i % 2 == 0), kinds(lambda i: i == n - 1), kinds(lambda i: i != 1))

    return {"layer_types": choice}


def switched(usually: bool = False) -> dict:
    """Windows behind a switch, in layers from a number on."""
    on = lambda d: d["use_sliding_window"]
    return {"use_sliding_window": seldom(usually, not usually),
            "sliding_window": lambda d: WINDOW if on(d) else STATED_NOT,
            "max_window_layers": lambda d: either(1, 0) if on(d) else STATED_NOT}


def experts(count: str = "num_experts", used: str = "num_experts_per_tok", own: str = "moe_intermediate_size", most: int = 8) -> dict:
    return {count: either(8, 4), used: either(2, 3, 1), **({own: either(48, 32, 64)} if own else {})}


def choice_of_experts(n_group: bool = True, scale=(1.0, 2.5), normed: bool = True) -> dict:
    return {
        "routed_scaling_factor": usual(*scale), "norm_topk_prob": usual(normed, not normed),
        **({"n_group": usual(1, 2, 4), "topk_group": lambda d: usual(1, 2) if d["n_group"] > 2 else 1} if n_group else {})}


def dense_first() -> dict:
    return {"first_k_dense_replace": usual(1, 0, 2)}


def latent(q_rank: tuple = (48, None)) -> dict:
    return {"kv_lora_rank": either(32, 48), "q_lora_rank": usual(*q_rank), "qk_nope_head_dim": usual(16, 32, 24),
            "qk_rope_head_dim": usual(16, 32, 8), "v_head_dim": either(16, 32)}


def latent_shape(**more) -> dict:
    fields = shape(head_dim=False, groups=False, **more)
    return fields | {"num_key_value_heads": lambda d: d["num_attention_heads"]}


def turning(d: dict) -> int:
    return d["qk_rope_head_dim"]


def mamba() -> dict:
    """Mamba-2, as GraniteMoeHybrid and Bamba name it."""
    return {
        "mamba_expand": usual(2, 4), "mamba_n_heads": either(8, 4), "mamba_n_groups": usual(1, 2),
        "mamba_d_state": either(16, 24), "mamba_d_conv": usual(4, 3), "mamba_chunk_size": 32,
        "mamba_conv_bias": usual(True, False), "mamba_proj_bias": seldom(False, True)}


def delta() -> dict:
    """Gated delta nets of Qwen."""
    return {
        "linear_num_key_heads": either(2, 1), "linear_num_value_heads": either(4, 2), "linear_key_head_dim": either(24, 16),
        "linear_value_head_dim": either(16, 32), "linear_conv_kernel_dim": usual(4, 3),
        "layer_types": lambda d: usual(*kinds_of(d["num_hidden_layers"], "linear_attention"))}


def kinds_of(n: int, other: str) -> list[list[str]]:
    """Every second layer with attention; the last; the first."""
    return [["full_attention" if keep(i) else other for i in range(n)]
            for keep in (lambda i: i % 2 == 1, lambda i: i == n - 1, lambda i: i == 0)]
