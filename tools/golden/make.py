#!/usr/bin/env python3
"""Golden logits for the engine's tests.

Builds small random models, runs them with Hugging Face `transformers` (float32,
eager attention), writes each as an F32 GGUF file and stores what it answered.
Before anything is kept, the file just written is read back and evaluated by a
second, independent forward pass in NumPy float64 that follows the GGUF
conventions (interleaved RoPE for `llama`, half-split for `qwen3`): that checks the
export and bounds the rounding error of the float32 numbers.

    python make.py            # all models into ../../tests/golden
    python make.py qwen3_tied # one of them

Weights come from NumPy's PCG64, so they do not depend on the torch version; the
logits do, by about 1e-6.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

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
    arch: str  # "qwen3" or "llama"
    tied: bool
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    theta: float
    eps: float
    llama3: dict | None = None


SPECS = (
    # heads * head_dim differs from hidden, as in every real Qwen3
    Spec("qwen3_tied", "qwen3", True, 2, 64, 4, 2, 32, 96, 1e6, 1e-6),
    Spec("qwen3_untied", "qwen3", False, 3, 64, 4, 2, 16, 96, 1e6, 1e-6),
    # three query heads to a KV head; of the eight frequencies two are kept, one is
    # blended and five are divided by the factor
    Spec("llama3_tied", "llama", True, 2, 96, 6, 2, 16, 96, 5e5, 1e-5,
         dict(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=256)),
    Spec("llama2_untied", "llama", False, 2, 64, 4, 4, 16, 160, 1e4, 1e-5),
)


def prompts() -> list[list[int]]:
    """The same token ids for every model."""
    rng = np.random.default_rng(20240229)
    return [rng.integers(0, VOCAB, n).tolist() for n in PROMPT_LENGTHS]


# --- Hugging Face side -------------------------------------------------------------


def build(spec: Spec, seed: int):
    rope = {"rope_type": "llama3", **spec.llama3} if spec.llama3 else {"rope_type": "default"}
    common = dict(
        vocab_size=VOCAB, hidden_size=spec.hidden, intermediate_size=spec.ffn,
        num_hidden_layers=spec.layers, num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads, head_dim=spec.head_dim,
        max_position_embeddings=CONTEXT, rms_norm_eps=spec.eps,
        rope_parameters={**rope, "rope_theta": spec.theta},
        tie_word_embeddings=spec.tied, attention_bias=False, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )
    config, cls = ((Qwen3Config, Qwen3ForCausalLM) if spec.arch == "qwen3"
                   else (LlamaConfig, LlamaForCausalLM))
    model = cls(config(**common)).float().eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:  # norms: far from one, all positive
                w = rng.uniform(0.5, 1.5, p.shape)
            elif "embed_tokens" in name or "lm_head" in name:
                # logits come out at a std of about 2
                w = rng.normal(0, 2.0 / spec.hidden**0.5, p.shape)
            else:
                # peaked attention, and blocks that outweigh the embedding they add to
                gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
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
    s = spec.llama3
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
    w.add_context_length(CONTEXT)
    w.add_embedding_length(spec.hidden)
    w.add_block_count(spec.layers)
    w.add_feed_forward_length(spec.ffn)
    w.add_head_count(spec.heads)
    w.add_head_count_kv(spec.kv_heads)
    w.add_key_length(spec.head_dim)
    w.add_value_length(spec.head_dim)
    w.add_layer_norm_rms_eps(spec.eps)
    w.add_rope_dimension_count(spec.head_dim)
    w.add_rope_freq_base(spec.theta)
    w.add_tokenizer_model("no_vocab")
    for name, p in model.named_parameters():
        data = p.detach().numpy()
        if name in TOP_TENSORS:
            w.add_tensor(TOP_TENSORS[name], data)
            continue
        _, _, layer, rest = name.split(".", 3)
        if spec.arch == "llama" and ("q_proj" in rest or "k_proj" in rest):
            data = interleave(data, spec.heads if "q_proj" in rest else spec.kv_heads)
        w.add_tensor(f"blk.{layer}.{LAYER_TENSORS[rest.removesuffix('.weight')]}.weight", data)
    if spec.llama3:
        w.add_tensor("rope_freqs.weight", frequency_divisors(spec))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Float64:
    """A forward pass over a GGUF file in float64, knowing nothing but the file."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(str(path))
        self.t = {t.name: t.data.astype(np.float64) for t in reader.tensors}
        self.arch = str(reader.fields["general.architecture"].contents())
        get = lambda key: reader.fields[f"{self.arch}.{key}"].contents()
        self.layers, self.heads = get("block_count"), get("attention.head_count")
        self.kv_heads, self.d = get("attention.head_count_kv"), get("attention.key_length")
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.freq = get("rope.freq_base") ** (-np.arange(0, self.d, 2) / self.d)
        self.freq = self.freq / self.t.get("rope_freqs.weight", 1.0)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def rope(self, x):  # [tokens, heads, d]
        angle = np.arange(len(x))[:, None, None] * self.freq
        cos, sin = np.cos(angle), np.sin(angle)
        out = np.empty_like(x)
        half = self.d // 2
        a, b = ((slice(0, half), slice(half, None)) if self.arch == "qwen3"
                else (slice(0, None, 2), slice(1, None, 2)))
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def __call__(self, tokens: list[int]) -> np.ndarray:
        t, n = self.t, len(tokens)
        x = t["token_embd.weight"][tokens]
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(self.layers):
            p = f"blk.{i}."
            h = self.norm(x, p + "attn_norm.weight")
            q, k, v = ((h @ t[p + f"attn_{c}.weight"].T).reshape(n, -1, self.d) for c in "qkv")
            if p + "attn_q_norm.weight" in t:
                q = self.norm(q, p + "attn_q_norm.weight")
                k = self.norm(k, p + "attn_k_norm.weight")
            q, k = self.rope(q), self.rope(k)
            k, v = (np.repeat(m, self.heads // self.kv_heads, axis=1) for m in (k, v))
            s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.d) + hidden
            s = np.exp(s - s.max(-1, keepdims=True))
            s /= s.sum(-1, keepdims=True)
            o = np.einsum("hqk,khd->qhd", s, v).reshape(n, -1)
            x = x + o @ t[p + "attn_output.weight"].T
            h = self.norm(x, p + "ffn_norm.weight")
            gate = h @ t[p + "ffn_gate.weight"].T
            up = h @ t[p + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ t[p + "ffn_down.weight"].T
        x = self.norm(x, "output_norm.weight")
        return x @ t.get("output.weight", t["token_embd.weight"]).T


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
