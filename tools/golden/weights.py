"""The weights of the golden models: a rule instead of files.

Element i of a tensor is `offset + amplitude * u`, in float32, with u the upper 24 bits of the i-th
output of SplitMix64, as a number from -1 to 1 (exclusive). The generator starts at the tensor's
FNV-1a hash (64 bits) plus the model's seed. Integers, a division by a power of two, one product and
one sum: every language that rounds as IEEE 754 says gets the same bits. `testkit::golden` is the
same in Rust.
"""

import numpy as np

SEED = "golden.seed"
AMPLITUDE, OFFSET = "golden.amplitude", "golden.offset"  # one number per tensor, in the file's order
VALUES = "golden.values."  # and a tensor's name: small tensors that the rule does not make


def fnv1a(name: str) -> int:
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def values(seed: int, name: str, shape: tuple, amplitude, offset) -> np.ndarray:
    start = np.uint64((fnv1a(name) + seed) % 2**64)
    i = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = start + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    u = ((z >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32) / np.float32(2**23)
    return (np.float32(amplitude) * u + np.float32(offset)).reshape(shape)


def spread(name: str, shape: tuple, gains: dict) -> tuple[np.float32, np.float32]:
    """Amplitude and offset of a tensor of the file."""
    kind = name.removesuffix(".weight").rsplit(".", 1)[-1]
    deviation, offset = 0.0, 0.0
    if name.endswith(".bias"):
        deviation = gains.get("bias", 0.4)
    elif kind.endswith("norm") or kind == "attn_norm_2":  # far from one, all positive
        gain = gains.get(kind, 1.0)
        return np.float32(0.5 * gain), np.float32(gain)
    elif kind == "ssm_a":  # states that last some tokens
        return np.float32(0.3), np.float32(-0.4)
    elif kind in ("layer_output_scale", "scale", "altup_correct_scale"):  # near one
        return np.float32(0.25), np.float32(1.0)
    elif kind == "ssm_d":
        return np.float32(0.5), np.float32(1.0)
    elif kind == "attn_sinks":  # near the scores of keys
        deviation = 1.0
    elif kind in ("token_embd", "output"):
        deviation = 2.0 / shape[-1] ** 0.5  # logits come out at a deviation of about 2
    else:
        # peaked attention, blocks that outweigh the embedding they add to, clear choices of experts
        gain = {"attn_q": 1.6, "attn_k": 1.6, "attn_qkv": 1.6, "attn_output": 3.0, "ffn_down": 3.0,
                "ffn_down_exps": 3.0, "ffn_down_shexp": 3.0, "ffn_gate_inp": 3.0,
                "ssm_out": 3.0, "out_proj": 3.0}
        deviation = {**gain, **gains}.get(kind, 1.0) / shape[-1] ** 0.5
    return np.float32(deviation * 3**0.5), np.float32(offset)
