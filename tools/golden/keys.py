"""The keys that configurations of each class of `convert` have, as `transformers` defines them.

    keys.py > crates/convert/src/keys.txt

One line for each configuration: its classes, a colon, and its keys with the values that the class takes where a folder is
silent. A key without a value has none, or one that is no number, flag or short text; `a>b` says that `a` is another name
for `b`; `a?` is a key that the class takes over from older folders. Needs no PyTorch.
"""

import dataclasses
import inspect
import json
import os
import re
from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "crates/convert/src/families"
# Other names of classes.
SAME = {
    "BitnetForCausalLM": "BitNetForCausalLM", "RWForCausalLM": "FalconForCausalLM", "MPTForCausalLM": "MptForCausalLM",
    "StableLMEpochForCausalLM": "StableLmForCausalLM", "OLMoForCausalLM": "OlmoForCausalLM",
    "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM", "LLaMAForCausalLM": "LlamaForCausalLM",
    "VLlama3ForCausalLM": "LlamaForCausalLM", "IQuestCoderForCausalLM": "LlamaForCausalLM",
    "PhiMoEForCausalLM": "PhimoeForCausalLM", "KORMoForCausalLM": "Qwen2ForCausalLM", "LFM2ForCausalLM": "Lfm2ForCausalLM",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM", "Qwen3Reranker": "Qwen3ForCausalLM",
    "Qwen3RerankerWithHead": "Qwen3ForCausalLM",
}
# Classes whose code is in their folders: the keys that it reads, by their `configuration_*.py`, and the values that it
# takes where they are not there.
USUAL = {
    "vocab_size": None, "hidden_size": None, "intermediate_size": None, "num_hidden_layers": None,
    "num_attention_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
ROPE = {"rope_theta": 10000.0, "rope_scaling": None}
OWN = {
    "InternLM2ForCausalLM": {**USUAL, **ROPE, "num_key_value_heads": None, "bias": True},
    "BaichuanForCausalLM BaiChuanForCausalLM": {**USUAL, "z_loss_weight": 0, "model_max_length": None, "hidden_act": "silu"},
    "ChatGLMModel ChatGLMForConditionalGeneration": {
        "num_layers": 28, "padded_vocab_size": None, "hidden_size": None, "ffn_hidden_size": None, "kv_channels": 128,
        "num_attention_heads": 32, "seq_length": 2048, "layernorm_epsilon": 1e-5, "rmsnorm": True,
        "apply_residual_connection_post_layernorm": False, "post_layer_norm": True, "add_bias_linear": False,
        "add_qkv_bias": False, "multi_query_attention": False, "multi_query_group_num": 1, "rope_ratio": 1,
        "apply_query_key_layer_scaling": True, "attention_softmax_in_fp32": True, "fp32_residual_connection": False,
        "original_rope": None, "pre_seq_len": None, "prefix_projection": False, "interleaved_qkv": False,
        "tie_word_embeddings": False,
    },
    "PlamoForCausalLM": {**USUAL, "n_shared_head": 8, "num_key_value_heads": None},
    "ExaoneForCausalLM": {
        **ROPE, "vocab_size": None, "max_position_embeddings": 2048, "hidden_size": None, "num_layers": None,
        "num_attention_heads": None, "num_key_value_heads": None, "intermediate_size": None, "head_dim": None,
        "activation_function": "silu", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    },
    "JinaBertModel JinaBertForMaskedLM": {
        "vocab_size": None, "hidden_size": None, "num_hidden_layers": None, "num_attention_heads": None,
        "intermediate_size": None, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "feed_forward_type": "original",
        "emb_pooler": None, "is_decoder": False, "add_cross_attention": False,
    },
    "BailingMoeV2ForCausalLM": {
        **USUAL, **ROPE, "num_key_value_heads": None, "head_dim": None, "use_qkv_bias": False, "use_bias": False,
        "num_experts": None, "num_shared_experts": 0, "num_experts_per_tok": None, "n_group": 8, "topk_group": 4,
        "moe_intermediate_size": None, "first_k_dense_replace": 0, "partial_rotary_factor": None, "rotary_dim": None,
        "use_qk_norm": True, "use_rmsnorm": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
        "score_function": "sigmoid", "num_nextn_predict_layers": 0, "moe_router_enable_expert_bias": True,
        "moe_shared_expert_intermediate_size": None, "router_dtype": None, "use_sliding_window": False,
        "sliding_window": None, "max_window_layers": None,
    },
    "MiniCPMForCausalLM": {
        **USUAL, **ROPE, "num_key_value_heads": None, "attention_bias": False, "scale_emb": 1, "dim_model_base": 1,
        "scale_depth": 1, "head_dim": None,
    },
}
# What changes no number of a forward pass, by its name: `keys.rs` has all of these. Of every model, besides, is of how it runs.
NEVER = re.compile(r".*_token_id|.*dropout.*|.*pdrop|initializer_.*|use_cache|.*_config|pretraining_tp")
BASE = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)} - {"tie_word_embeddings"}


def classes() -> list[str]:
    source = "".join(path.read_text() for path in sorted(FAMILIES.glob("*.rs")))
    names = re.findall(r"classes:\s*&\[(.*?)\]", source, re.S)
    consts = dict(re.findall(r'const (\w+): &str = "(\w+)";', source))
    found = []
    for text in names:
        found += [consts.get(name.strip(), name.strip().strip('"')) for name in text.split(",") if name.strip()]
    return found


def models() -> dict[str, str]:
    """The model type of each class."""
    folder = Path(transformers.__file__).parent / "models"
    of = {}
    for kind, name in re.findall(r'\(\s*"([\w-]+)",\s*"(\w+)",?\s*\)', (folder / "auto/modeling_auto.py").read_text()):
        # Other types of models may use the class of one.
        code = folder / kind.replace("-", "_") / f"modeling_{kind.replace('-', '_')}.py"
        own = code.is_file() and f"class {name}(" in code.read_text()
        if kind in CONFIG_MAPPING_NAMES and (own or name not in of):
            of[name] = kind
    return of


def fields(config: type) -> dict[str, object]:
    found = {}
    for field in dataclasses.fields(config):
        if field.name in BASE or NEVER.fullmatch(field.name):
            continue
        default = field.default
        found[field.name] = None if default is dataclasses.MISSING else default
    for old, new in (config.attribute_map or {}).items():
        if not NEVER.fullmatch(old):
            found.setdefault(f"{old}>{new}", None)
    found.update(older(config, found))
    return found


def older(config: type, known: dict[str, object]) -> dict[str, object]:
    """What the class takes over from older folders, with the values that it takes where they are not there."""
    source = ""
    for of in config.__mro__:
        if of.__module__.startswith("transformers.models."):
            methods = (vars(of).get(name) for name in ("__post_init__", "convert_rope_params_to_dict"))
            source += "".join(inspect.getsource(method) for method in methods if method)
    found = {f"{old}?": None for old in re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', source) if old not in known}
    for old, value in re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)", (\d+)\)', source):
        if f"{old}?" in found:
            found[f"{old}?"] = int(value)
    if "rope_parameters" in known:
        theta = getattr(config, "default_theta", 10000.0)
        theta = theta if isinstance(theta, dict) else {"global": theta}
        found["rope_theta?"] = theta["global"]
        if "local" in theta:
            found["rope_local_base_freq?"] = theta["local"]
        parts = re.findall(r'kwargs(?:\.setdefault\(|\[)"partial_rotary_factor"(?:,|\] =) ([\d.]+)', source)
        parts += re.findall(r'kwargs\.pop\("rotary_pct", ([\d.]+)\)', source)
        found["partial_rotary_factor?"] = float(parts[0]) if parts else None
        found["rope_scaling?"] = None
    return {old: value for old, value in found.items() if old.rstrip("?") not in known}


def keys(config: type) -> dict[str, object]:
    """Of a model with parts, those of the whole and of its text model."""
    found = fields(config)
    for part, of in (config.sub_configs or {}).items():
        if part == "text_config":
            if of.__name__ == "AutoConfig":
                # What the class takes where the part does not name a model.
                kind = config().text_config.model_type
                of = CONFIG_MAPPING[kind]
            found.update(fields(of))
    return found


def written(key: str, value: object) -> str:
    plain = isinstance(value, (bool, int, float)) or isinstance(value, str) and re.fullmatch(r"[\w.-]{1,24}", value)
    return f"{key}={json.dumps(value)}" if plain else key


def main() -> None:
    of = models()
    own = {name: (names, keys) for names, keys in OWN.items() for name in names.split()}
    lines: dict[str, list[str]] = {}
    for name in classes():
        if name in own:
            said = own[name][1]
        else:
            kind = of.get(SAME.get(name, name))
            if kind is None:
                raise SystemExit(f"{name}: no configuration in transformers, and none in this file")
            said = keys(CONFIG_MAPPING[kind])
        line = " ".join(written(key, value) for key, value in sorted(said.items()))
        lines.setdefault(line, []).append(name)
    print(f"# By tools/golden/keys.py, with transformers {transformers.__version__}.")
    for line, names in sorted(lines.items(), key=lambda pair: sorted(pair[1])):
        print(f"{' '.join(sorted(names))}: {line}")


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    main()
