"""Layers with a state of fixed size: their parameters in files, and their forward pass in NumPy float64.

Names, orders of rows and shapes are those of llama.cpp's converter.
"""

import numpy as np

# Parameters of such layers, and others of the families that have them.
MAMBA = {"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "dt": "ssm_dt", "norm": "ssm_norm",
         "out_proj": "ssm_out", "A_log": "ssm_a", "D": "ssm_d"}
DELTA = {"conv1d": "ssm_conv1d", "dt": "ssm_dt", "norm": "ssm_norm", "out_proj": "ssm_out",
         "A_log": "ssm_a", "in_proj_qkvz": "attn_qkv attn_gate", "in_proj_ba": "ssm_ba",
         "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate", "in_proj_b": "ssm_beta",
         "in_proj_a": "ssm_alpha"}
QWEN = {"post_attention_layernorm": "post_attention_norm",
        **{f"linear_attn.{name}": tensor for name, tensor in DELTA.items()}}
LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
        **{f"conv.{name}": f"shortconv.{name}" for name in ("conv", "in_proj", "out_proj")},
        "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
        "feed_forward.gate": "ffn_gate_inp",
        "feed_forward.experts.gate_up_proj": "ffn_gate_exps ffn_up_exps",
        "feed_forward.experts.down_proj": "ffn_down_exps"}
TENSORS = {
    "qwen3next": QWEN, "qwen35": QWEN, "qwen35moe": QWEN, "lfm2": LFM2, "lfm2moe": LFM2,
    "granitehybrid": {f"mamba.{name}": tensor for name, tensor in MAMBA.items()},
    "falcon-h1": {**{f"mamba.{name}": tensor for name, tensor in MAMBA.items()},
                  "pre_ff_layernorm": "ffn_norm",
                  **{f"feed_forward.{m}_proj": f"ffn_{m}" for m in ("gate", "up", "down")}},
    **{arch: {**{f"mixer.{name}": tensor for name, tensor in MAMBA.items()}, "norm": "attn_norm",
              **{f"mixer.{m}_proj": f"attn_{m}" for m in "qkv"}, "mixer.o_proj": "attn_output",
              "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
              "mixer.experts.up_proj": "ffn_up_exps", "mixer.experts.down_proj": "ffn_down_exps",
              "mixer.shared_experts.up_proj": "ffn_up_shexp",
              "mixer.shared_experts.down_proj": "ffn_down_shexp"}
       for arch in ("nemotron_h", "nemotron_h_moe")},
}
TOP_TENSORS = {"model.embedding_norm": "token_embd_norm", "model.embeddings": "token_embd",
               "model.norm_f": "output_norm", "model.final_layernorm": "output_norm"}
# Tensors whose names have no ending.
BARE = {"ssm_a", "ssm_d"}
SHIFTED = ("qwen3next", "qwen35", "qwen35moe")  # norms whose weights the model adds one to


def is_bare(arch: str, tensor: str) -> bool:
    return tensor in BARE or (arch, tensor) == ("falcon-h1", "ffn_norm")


def sizes(spec):
    """Heads of values, of keys, and elements of each."""
    key = spec.keys
    heads, inner = key["ssm.time_step_rank"], key["ssm.inner_size"]
    return heads, key["ssm.group_count"], inner // heads, key["ssm.state_size"]


def shape(spec, name: str, shape: tuple) -> list[tuple] | None:
    """The shapes of the tensors of the file that hold the parameter, where they are unusual."""
    last = name.rsplit(".", 1)[-1]
    if "in_proj_qkvz" in name:
        heads, key_heads, dim, key_dim = sizes(spec)
        rows = 2 * key_heads * key_dim + heads * dim
        return [(rows, shape[1]), (heads * dim, shape[1])]
    if name.endswith("conv1d.weight") or name.endswith("conv.conv.weight"):
        return [(shape[0], shape[2])]
    mamba = "linear_attn" not in name
    if last in ("A_log", "D") and mamba:
        return [(shape[0], 1)]
    if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
        groups = spec.keys["ssm.group_count"]
        return [(groups, shape[0] // groups)]
    return None


def grouped(w: np.ndarray, spec, dim: int) -> np.ndarray:
    """Rows of heads of values by their heads of keys, from files in which these take turns."""
    heads, key_heads, _, _ = sizes(spec)
    return w.reshape(heads // key_heads, key_heads, dim, -1).swapaxes(0, 1).reshape(w.shape)


def of_parameter(spec, name: str, parts: list[np.ndarray]) -> np.ndarray | None:
    """The parameter from its tensors in the file, where it is not these rows after rows."""
    last = name.rsplit(".", 1)[-1]
    w = parts[0]
    if last == "A_log":
        w = np.log(-w)
    if "in_proj_qkvz" in name:  # by heads of keys: query, key, values, gates
        heads, key_heads, dim, key_dim = sizes(spec)
        keys = key_heads * key_dim
        parts = [*np.split(w, [keys, 2 * keys]), parts[1]]
        by_head = [p.reshape(key_heads, -1, p.shape[1]) for p in parts]
        return np.concatenate(by_head, 1).reshape(-1, w.shape[1])
    if spec.arch in ("qwen35", "qwen35moe") and "linear_attn" in name:
        heads, key_heads, dim, key_dim = sizes(spec)
        keys = 2 * key_heads * key_dim
        if "in_proj_qkv" in name or "conv1d" in name:
            return np.concatenate([w[:keys], grouped(w[keys:], spec, dim)])
        if "in_proj_z" in name:
            return grouped(w, spec, dim)
        if "out_proj" in name:
            return grouped(np.ascontiguousarray(w.T), spec, dim).T
        if "norm" not in name:
            return grouped(w, spec, 1)
    if spec.arch in SHIFTED and name.endswith("norm.weight") and "linear_attn" not in name:
        return w - 1
    return w if last in ("A_log", "D") else None


def silu(x):
    return x / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def convolve(x, taps, bias):
    """Each channel by itself: the last tap is of the token, the others of those before."""
    n, last = len(x), taps.shape[1] - 1
    padded = np.concatenate([np.zeros((last, x.shape[1])), x])
    return sum(padded[j:j + n] * taps[:, j] for j in range(last + 1)) + bias


def short_convolution(t, p, h):
    b, c, x = np.split(h @ t[p + "shortconv.in_proj.weight"].T, 3, axis=1)
    y = c * convolve(b * x, t[p + "shortconv.conv.weight"], 0.0)
    return y @ t[p + "shortconv.out_proj.weight"].T


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def mamba(t, p, h, key, eps):
    """The recurrence of Mamba-2 token by token."""
    heads, groups, state = key["ssm.time_step_rank"], key["ssm.group_count"], key["ssm.state_size"]
    inner = key["ssm.inner_size"]
    z, xbc, dt = np.split(h @ t[p + "ssm_in.weight"].T, [inner, 2 * inner + 2 * groups * state], 1)
    xbc = silu(convolve(xbc, t[p + "ssm_conv1d.weight"], t.get(p + "ssm_conv1d.bias", 0.0)))
    x, b, c = np.split(xbc, [inner, inner + groups * state], axis=1)
    x = x.reshape(len(h), heads, -1)
    b, c = (np.repeat(m.reshape(len(h), groups, state), heads // groups, 1) for m in (b, c))
    dt = softplus(dt + t[p + "ssm_dt.bias"])
    a, d = t[p + "ssm_a"].reshape(-1), t[p + "ssm_d"].reshape(-1, 1)
    s, out = np.zeros((heads, x.shape[2], state)), []
    for i in range(len(h)):
        s = s * np.exp(dt[i] * a)[:, None, None] + (dt[i, :, None] * x[i])[:, :, None] * b[i, :, None]
        out.append((s * c[i][:, None]).sum(2) + d * x[i])
    y = np.array(out).reshape(len(h), inner) * silu(z)
    if p + "ssm_norm.weight" in t:
        y = rms(y.reshape(len(h), groups, -1), eps) * t[p + "ssm_norm.weight"].reshape(groups, -1)
    return y.reshape(len(h), inner) @ t[p + "ssm_out.weight"].T


def delta_net(t, p, h, key, eps):
    """The gated delta rule token by token."""
    n, heads, key_heads = len(h), key["ssm.time_step_rank"], key["ssm.group_count"]
    state, inner = key["ssm.state_size"], key["ssm.inner_size"]
    qkv = silu(convolve(h @ t[p + "attn_qkv.weight"].T, t[p + "ssm_conv1d.weight"], 0.0))
    q, k, v = np.split(qkv, [key_heads * state, 2 * key_heads * state], axis=1)
    each = heads // key_heads
    if p + "ssm_ba.weight" in t:
        ba = (h @ t[p + "ssm_ba.weight"].T).reshape(n, key_heads, 2, each)
        beta, alpha = ba[:, :, 0].reshape(n, -1), ba[:, :, 1].reshape(n, -1)
        spread = lambda m: np.repeat(m.reshape(n, key_heads, state), each, 1)
    else:
        beta, alpha = (h @ t[p + f"ssm_{m}.weight"].T for m in ("beta", "alpha"))
        spread = lambda m: np.tile(m.reshape(n, key_heads, state), (1, each, 1))
    length = lambda m: m / np.sqrt((m * m).sum(-1, keepdims=True) + 1e-6)
    q, k = length(spread(q)) / np.sqrt(state), length(spread(k))
    v = v.reshape(n, heads, -1)
    decay = np.exp(t[p + "ssm_a"] * softplus(alpha + t[p + "ssm_dt.bias"]))
    beta = 1 / (1 + np.exp(-beta))
    s, out = np.zeros((heads, state, v.shape[2])), []
    for i in range(n):
        s = s * decay[i][:, None, None]
        known = np.einsum("hk,hkv->hv", k[i], s)
        s = s + k[i][:, :, None] * (beta[i][:, None] * (v[i] - known))[:, None]
        out.append(np.einsum("hk,hkv->hv", q[i], s))
    y = rms(np.array(out), eps) * t[p + "ssm_norm.weight"]
    y = y.reshape(n, inner) * silu(h @ t[p + "attn_gate.weight"].T)
    return y @ t[p + "ssm_out.weight"].T
