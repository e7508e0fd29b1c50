"""Weights by a rule, rounded to bfloat16: each part of the model matters, norms are not all one, biases are not zero."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))

import weights

# The last words of a parameter's path that has no bias, and the gain over 1 / sqrt(inputs).
GAINS = {
    "q_proj": 1.3, "k_proj": 1.3, "qkv_proj": 1.3, "query_key_value": 1.3, "c_attn": 1.3, "Wqkv": 1.3, "q_b_proj": 1.3,
    "o_proj": 2.0, "out_proj": 2.0, "dense": 2.0, "c_proj": 2.0, "down_proj": 2.0, "dense_4h_to_h": 2.0, "fc2": 2.0,
    "w2": 2.0, "output_linear": 2.0, "Wo": 2.0, "wo": 2.0, "gate": 2.0, "router": 2.0, "layer": 2.0, "wg": 2.0,
}
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in", "lm_head", "embed_out", "tok_embeddings", "shared")
POSITIONS = ("wpe", "position_embeddings", "token_type_embeddings")
CHOICES = ("e_score_correction_bias", "expert_bias", "moe_statics")


def seed_of(name: str, seed: int) -> torch.Generator:
    return torch.Generator().manual_seed((weights.fnv1a(name) + seed) % 2**63)


def spread(name: str, p: torch.Tensor, stronger: float) -> tuple[torch.Tensor | float, float]:
    """The middle of a parameter's values and how far they are from it."""
    words = name.split(".")
    kind = words[-1]
    module = words[-2] if len(words) > 1 else ""
    if any(choice in name for choice in CHOICES):
        return 0.0, 0.1
    if kind == "sinks":
        return 0.0, 1.5
    if kind in ("A_log", "dt_bias", "D") or "act_fn" in name:  # recurrences whose states last some tokens; xIELU
        return p.detach().clone(), 0.2
    if kind == "layer_scalar" or kind in ("per_expert_scale", "scale", "correct_output_scale"):
        return 1.0, 0.25
    if "bias" in kind:
        return 0.0, 0.3
    if p.ndim == 1:  # norms: about one, or about zero where the model adds it
        first = p.detach().float().mean().item()
        return (first, 0.5) if first > 0.1 else (0.0, 0.4)
    if module in EMBEDDINGS:
        return 0.0, 2.0 * 3**0.5 / p.shape[-1] ** 0.5
    if module in POSITIONS:
        return 0.0, 0.5
    gain = GAINS.get(module if kind == "weight" else kind, 1.0)
    if gain == 2.0 and module not in ("gate", "router", "layer", "wg"):
        gain *= stronger
    return 0.0, gain * 3**0.5 / max(p[0].numel() if kind == "weight" and "conv" in module else p.shape[-1], 1) ** 0.5


@torch.no_grad()
def fill(model: torch.nn.Module, seed: int, stronger: float) -> None:
    """Sets all parameters, and the buffers that checkpoints have. `stronger`: gain of what blocks add to the stream, for
    models whose scaled embedding would outweigh them."""
    kept = set(model.state_dict())
    choices = [b for b in model.named_buffers() if b[0] in kept and b[1].is_floating_point()
               and any(choice in b[0] for choice in (*CHOICES, "layer_scalar"))]
    for name, p in [*model.named_parameters(), *choices]:
        middle, most = spread(name, p, stronger)
        noise = torch.rand(p.shape, generator=seed_of(name, seed)) * 2 - 1
        p.copy_((middle + most * noise).bfloat16())
