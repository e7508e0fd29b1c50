"""From a `transformers` model's parameters to a GGUF file's tensors and back.

Names, metadata and the order of rows are those of llama.cpp's converter.
"""

from pathlib import Path

import gguf
import numpy as np
import torch

import families
import predict
import recurrent
import weights
from specs import CONTEXT, Spec

LAYER_TENSORS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_up_proj": "ffn_gate_exps ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    **{f"mlp.{shared}.{m}_proj": f"ffn_{m}_shexp" for m in ("gate", "up", "down")
       for shared in ("shared_expert", "shared_experts")},
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_k_b attn_v_b",
}
# Where an architecture has other blocks, or calls something else by a name above.
ARCH_TENSORS = {
    "olmo2": {"post_attention_layernorm": "post_attention_norm",
              "post_feedforward_layernorm": "post_ffw_norm"},
    **{gemma: {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"} for gemma in ("gemma2", "gemma3")},
    "gemma4": {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm",
               "post_feedforward_layernorm_1": "post_ffw_norm_1",
               "post_feedforward_layernorm_2": "post_ffw_norm_2",
               "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
               "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
               "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale",
               "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp",
               "router.per_expert_scale": "ffn_down_exps",
               "experts.gate_up_proj": "ffn_gate_up_exps", "experts.down_proj": "ffn_down_exps"},
    "gemma3n": {"post_attention_layernorm": "post_attention_norm",
                "pre_feedforward_layernorm": "ffn_norm",
                "post_feedforward_layernorm": "post_ffw_norm",
                "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
                "post_per_layer_input_norm": "post_norm",
                "altup.correct_output_scale": "altup_correct_scale",
                "altup.correction_coefs": "altup_correct_coef",
                "altup.prediction_coefs": "altup_predict_coef",
                "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm",
                "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
                "laurel.post_laurel_norm": "laurel_post_norm"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "granite": {"shared_mlp.input_linear": "ffn_gate ffn_up",
                "shared_mlp.output_linear": "ffn_down"},
    "granitemoe": {"block_sparse_moe.router": "ffn_gate_inp",
                   "block_sparse_moe.experts.gate_up_proj": "ffn_gate_exps ffn_up_exps",
                   "block_sparse_moe.experts.down_proj": "ffn_down_exps",
                   "shared_mlp.input_linear": "ffn_gate_shexp ffn_up_shexp",
                   "shared_mlp.output_linear": "ffn_down_shexp"},
    "glm4moe": {"post_attention_layernorm": "post_attention_norm"},
    "bailingmoe2": {f"self_attn.{m}_proj": "attn_qkv" for m in "qkv"},
    "llama4": {**{f"feed_forward.{m}_proj": f"ffn_{m}" for m in ("gate", "up", "down")},
               **{f"feed_forward.shared_expert.{m}_proj": f"ffn_{m}_shexp"
                  for m in ("gate", "up", "down")},
               "feed_forward.router": "ffn_gate_inp",
               "feed_forward.experts.gate_up_proj": "ffn_gate_exps ffn_up_exps",
               "feed_forward.experts.down_proj": "ffn_down_exps"},
    "phimoe": {"mlp.router": "ffn_gate_inp"},
    "hunyuan-moe": {"self_attn.query_layernorm": "attn_q_norm",
                    "self_attn.key_layernorm": "attn_k_norm", "mlp.gate.wg": "ffn_gate_inp",
                    **{f"mlp.shared_mlp.{m}_proj": f"ffn_{m}_shexp" for m in ("gate", "up", "down")}},
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm",
                "self_attn.sinks": "attn_sinks", "mlp.router": "ffn_gate_inp"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm",
             "post_mlp_layernorm": "post_ffw_norm"},
}
ARCH_TENSORS = {**ARCH_TENSORS, **recurrent.TENSORS, **families.TENSORS}
ARCH_TENSORS["granitehybrid"] = {**ARCH_TENSORS["granitehybrid"], **ARCH_TENSORS["granitemoe"]}
TOP_TENSORS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    **recurrent.TOP_TENSORS, **families.TOP_TENSORS,
}
TOP_TENSORS |= {"model.embed_tokens_per_layer": "per_layer_token_embd",
                "model.per_layer_model_projection": "per_layer_model_proj",
                "model.per_layer_projection_norm": "per_layer_proj_norm"}
# Parameters of which each is one matrix of a tensor.
STACKED = {"model.altup_projections": "altup_proj",
           "model.altup_unembed_projections": "altup_unembd_proj"}
# Buffers that files have: biases of the choice of experts, and factors of layers.
CHOICE = ("e_score_correction_bias", "expert_bias")
BUFFERS = (*CHOICE, "layer_scalar")


def file_names(spec: Spec, name: str) -> list[str]:
    """The tensors of the file that hold the parameter `name`, rows after rows."""
    if name.endswith(("router.scale", "router.per_expert_scale")):
        layer, tensor = name.split(".")[2], name.rsplit(".", 2)[-1]
        return [f"blk.{layer}.ffn_{'gate_inp' if tensor == 'scale' else 'down_exps'}.scale"]
    if name.endswith(CHOICE):
        return [f"blk.{name.split('.')[2]}.exp_probs_b.bias"]
    if not name.endswith((".weight", ".bias")):  # of experts, all in one
        name = name.removesuffix("_bias") + ".bias" if name.endswith("_bias") else name + ".weight"
    path, kind = name.rsplit(".", 1)
    if stacked(path):
        return [f"{STACKED[path.rsplit('.', 1)[0]]}.{kind}"]
    if families.head_norm(name) is not None:
        path = path.rsplit(".", 2)[0]
    if path in TOP_TENSORS:
        return [f"{TOP_TENSORS[path]}.{kind}"]
    _, _, layer, rest = path.split(".", 3)
    tensors = {**LAYER_TENSORS, **ARCH_TENSORS.get(spec.arch, {}), **spec.tensors}[rest]
    bare = lambda t: recurrent.is_bare(spec.arch, t)
    return [f"blk.{layer}.{t}" + ("" if bare(t) else f".{kind}") for t in tensors.split()]


def stacked(name: str) -> bool:
    """Whether the parameter is one matrix of a tensor that has several."""
    return name.removesuffix(".weight").rsplit(".", 1)[0] in STACKED


def split_halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a Q or K projection from neighbouring RoPE pairs (2i, 2i + 1), as GGUF files of some
    architectures keep them, to half-split ones (i, i + d/2), as Hugging Face does."""
    rows = w.shape[0]
    return w.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def rows_of(name: str, w) -> int:
    """The dimension of rows: before it may be that of experts."""
    return 1 if name.endswith("proj_bias") else max(w.ndim - 2, 0)


def turned(spec: Spec, name: str) -> bool:
    """Whether the parameter has rows as columns, and those of its tensors in turn."""
    return spec.arch in ("gpt-oss", "llama4") and ".experts." in name


def fused(spec: Spec, name: str) -> bool:
    """Whether the parameter is a part of a tensor that has Q, K and V."""
    return spec.arch in families.FUSED and name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")


def of_parameter(spec: Spec, name: str, parts: list[np.ndarray]) -> np.ndarray:
    """The parameter `name` from its tensors in the file."""
    rows = rows_of(name, parts[0])
    if (w := families.of_parameter(spec, name, parts[0])) is not None:
        return w
    if (w := recurrent.of_parameter(spec, name, parts)) is not None:
        return w
    if stacked(name):
        return parts[0][int(name.split(".")[-2])]
    if fused(spec, name):
        ends = np.cumsum([spec.heads, spec.kv_heads]) * spec.head_dim
        return np.split(parts[0], ends)["qkv".index(name.split(".")[-2][0])]
    if name.endswith("kv_b_proj.weight") and len(parts) == 2:  # by head, keys turned
        w = np.concatenate([parts[0].swapaxes(1, 2), parts[1]], 1)
        return w.reshape(-1, w.shape[2])
    if turned(spec, name):
        if spec.arch == "gpt-oss":  # rows in turn
            w = np.stack(parts, rows + 1)
            w = w.reshape(*w.shape[:rows], -1, *w.shape[rows + 2:])
        else:
            w = np.concatenate(parts, rows)
        return w.swapaxes(1, 2) if w.ndim == 3 else w
    w = np.concatenate(parts, rows)
    if spec.permuted and ("q_proj" in name or "k_proj" in name):
        w = split_halves(w, spec.heads if "q_proj" in name else spec.kv_heads)
    if spec.arch in families.ONE_MORE and name.endswith("norm.weight"):
        w = w - 1  # added back by the model, without a rounding
    return w


def shapes(spec: Spec, name: str, p, count: int) -> list[tuple]:
    """The shapes of the tensors of the file that hold the parameter `p`."""
    if name.endswith("kv_b_proj.weight") and count == 2:
        rank, nope, value = (spec.config[key]
                             for key in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
        return [(spec.heads, rank, nope), (spec.heads, value, rank)]
    if (unusual := recurrent.shape(spec, name, p.shape)) is not None:
        return unusual
    if (unusual := families.shape(spec, name, p)) is not None:
        return [unusual]
    if stacked(name):
        return [(spec.config["altup_num_inputs"] - 1, *p.shape)]
    if fused(spec, name):
        return [((spec.heads + 2 * spec.kv_heads) * spec.head_dim, *p.shape[1:])]
    # a matrix of one row is a vector in files
    one_row = p.ndim > 1 and p.shape[0] == 1
    shape, rows = list(p.shape[1:] if one_row else p.shape), rows_of(name, p)
    if turned(spec, name) and len(shape) == 3:
        shape[1:] = shape[:0:-1]
    shape[rows] //= count
    return [tuple(shape)] * count


def tensors(spec: Spec, model, seed: int, layer=None) -> dict[str, tuple[np.ndarray, np.float32, np.float32]]:
    """Sets the model's weights by the rule; the same as tensors of the file, with their amplitude
    and offset. `layer`: the model of the layer that predicts further tokens."""
    file = of_model(spec, model, seed, lambda name: name)
    if layer:
        file |= predict.make_inputs(spec, seed)
        file |= of_model(spec, layer, seed, lambda name: predict.file_name(spec, name))
    return file


def of_model(spec: Spec, model, seed: int, whole_name) -> dict:
    """The same of one model, whose parameters are in the file as those of `whole_name`, if it gives one."""
    file = {}
    with torch.no_grad():
        choice = [b for b in model.named_buffers() if b[0].endswith(BUFFERS)]
        for name, p in [*model.named_parameters(), *choice]:
            if families.left_out(name) or (known := whole_name(name)) is None:
                continue
            names = [known] if known.startswith("blk.") else file_names(spec, known)
            for n, shape in zip(names, shapes(spec, name, p, len(names))):
                spread = weights.spread(n, shape, spec.gains)
                file[n] = (weights.values(seed, n, shape, *spread), *spread)
            parts = [file[n][0] for n in names]
            p.copy_(torch.from_numpy(of_parameter(spec, name, parts)).reshape(p.shape))
    return file


def frequency_divisors(spec: Spec) -> np.ndarray:
    """`rope_freqs.weight`: what each base frequency is divided by under Llama 3 scaling."""
    s = spec.rope
    base = spec.theta ** (-np.arange(0, spec.head_dim, 2) / spec.head_dim)
    turns = s["original_max_position_embeddings"] * base / (2 * np.pi)
    keep = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
    keep = np.clip(keep, 0.0, 1.0)
    assert (keep == 0).any() and (keep == 1).any() and ((keep > 0) & (keep < 1)).any()
    return (1.0 / (keep + (1.0 - keep) / s["factor"])).astype(np.float32)


def stated(spec: Spec) -> dict[str, np.ndarray]:
    """Tensors whose values mean something."""
    if spec.rope.get("rope_type") == "llama3":
        return {"rope_freqs.weight": frequency_divisors(spec)}
    if spec.arch == "gemma4":  # the first pairs turn, the others do not
        pairs = spec.head_dim // 2
        turning = int(spec.head_dim * spec.rope["partial_rotary_factor"] / 2)
        return {"rope_freqs.weight": np.array([1.0] * turning + [1e30] * (pairs - turning), np.float32)}
    if spec.rope.get("rope_type") == "longrope":
        return {f"rope_factors_{length}.weight": np.array(spec.rope[f"{length}_factor"], np.float32)
                for length in ("short", "long")}
    return {}


def export(spec: Spec, seed: int, file: dict, path: Path) -> None:
    w = gguf.GGUFWriter(str(path), spec.arch)
    w.add_name(f"golden {spec.name}")
    w.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    w.add_vocab_size(spec.vocab)
    w.add_context_length(spec.keys.get("context_length", CONTEXT))
    w.add_embedding_length(spec.hidden)
    w.add_block_count(spec.layers + (spec.predicts is not None))
    if "feed_forward_length" not in spec.keys:
        w.add_feed_forward_length(spec.ffn)
    w.add_head_count(spec.heads)
    if "attention.head_count_kv" not in spec.keys:
        w.add_head_count_kv(spec.kv_heads)
    if "attention.key_length" not in spec.keys:
        w.add_key_length(spec.head_dim)
        w.add_value_length(spec.head_dim)
    plain = spec.arch in families.LAYER_NORM or spec.arch.startswith("nemotron_h")
    add_eps = w.add_layer_norm_eps if plain else w.add_layer_norm_rms_eps
    add_eps(spec.eps)
    partial = 1 if spec.arch == "gemma4" else spec.rope.get("partial_rotary_factor", 1)
    w.add_rope_dimension_count(int(spec.head_dim * partial))
    w.add_rope_freq_base(spec.theta)
    for key, value in spec.keys.items():
        if key != "context_length":
            add = {str: w.add_string, int: w.add_uint32, float: w.add_float32, bool: w.add_bool,
                   list: w.add_array}[type(value)]
            add(key if key.startswith("xielu.") else f"{spec.arch}.{key}", value)
    w.add_tokenizer_model("no_vocab")
    numbers = stated(spec)
    w.add_uint64(weights.SEED, seed)
    spreads = [f[1:] for f in file.values()] + [(0, 0)] * len(numbers)
    w.add_array(weights.AMPLITUDE, [float(a) for a, _ in spreads])
    w.add_array(weights.OFFSET, [float(o) for _, o in spreads])
    for name, data in numbers.items():
        w.add_array(weights.VALUES + name, [float(v) for v in data])
    for name, data in [(n, f[0]) for n, f in file.items()] + list(numbers.items()):
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
