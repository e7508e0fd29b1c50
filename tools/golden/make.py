#!/usr/bin/env python3
"""Golden logits for the engine's tests.

Builds small random models, runs them with Hugging Face `transformers` (float32,
eager attention), writes each as an F32 GGUF file and stores what it answered.
Before anything is kept, the file just written is read back and evaluated by a
second, independent forward pass in NumPy float64 that follows the GGUF
conventions (see `Float64`): that checks the export and bounds the rounding error
of the float32 numbers.

    python make.py            # all models into ../../tests/golden
    python make.py qwen3_tied # one of them

Weights come from NumPy's PCG64, so they do not depend on the torch version; the
logits do, by about 1e-6.
"""

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden"
PROMPT_LENGTHS = (1, 7, 64, 300)
ALL_POSITIONS = 7  # the prompt whose logits are kept at every position
CONTINUATION = 64
MIN_MARGIN = 0.01  # between the best two tokens of every greedy step
MIN_DISTINCT = 24  # tokens in the continuation: a loop would test little
MAX_ERROR = 2e-5  # float32 against float64, relative to the largest logit
CONTEXT = 1024
VOCAB = 160


@dataclass(frozen=True)
class Spec:
    name: str
    arch: str  # as in the file
    tied: bool
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    theta: float
    eps: float
    reference: str = ""  # class prefix in transformers
    rope: dict = field(default_factory=lambda: {"rope_type": "default"})
    config: dict = field(default_factory=dict)  # more of the Hugging Face configuration
    keys: dict = field(default_factory=dict)  # more metadata, by key without the architecture

    @property
    def permuted(self) -> bool:
        """Whether files of this architecture have rows of Q and K for interleaved RoPE."""
        return self.arch in PERMUTED


PERMUTED = ("llama", "granite", "minicpm", "smollm3")
NOPE_EVERY = {"smollm3": 4}  # no RoPE in each such layer: a constant of the architecture
YARN = dict(factor=4.0, original_max_position_embeddings=256)
# LongRoPE's divisors, far enough apart that short ones cannot pass for long ones
SHORT = [1.0, 1.1, 1.2, 1.3, 1.5, 1.7]
LONG = [1.0, 1.3, 1.9, 3.1, 6.0, 11.0]


def longrope(original: int) -> dict:
    return dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG,
                original_max_position_embeddings=original)


SPECS = (
    # heads * head_dim differs from hidden, as in every real Qwen3
    Spec("qwen3_tied", "qwen3", True, 2, 64, 4, 2, 32, 96, 1e6, 1e-6, "Qwen3"),
    Spec("qwen3_untied", "qwen3", False, 3, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen3"),
    # three query heads to a KV head; of the eight frequencies two are kept, one is
    # blended and five are divided by the factor
    Spec("llama3_tied", "llama", True, 2, 96, 6, 2, 16, 96, 5e5, 1e-5, "Llama",
         dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=256)),
    Spec("llama2_untied", "llama", False, 2, 64, 4, 4, 16, 160, 1e4, 1e-5, "Llama"),
    Spec("llama_linear", "llama", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Llama",
         dict(rope_type="linear", factor=4.0),
         keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    Spec("mistral", "llama", True, 2, 64, 4, 2, 16, 64, 1e6, 1e-5, "Mistral",
         config=dict(sliding_window=None)),
    Spec("qwen2", "qwen2", True, 2, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen2"),
    # of eight frequencies two are kept, three are blended and three are divided
    Spec("qwen2_yarn", "qwen2", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-6, "Qwen2",
         dict(rope_type="yarn", **YARN),
         keys={"rope.scaling.type": "yarn", "rope.scaling.factor": YARN["factor"],
               "rope.scaling.original_context_length": YARN["original_max_position_embeddings"]}),
    Spec("granite", "granite", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Granite",
         config=dict(embedding_multiplier=2.0, residual_multiplier=0.7, logits_scaling=0.8,
                     attention_multiplier=0.35),
         keys={"embedding_scale": 2.0, "residual_scale": 0.7, "logit_scale": 0.8,
               "attention.scale": 0.35}),
    # transformers has no MiniCPM; in other words it is a Granite with attention scaled as usual
    Spec("minicpm", "minicpm", False, 2, 64, 4, 4, 16, 96, 1e4, 1e-5, "Granite",
         config=dict(embedding_multiplier=2.0, residual_multiplier=1.4 / math.sqrt(2),
                     logits_scaling=0.75, attention_multiplier=0.25),
         keys={"embedding_scale": 2.0, "residual_scale": 1.4 / math.sqrt(2),
               "logit_scale": 0.75}),
    Spec("smollm3", "smollm3", True, 4, 64, 4, 2, 16, 64, 2e6, 1e-6, "SmolLM3",
         config=dict(no_rope_layer_interval=4)),
    # 12 of 16 elements of a head are rotated
    Spec("phi3_short", "phi3", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Phi3",
         {**longrope(512), "partial_rotary_factor": 0.75},
         dict(original_max_position_embeddings=512),
         keys={"rope.scaling.original_context_length": 512, "context_length": 512}),
    # an original context so short that everything but one token alone, whose angles are zero,
    # takes the long factors
    Spec("phi3_long", "phi3", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Phi3",
         {**longrope(4), "partial_rotary_factor": 0.75, "attention_factor": 1.2},
         dict(original_max_position_embeddings=4),
         keys={"rope.scaling.original_context_length": 4,
               "rope.scaling.attn_factor": 1.2}),
)


def prompts() -> list[list[int]]:
    """The same token ids for every model."""
    rng = np.random.default_rng(20240229)
    return [rng.integers(0, VOCAB, n).tolist() for n in PROMPT_LENGTHS]


# --- Hugging Face side -------------------------------------------------------------


def build(spec: Spec, seed: int):
    common = dict(
        vocab_size=VOCAB, hidden_size=spec.hidden, intermediate_size=spec.ffn,
        num_hidden_layers=spec.layers, num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads, head_dim=spec.head_dim,
        max_position_embeddings=spec.keys.get("context_length", CONTEXT), rms_norm_eps=spec.eps,
        rope_parameters={**spec.rope, "rope_theta": spec.theta},
        tie_word_embeddings=spec.tied, attention_bias=False, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None, pad_token_id=None, **spec.config,
    )
    config = getattr(transformers, spec.reference + "Config")
    model = getattr(transformers, spec.reference + "ForCausalLM")(config(**common))
    model = model.float().eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(".bias"):
                w = rng.normal(0, 0.4, p.shape)
            elif p.ndim == 1:  # norms: far from one, all positive
                w = rng.uniform(0.5, 1.5, p.shape)
            elif "embed_tokens" in name or "lm_head" in name:
                # logits come out at a std of about 2
                w = rng.normal(0, 2.0 / spec.hidden**0.5, p.shape)
            else:
                # peaked attention, and blocks that outweigh the embedding they add to
                gain = 1.6 if any(c in name for c in ("q_proj", "k_proj", "qkv_proj")) else 1.0
                gain = 3.0 if "o_proj" in name or "down_proj" in name else gain
                w = rng.normal(0, gain / p.shape[1] ** 0.5, p.shape)
            p.copy_(torch.from_numpy(w.astype(np.float32)))
    return model


@torch.no_grad()
def logits_of(model, tokens: list[int]) -> np.ndarray:
    """[tokens, vocab]"""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def margin(row: np.ndarray) -> float:
    second, best = np.partition(row, -2)[-2:]
    return float(best - second)


def greedy(step, prompt: list[int]) -> tuple[list[int], float]:
    """The continuation and the smallest top-2 margin on the way."""
    tokens, worst = list(prompt), float("inf")
    for _ in range(CONTINUATION):
        row = step(tokens)[-1]
        worst = min(worst, margin(row))
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], worst


# --- GGUF side ---------------------------------------------------------------------


def interleave(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a Q or K projection from half-split RoPE pairs (i, i + d/2), as Hugging
    Face keeps them, to neighbours (2i, 2i + 1), as GGUF files of arch `llama` do."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def frequency_divisors(spec: Spec) -> np.ndarray:
    """`rope_freqs.weight`: what each base frequency is divided by under Llama 3 scaling."""
    s = spec.rope
    base = spec.theta ** (-np.arange(0, spec.head_dim, 2) / spec.head_dim)
    turns = s["original_max_position_embeddings"] * base / (2 * np.pi)
    keep = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
    keep = np.clip(keep, 0.0, 1.0)
    assert (keep == 0).any() and (keep == 1).any() and ((keep > 0) & (keep < 1)).any()
    return (1.0 / (keep + (1.0 - keep) / s["factor"])).astype(np.float32)


LAYER_TENSORS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
}
TOP_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
}


def export(spec: Spec, model, path: Path) -> None:
    w = gguf.GGUFWriter(str(path), spec.arch)
    w.add_name(f"golden {spec.name}")
    w.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    w.add_vocab_size(VOCAB)
    w.add_context_length(spec.keys.get("context_length", CONTEXT))
    w.add_embedding_length(spec.hidden)
    w.add_block_count(spec.layers)
    w.add_feed_forward_length(spec.ffn)
    w.add_head_count(spec.heads)
    w.add_head_count_kv(spec.kv_heads)
    w.add_key_length(spec.head_dim)
    w.add_value_length(spec.head_dim)
    w.add_layer_norm_rms_eps(spec.eps)
    w.add_rope_dimension_count(int(spec.head_dim * spec.rope.get("partial_rotary_factor", 1)))
    w.add_rope_freq_base(spec.theta)
    for key, value in spec.keys.items():
        if key != "context_length":
            add = {str: w.add_string, int: w.add_uint32, float: w.add_float32}[type(value)]
            add(f"{spec.arch}.{key}", value)
    w.add_tokenizer_model("no_vocab")
    for name, p in model.named_parameters():
        data = p.detach().numpy()
        if name in TOP_TENSORS:
            w.add_tensor(TOP_TENSORS[name], data)
            continue
        _, _, layer, rest = name.split(".", 3)
        rest, kind = rest.rsplit(".", 1)  # "weight" or "bias"
        if spec.permuted and ("q_proj" in rest or "k_proj" in rest):
            data = interleave(data, spec.heads if "q_proj" in rest else spec.kv_heads)
        w.add_tensor(f"blk.{layer}.{LAYER_TENSORS[rest]}.{kind}", data)
    if spec.rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", frequency_divisors(spec))
    if spec.rope["rope_type"] == "longrope":
        for length in ("short", "long"):
            factors = np.array(spec.rope[f"{length}_factor"], np.float32)
            w.add_tensor(f"rope_factors_{length}.weight", factors)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Float64:
    """A forward pass over a GGUF file in float64, knowing nothing but the file and the
    conventions of its architecture: which elements RoPE pairs, and in which layers."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(str(path))
        self.t = {t.name: t.data.astype(np.float64) for t in reader.tensors}
        self.arch = str(reader.fields["general.architecture"].contents())
        get = lambda key: reader.fields[f"{self.arch}.{key}"].contents()
        self.layers, self.heads = get("block_count"), get("attention.head_count")
        self.kv_heads, self.d = get("attention.head_count_kv"), get("attention.key_length")
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.key = lambda key, default: (
            reader.fields[f"{self.arch}.{key}"].contents()
            if f"{self.arch}.{key}" in reader.fields else default)
        self.scale = self.key("attention.scale", 1 / math.sqrt(self.d))
        self.rot, self.context = get("rope.dimension_count"), get("context_length")
        self.base = get("rope.freq_base")
        self.freq = self.base ** (-np.arange(0, self.rot, 2) / self.rot)
        self.freq = self.freq / self.t.get("rope_freqs.weight", 1.0)
        self.rope_gain = 1.0
        self.stretch()

    def stretch(self):
        """Angles and gain of a stretched context."""
        original = self.key("rope.scaling.original_context_length", self.context)
        factor = self.key("rope.scaling.factor", 1.0)
        kind = self.key("rope.scaling.type", "none")
        if "rope_factors_long.weight" in self.t:
            length = "long" if self.context > original else "short"
            self.freq = self.freq / self.t[f"rope_factors_{length}.weight"]
            self.rope_gain = self.key("rope.scaling.attn_factor", 1.0)
        elif kind == "linear":
            self.freq = self.freq / factor
        elif kind == "yarn":
            # turns within the original context: 32 and more stay, one and less are divided
            at = lambda turns: (self.rot * math.log(original / (turns * 2 * math.pi))
                                / (2 * math.log(self.base)))
            low, high = max(math.floor(at(32)), 0), min(math.ceil(at(1)), self.rot - 1)
            divided = np.clip((np.arange(self.rot // 2) - low) / (high - low), 0, 1)
            assert ((divided > 0) & (divided < 1)).any() and (divided == 1).any()
            self.freq = self.freq * (1 - divided + divided / factor)
            self.rope_gain = 1 + 0.1 * math.log(factor)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def rope(self, x):  # [tokens, heads, d]
        angle = np.arange(len(x))[:, None, None] * self.freq
        cos, sin = np.cos(angle) * self.rope_gain, np.sin(angle) * self.rope_gain
        out = x.copy()
        half = self.rot // 2
        a, b = ((slice(0, self.rot, 2), slice(1, self.rot, 2)) if self.arch in PERMUTED
                else (slice(0, half), slice(half, self.rot)))
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def __call__(self, tokens: list[int]) -> np.ndarray:
        t, n = self.t, len(tokens)
        x = t["token_embd.weight"][tokens] * self.key("embedding_scale", 1.0)
        add = self.key("residual_scale", 1.0)
        def linear(h, name):
            return h @ t[name + ".weight"].T + t.get(name + ".bias", 0.0)
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(self.layers):
            p = f"blk.{i}."
            h = self.norm(x, p + "attn_norm.weight")
            if p + "attn_qkv.weight" in t:
                ends = np.cumsum([self.heads, self.kv_heads]) * self.d
                q, k, v = np.split(linear(h, p + "attn_qkv"), ends, axis=1)
            else:
                q, k, v = (linear(h, p + f"attn_{c}") for c in "qkv")
            q, k, v = (m.reshape(n, -1, self.d) for m in (q, k, v))
            if p + "attn_q_norm.weight" in t:
                q = self.norm(q, p + "attn_q_norm.weight")
                k = self.norm(k, p + "attn_k_norm.weight")
            if (i + 1) % NOPE_EVERY.get(self.arch, self.layers + 1):
                q, k = self.rope(q), self.rope(k)
            k, v = (np.repeat(m, self.heads // self.kv_heads, axis=1) for m in (k, v))
            s = np.einsum("qhd,khd->hqk", q, k) * self.scale + hidden
            s = np.exp(s - s.max(-1, keepdims=True))
            s /= s.sum(-1, keepdims=True)
            o = np.einsum("hqk,khd->qhd", s, v).reshape(n, -1)
            x = x + add * linear(o, p + "attn_output")
            h = self.norm(x, p + "ffn_norm.weight")
            if p + "ffn_gate.weight" in t:
                gate, up = linear(h, p + "ffn_gate"), linear(h, p + "ffn_up")
            else:
                gate, up = np.split(linear(h, p + "ffn_up"), 2, axis=1)
            x = x + add * linear(gate / (1 + np.exp(-gate)) * up, p + "ffn_down")
        x = self.norm(x, "output_norm.weight")
        x = x @ t.get("output.weight", t["token_embd.weight"]).T
        return x / self.key("logit_scale", 1.0)


# --- one model -----------------------------------------------------------------------


def make(spec: Spec) -> None:
    folder = OUT / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.gguf"
    ids = prompts()
    short = next(p for p in ids if len(p) == ALL_POSITIONS)
    for seed in range(1, 200):
        model = build(spec, seed)
        continuation, worst = greedy(lambda t: logits_of(model, t), short)
        if worst > MIN_MARGIN and len(set(continuation)) >= MIN_DISTINCT:
            break
    else:
        raise SystemExit(f"{spec.name}: no seed gives clear margins and a varied continuation")
    export(spec, model, path)

    check, error, entries, spread = Float64(path), 0.0, [], []
    for tokens in ids:
        got, want = logits_of(model, tokens), check(tokens)
        error = max(error, float(np.abs(got - want).max() / np.abs(want).max()))
        spread.append(got[-1].std())
        rows = got if len(tokens) == ALL_POSITIONS else got[-1:]
        entries.append({"tokens": tokens,
                        "logits": [[float(str(v)) for v in row] for row in rows]})
    exact, exact_worst = greedy(check, short)
    if error > MAX_ERROR or exact != continuation:
        raise SystemExit(f"{spec.name}: float32 and float64 disagree (error {error:.2e})")

    # dumps would spread one number per line with indent; one prompt per line is enough
    body = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    greedy_json = json.dumps({"prompt": short, "continuation": continuation}, separators=(",", ":"))
    (folder / "expected.json").write_text(
        f'{{"prompts":[\n{body}\n],\n"greedy":{greedy_json}}}\n')
    print(f"{spec.name}: seed {seed}, logit std {min(spread):.2f}..{max(spread):.2f}, "
          f"float32 error {error:.1e}, min margin {min(worst, exact_worst):.3f}, "
          f"{len(set(continuation))} distinct of {CONTINUATION}, {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    names = parser.parse_args().names
    unknown = set(names) - {s.name for s in SPECS}
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for spec in SPECS:
        if not names or spec.name in names:
            make(spec)


if __name__ == "__main__":
    main()
