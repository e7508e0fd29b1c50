"""Configurations as they stand on the Hub: made of what `save_pretrained` of today writes, with the older names of keys."""


def without_layers(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


def flat(config: dict, theta: str = "rope_theta", part: str = "partial_rotary_factor", scaling: str = "rope_scaling") -> dict:
    """Positions as they were before `rope_parameters`, and `torch_dtype`."""
    config = {("torch_dtype" if key == "dtype" else key): value for key, value in config.items()}
    rope = dict(config.pop("rope_parameters", None) or {})
    if not rope or any(isinstance(value, dict) for value in rope.values()):
        return config | ({"rope_parameters": rope} if rope else {})
    config[theta] = rope.pop("rope_theta", None)
    if "partial_rotary_factor" in rope:
        config[part] = rope.pop("partial_rotary_factor")
    if rope.get("rope_type") == "default":
        rope.pop("rope_type")
    config[scaling] = rope or None
    return config


def unless_default(config: dict) -> dict:
    """Of classes that scale where nothing is said: only today's form says that they do not."""
    rope = config["rope_parameters"]
    return flat(config) if rope["rope_type"] != "default" else flat(without_layers(config, "rope_parameters")) | {"rope_parameters": rope}


def gptneox(config: dict) -> dict:
    return flat(config, "rotary_emb_base", "rotary_pct")


def gemma3(config: dict) -> dict:
    config = flat(config)
    rope = config.pop("rope_parameters")
    full, local = dict(rope["full_attention"]), rope["sliding_attention"]
    config["rope_theta"], config["rope_local_base_freq"] = full.pop("rope_theta"), local["rope_theta"]
    config["rope_scaling"] = None if full["rope_type"] == "default" else full
    if local["rope_type"] != "default":  # has no older form
        config = without_layers(config, "rope_theta", "rope_local_base_freq", "rope_scaling") | {"rope_parameters": rope}
    return config


def olmo3(config: dict) -> dict:
    config = flat(config)
    rope = config["rope_parameters"]
    full, local = dict(rope["full_attention"]), rope["sliding_attention"]
    if local != {"rope_type": "default", "rope_theta": full["rope_theta"]}:
        return config
    theta = full.pop("rope_theta")
    return without_layers(config, "rope_parameters") | {
        "rope_theta": theta, "rope_scaling": None if full["rope_type"] == "default" else full}


def phi3(config: dict) -> dict:
    return flat(config)


def every_fourth(config: dict) -> dict:
    """Windows by their period."""
    config, kinds = flat(config), config["layer_types"]
    usual = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(len(kinds))]
    return without_layers(config, "layer_types") | {"sliding_window_pattern": 4} if kinds == usual else config


def dense_first(config: dict) -> dict:
    """Dense layers by their number."""
    config, kinds = flat(config), config.get("mlp_layer_types") or []
    dense = kinds.count("dense")
    first = kinds == ["dense"] * dense + ["sparse"] * (len(kinds) - dense)
    # The class has no other number than 1 in this form.
    return without_layers(config, "mlp_layer_types") | {"first_k_dense_replace": 1} if first and dense == 1 else config


def deepseek3(config: dict) -> dict:
    return dense_first(config) | {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}


def minimax(config: dict) -> dict:
    config = flat(config)
    part = config.pop("partial_rotary_factor", 1.0)
    return config | {"rotary_dim": int(config["head_dim"] * part), "scoring_func": "sigmoid", "use_qk_norm": True}


def lfm2(config: dict) -> dict:
    config, kinds = flat(config), config["layer_types"]
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    return without_layers(config, "layer_types") | {"full_attn_idxs": full}


def nemotron_h(config: dict) -> dict:
    letters = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "mlp": "-", "moe": "E"}
    config = flat(config)
    kinds = config.pop("layers_block_type", None) or config.pop("layer_types")
    config.pop("layer_types", None)
    return config | {"hybrid_override_pattern": "".join(letters[kind] for kind in kinds), "num_hidden_layers": len(kinds)}


def modern_bert(config: dict) -> dict:
    config = flat(config)
    rope = config.pop("rope_parameters")
    return config | {"global_rope_theta": rope["full_attention"]["rope_theta"], "local_rope_theta": rope["sliding_attention"]["rope_theta"]}
