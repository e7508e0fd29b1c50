"""The decoder families. A new one is one entry of `FAMILIES`; its fields are what `draw.py` says."""

import published
from draw import STATED_NOT, either, seldom, usual
from parts import (
    Family, act, by_layer, choice_of_experts, delta, dense_first, ends, experts, latent, latent_shape, layer_types, mamba,
    kinds_of, rope, shape, switched, turning, width, window)

HALF = (0.5, 0.25, 1.0)
LLAMA = {**shape(), **width(), **act(), **ends(), **rope(), "attention_bias": seldom(False, True)}
QWEN = {**shape(head_dim=True), **width(), **act(), **ends(), **rope(1e6), **switched()}
ROUTED = {"num_experts": either(8, 4), "num_experts_per_tok": either(2, 3, 1), "moe_intermediate_size": either(48, 32, 64),
          "decoder_sparse_step": seldom(1, 2), "mlp_only_layers": seldom([], [0])}
GRANITE = {
    **shape(head_dim=False), **width(), **act(), **ends(True), **rope(), "attention_bias": seldom(False, True),
    "embedding_multiplier": usual(2.0, 1.0, 12.0), "residual_multiplier": usual(0.7, 1.0, 0.22),
    "logits_scaling": usual(0.8, 1.0, 4.0), "attention_multiplier": usual(0.35, 0.1, 1.0)}
GEMMA = {**shape(head_dim=True), **width(), **ends(True), "attention_bias": seldom(False, True)}
SCALAR = {"query_pre_attn_scalar": lambda d: usual(d["head_dim"], 16, 37)}
OLMO = {**shape(head_dim=False), **width(), **act(), **ends(), **rope(5e5), "attention_bias": seldom(False, True)}
SECTIONS = {"rope_parameters.mrope_section": lambda d: sections(d)}
# A text model in one that reads images too: what is around it.
EYES = {"depth": 2, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}


def sections(d: dict, dim=None) -> list[int]:
    part = d.get("rope_parameters.partial_rotary_factor", STATED_NOT)
    pairs = int((dim or (d["head_dim"] if d.get("head_dim", STATED_NOT) is not STATED_NOT else d["_per_head"]))
                * (1.0 if part is STATED_NOT else part)) // 2
    return [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]


def eyes(**more):
    return {"vision_config": {**EYES, **more}}


FAMILIES = (
    Family("llama", "Llama", {**LLAMA, "mlp_bias": seldom(False, True)}),
    Family("mistral", "Mistral", {**{k: v for k, v in LLAMA.items() if k != "attention_bias"}, **window(None)}),
    Family("ministral3", "Ministral3", {
        **shape(head_dim=True), **width(), **act(), **ends(),
        "rope_parameters.rope_type": usual("yarn", "default"), "rope_parameters.rope_theta": usual(1e4, 1e6, 700.0),
        "rope_parameters.factor": lambda d: yarn(d, usual(8.0, 4.0)),
        "rope_parameters.original_max_position_embeddings": usual(64, 32),
        "rope_parameters.mscale": lambda d: yarn(d, usual(1.0, 0.8)),
        "rope_parameters.mscale_all_dim": lambda d: yarn(d, usual(1.0, 0.8)),
        "rope_parameters.beta_fast": lambda d: yarn(d, usual(32.0, 16.0)),
        "rope_parameters.beta_slow": lambda d: yarn(d, usual(1.0, 2.0)),
        "rope_parameters.llama_4_scaling_beta": usual(0.25, 0.1),
        "sliding_window": seldom(None, 24)}),
    Family("mixtral", "Mixtral", {
        **{k: v for k, v in LLAMA.items() if k != "attention_bias"}, **experts("num_local_experts", own=""),
        "sliding_window": usual(None, 24)}),
    Family("smollm3", "SmolLM3", {
        **shape((4, 5), head_dim=False), **width(), **act(), **ends(True), **rope(2e6), "attention_bias": seldom(False, True),
        "mlp_bias": seldom(False, True), "no_rope_layer_interval": usual(4, 2, 3), "no_rope_layers": lambda d: seldom(
            STATED_NOT, [1, 0, 1, 1, 1][:d["num_hidden_layers"]]),
        "use_sliding_window": seldom(False, True), "sliding_window": lambda d: 24 if d["use_sliding_window"] else STATED_NOT}),
    Family("arcee", "Arcee", {**LLAMA, **act("relu2"), "mlp_bias": seldom(False, True)}),
    Family("granite", "Granite", {**GRANITE, "mlp_bias": seldom(False, True)}),
    Family("granitemoe", "GraniteMoe", {**GRANITE, **experts("num_local_experts", own="")}),
    Family("granitemoeshared", "GraniteMoeShared", {
        **GRANITE, **experts("num_local_experts", own=""), "shared_intermediate_size": usual(80, 48, 0)}),
    Family("granitehybrid", "GraniteMoeHybrid", {
        **GRANITE, **mamba(), "num_local_experts": usual(8, 4, 0),
        "num_experts_per_tok": lambda d: either(2, 3) if d["num_local_experts"] else 0,
        "shared_intermediate_size": usual(80, 48),
        "layer_types": lambda d: usual(*kinds_of(d["num_hidden_layers"], "linear_attention"),
                                       ["full_attention"] * d["num_hidden_layers"]),
        "position_embedding_type": usual("nope", "rope")}),
    Family("bamba", "Bamba", {
        **shape((3, 4), head_dim=False), **width(), **act(), **ends(), **rope(), **mamba(),
        "attn_layer_indices": usual([1], [0, 2]), "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True)}),
    Family("llama4", "Llama4Text", {
        **shape((4, 5), head_dim=True), "intermediate_size": either(48, 64), "intermediate_size_mlp": either(96, 64),
        **act(), **ends(least=1e-5), **rope(5e5, kinds=("llama3",)), "num_local_experts": either(8, 4),
        "num_experts_per_tok": usual(1, 2), "interleave_moe_layer_step": usual(1, 2),
        "use_qk_norm": usual(True, False), "no_rope_layer_interval": usual(4, 2), "attention_chunk_size": usual(24, 40),
        "attn_temperature_tuning": usual(True, False), "floor_scale": usual(32, 64), "attn_scale": usual(0.1, 0.25),
        "attention_bias": seldom(False, True)}, model="Llama4ForCausalLM"),
    Family("qwen2", "Qwen2", {**QWEN, "head_dim": STATED_NOT}),
    Family("qwen3", "Qwen3", {**QWEN, "attention_bias": seldom(False, True)}),
    Family("qwen2moe", "Qwen2Moe", {
        **QWEN, "head_dim": STATED_NOT, **ROUTED, "shared_expert_intermediate_size": either(80, 48),
        "norm_topk_prob": usual(False, True), "qkv_bias": seldom(True, False)}),
    Family("qwen3moe", "Qwen3Moe", {
        **QWEN, **ROUTED, "norm_topk_prob": usual(True, False), "attention_bias": seldom(False, True)}),
    Family("qwen3next", "Qwen3Next", {
        **shape((4, 5), head_dim=True), **width(), **act(), **ends(), **rope(1e6, partial=HALF), **delta(), **ROUTED,
        "shared_expert_intermediate_size": either(80, 48), "norm_topk_prob": usual(True, False),
        "attention_bias": seldom(False, True)}),
    Family("qwen35", "Qwen3_5Text", {
        **shape((4, 5), head_dim=True), **width(), **act(), **ends(True), **rope(1e6, partial=HALF, kinds=("yarn",)), **delta(), **SECTIONS,
        "rope_parameters.mrope_interleaved": True, "attention_bias": seldom(False, True)}, model="Qwen3_5ForCausalLM"),
    Family("qwen35moe", "Qwen3_5MoeText", {
        **shape((4, 5), head_dim=True), **act(), **ends(), **rope(1e6, partial=HALF, kinds=("yarn",)), **delta(), **SECTIONS,
        "rope_parameters.mrope_interleaved": True, "num_experts": either(8, 4), "num_experts_per_tok": either(2, 3),
        "moe_intermediate_size": either(48, 32), "shared_expert_intermediate_size": either(80, 48),
        "attention_bias": seldom(False, True)}, model="Qwen3_5MoeForCausalLM"),
    Family("qwen2vl", "Qwen2VL", {
        **shape(head_dim=False), **width(), **act(), **ends(), **rope(1e6, kinds=("yarn",)), **SECTIONS, **switched()},
        model="Qwen2VLForConditionalGeneration", part="text_config", around=eyes(embed_dim=32, hidden_size=64)),
    Family("qwen3vl", "Qwen3VL", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(5e6, kinds=("yarn",)), **SECTIONS,
        "rope_parameters.mrope_interleaved": True, "attention_bias": seldom(False, True)},
        model="Qwen3VLForConditionalGeneration", part="text_config",
        around=eyes(hidden_size=32, intermediate_size=64, out_hidden_size=64, deepstack_visual_indexes=[0, 1])),
    Family("qwen3vlmoe", "Qwen3VLMoe", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(5e6, kinds=("yarn",)), **SECTIONS, **ROUTED,
        "rope_parameters.mrope_interleaved": True, "attention_bias": seldom(False, True)},
        model="Qwen3VLMoeForConditionalGeneration", part="text_config",
        around=eyes(hidden_size=32, intermediate_size=64, out_hidden_size=64, deepstack_visual_indexes=[0, 1])),
    Family("gemma", "Gemma", {**GEMMA, **act("gelu_pytorch_tanh"), **rope()}, vocabulary="gemma", stronger=6.0),
    Family("gemma2", "Gemma2", {
        **GEMMA, **act("gelu_pytorch_tanh", "hidden_activation"), **rope(), **SCALAR, **window(), **layer_types(),
        "attn_logit_softcapping": usual(6.0, 50.0, None), "final_logit_softcapping": usual(8.0, 30.0, None)},
        vocabulary="gemma", stronger=2.0),
    Family("gemma3", "Gemma3Text", {
        **GEMMA, **shape((6, 7), head_dim=True), **act("gelu_pytorch_tanh", "hidden_activation"), **by_layer(1e6, 1e4), **SCALAR,
        **window(), **layer_types(), "final_logit_softcapping": seldom(None, 8.0),
        "attn_logit_softcapping": seldom(None, 6.0)}, model="Gemma3ForCausalLM", vocabulary="gemma", stronger=2.0,
        published=published.gemma3),
    Family("gemma3n", "Gemma3nText", {
        **GEMMA, **shape((6,), head_dim=True), **act("gelu_pytorch_tanh", "hidden_activation"), **by_layer(1e6, 1e4), **window(),
        "intermediate_size": either(64, 96), "layer_types": ["sliding_attention", "full_attention"] * 3,
        "altup_num_inputs": usual(4, 2), "altup_active_idx": usual(0, 1), "altup_correct_scale": seldom(True, False),
        "altup_coef_clip": seldom(120.0, 0.3), "laurel_rank": either(64, 32), "hidden_size_per_layer_input": either(32, 16),
        "vocab_size_per_layer_input": lambda d: d["vocab_size"], "num_kv_shared_layers": usual(2, 0),
        "final_logit_softcapping": usual(8.0, 30.0),
        "activation_sparsity_pattern": usual([0.75, 0.0, 0.5, 0.0, 0.0, 0.0], [0.0] * 6)},
        model="Gemma3nForCausalLM", vocabulary="gemma", stronger=2.0, published=published.gemma3),
    Family("gemma4", "Gemma4Text", {
        **GEMMA, **shape((6,), head_dim=True), **act("gelu_pytorch_tanh", "hidden_activation"),
        "rope_parameters.full_attention.rope_type": seldom("proportional", "default"),
        "rope_parameters.full_attention.rope_theta": usual(1e6, 5e5),
        "rope_parameters.full_attention.partial_rotary_factor": usual(0.25, 0.5, 1.0),
        **rope(1e4, "rope_parameters.sliding_attention", kinds=("linear",)), **window(),
        "layer_types": ["sliding_attention", "full_attention"] * 3, "global_head_dim": lambda d: usual(32, d["head_dim"], 64),
        "hidden_size_per_layer_input": usual(32, 16, 0), "vocab_size_per_layer_input": lambda d: d["vocab_size"],
        "num_kv_shared_layers": usual(2, 0), "use_double_wide_mlp": usual(False, True),
        "final_logit_softcapping": usual(None, 8.0), "enable_moe_block": usual(False, True),
        "num_experts": lambda d: 8 if d["enable_moe_block"] else STATED_NOT,
        "top_k_experts": lambda d: either(2, 3) if d["enable_moe_block"] else STATED_NOT,
        "moe_intermediate_size": lambda d: 48 if d["enable_moe_block"] else STATED_NOT,
        "attention_k_eq_v": usual(False, True)}, model="Gemma4ForCausalLM", vocabulary="gemma4", stronger=2.0),
    Family("phi3", "Phi3", {
        **shape(head_dim=False), **width(), **act(), **ends(least=1e-5), **rope(partial=(1.0, 0.75), kinds=("longrope",)),
        "original_max_position_embeddings": lambda d: (
            d["rope_parameters.original_max_position_embeddings"] if d["rope_parameters.rope_type"] == "longrope" else STATED_NOT),
        "sliding_window": usual(None, 24, 40)}, vocabulary="phi", published=published.phi3),
    Family("phimoe", "Phimoe", {
        **shape(head_dim=False), **width(), **act(), **ends(least=1e-5), **rope(kinds=("longrope",)),
        "rope_parameters.short_mscale": lambda d: longrope(d, usual(1.2, 1.0)),
        "rope_parameters.long_mscale": lambda d: longrope(d, usual(1.2, 1.1)),
        **experts("num_local_experts", own=""), "num_experts_per_tok": 2, "attention_bias": usual(True, False), "lm_head_bias": usual(True, False),
        "sliding_window": usual(None, 24)}, vocabulary="phi"),
    Family("phi2", "Phi", {
        **shape(head_dim=False), **width(), **act("gelu_new"), **ends(eps="layer_norm_eps"), **rope(partial=HALF),
        "qk_layernorm": seldom(False, True)}),
    Family("chatglm", "Glm", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(partial=HALF), "attention_bias": usual(True, False)}, vocabulary="glm"),
    Family("glm4", "Glm4", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(partial=HALF), "attention_bias": usual(True, False)}, vocabulary="glm"),
    Family("glm4moe", "Glm4Moe", {
        **shape((3, 4), head_dim=True), **width(), **act(), **ends(), **rope(partial=HALF), **dense_first(), **choice_of_experts(),
        **experts("n_routed_experts"), "n_shared_experts": usual(1, 2), "attention_bias": usual(True, False),
        "use_qk_norm": usual(False, True), "num_mtp_layers": 0}, vocabulary="glm"),
    Family("glm4moelite", "Glm4MoeLite", {
        **latent_shape(layers=(3, 4)), **width(), **act(), **ends(), **latent(), **rope(1e6, elements=turning, kinds=("yarn", "linear")), **choice_of_experts(),
        **experts("n_routed_experts"), "n_shared_experts": usual(1, 2), "rope_interleave": seldom(True, False),
        "mlp_layer_types": lambda d: usual(STATED_NOT, ["dense"] * 2 + ["sparse"] * (d["num_hidden_layers"] - 2)),
        "attention_bias": seldom(False, True)}, vocabulary="glm", published=published.dense_first),
    Family("deepseek2", "DeepseekV2", {
        **latent_shape(layers=(3, 4)), **width(), **act(), **ends(), **latent((None, 48)), **rope(elements=turning, kinds=("yarn", "linear")),
        **dense_first(), **experts("n_routed_experts"), "n_shared_experts": usual(2, 1), "routed_scaling_factor": usual(1.0, 2.5),
        "norm_topk_prob": seldom(False, True), "topk_method": usual("greedy", "group_limited_greedy"),
        "n_group": lambda d: 4 if d["topk_method"] != "greedy" else STATED_NOT,
        "topk_group": lambda d: either(2, 1) if d["topk_method"] != "greedy" else STATED_NOT,
        "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True)}),
    Family("deepseek3", "DeepseekV3", {
        **latent_shape(layers=(3, 4)), **width(), **act(), **ends(), **latent(), **rope(elements=turning, kinds=("yarn", "linear")),
        **dense_first(), **experts("n_routed_experts"), **choice_of_experts(scale=(2.5, 1.0)), "n_shared_experts": usual(1, 2),
        "rope_interleave": seldom(True, False), "attention_bias": seldom(False, True), "num_mtp_layers": 0},
        published=published.deepseek3),
    Family("mistral4", "Mistral4", {
        **latent_shape(), **width(), **act(), **ends(),
        **{f"rope_parameters.{key}": value for key, value in dict(
            rope_type="yarn", rope_theta=usual(1e4, 1e6), factor=usual(8.0, 4.0), original_max_position_embeddings=usual(64, 32),
            max_position_embeddings=lambda d: d["max_position_embeddings"], beta_fast=32.0, beta_slow=1.0,
            mscale=usual(1.0, 0.8), mscale_all_dim=usual(1.0, 0.8), llama_4_scaling_beta=usual(0.1, 0.25)).items()},
        **latent(), **experts("n_routed_experts"), **choice_of_experts(), "n_shared_experts": usual(1, 2),
        "first_k_dense_replace": usual(0, 1), "rope_interleave": seldom(True, False), "attention_bias": seldom(False, True)}),
    Family("minicpm3", "MiniCPM3", {
        **latent_shape(), **width(), **act(), **ends(True), **latent((48,)), **rope(elements=turning, kinds=("longrope",)),
        "v_head_dim": usual(16, 32, 24), "scale_emb": usual(12, 2), "scale_depth": usual(1.4, 0.7),
        "dim_model_base": usual(256, 32), "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True)},
        vocabulary="sentencepiece"),
    Family("olmo", "Olmo", {**{k: v for k, v in OLMO.items() if k != "rms_norm_eps"}, "clip_qkv": usual(None, 1.5)}),
    Family("olmo2", "Olmo2", OLMO),
    Family("olmo3", "Olmo3", {
        **shape((4, 5), head_dim=False), **width(), **act(), **ends(), **by_layer(5e5, 5e5, kinds=("yarn", "linear"), local_kinds=()),
        "rope_parameters.sliding_attention.rope_theta": lambda d: seldom(
            d["rope_parameters.full_attention.rope_theta"], 1e4),
        "attention_bias": seldom(False, True), **window(), **layer_types()}, published=published.olmo3),
    Family("olmoe", "Olmoe", {
        **OLMO, "rms_norm_eps": usual(1e-5, 1e-6, 1e-3), **experts(own=""), "norm_topk_prob": usual(False, True),
        "clip_qkv": seldom(None, 1.5)}),
    Family("starcoder2", "Starcoder2", {
        **shape(head_dim=False), **width(), **act("gelu_pytorch_tanh"), **ends(True, "norm_epsilon", 1e-5), **rope(1e5),
        "sliding_window": usual(24, 40, None), "use_bias": usual(True, False)}),
    Family("seed_oss", "SeedOss", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(1e7), "attention_bias": usual(True, False),
        "attention_out_bias": seldom(False, True), "mlp_bias": seldom(False, True)}),
    Family("cohere", "Cohere", {
        **shape(head_dim=False), **width(), **act(), **ends(True, "layer_norm_eps", 1e-5), **rope(8e6), "logit_scale": usual(0.8, 0.25),
        "use_qk_norm": usual(False, True), "attention_bias": seldom(False, True)}, stronger=1.5),
    Family("cohere2", "Cohere2", {
        **shape((4, 5), head_dim=False), **width(), **act(), **ends(True, "layer_norm_eps", 1e-5), **rope(5e4), "logit_scale": usual(0.8, 0.25),
        **window(), **layer_types(), "attention_bias": seldom(False, True)}, published=published.every_fourth),
    Family("exaone4", "Exaone4", {
        **shape((4, 5), head_dim=True), **width(), **act(), **ends(), **rope(1e6), "sliding_window": usual(24, 40, None),
        "sliding_window_pattern": lambda d: seldom(4, 2) if d["sliding_window"] else STATED_NOT,
        "layer_types": lambda d: STATED_NOT if d["sliding_window"] else ["full_attention"] * d["num_hidden_layers"]}),
    Family("hunyuan-dense", "HunYuanDenseV1", {
        **shape(head_dim=True), **width(), **act(), **ends(True), **rope(), "attention_bias": seldom(False, True)}),
    Family("hunyuan-moe", "HunYuanMoEV1", {
        **shape(head_dim=True), **width(), **act(), **ends(True), **rope(), "attention_bias": seldom(False, True),
        **experts("num_experts", "moe_topk", own="")}),
    Family("apertus", "Apertus", {
        **shape(head_dim=False), **width(), **act("xielu"), **ends(least=1e-5), **rope(1e6, kinds=("llama3", "yarn")), "attention_bias": seldom(False, True)},
        published=published.unless_default),
    Family("bitnet", "BitNet", {
        **shape(head_dim=False), **width(), **act("relu2"), **ends(True, least=1e-5), **rope(5e5), "attention_bias": seldom(False, True)},
        architecture="BitNetForCausalLM"),
    Family("dots1", "Dots1", {
        **shape((3, 4), head_dim=True), **width(), **act(), **ends(), **rope(1e6), **dense_first(), **experts("n_routed_experts"),
        **choice_of_experts(), "n_shared_experts": usual(2, 1), "attention_bias": seldom(False, True), "max_window_layers": seldom(62, 1),
        "sliding_window": 24}),
    Family("minimax-m2", "MiniMaxM2", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(5e6, partial=HALF), **experts("num_local_experts", own="")},
        published=published.minimax),
    Family("ernie4_5", "Ernie4_5", {
        **shape(head_dim=True), **width(), **act(), **ends(True), **rope(5e5), "use_bias": seldom(False, True)}, vocabulary="sentencepiece"),
    Family("ernie4_5-moe", "Ernie4_5_Moe", {
        **shape((3, 4), head_dim=False), **width(), **act(), **ends(True), **rope(5e5), "use_bias": seldom(False, True),
        **experts("moe_num_experts", "moe_k"), "moe_num_shared_experts": usual(2, 1), "moe_layer_start_index": usual(1, 0),
        "moe_layer_interval": seldom(1, 2), "moe_norm_min": seldom(1e-12, 0.5)}, vocabulary="sentencepiece"),
    Family("gpt-oss", "GptOss", {
        **shape(head_dim=True), "intermediate_size": either(48, 64, 32), **act(), **ends(least=1e-5), **rope(1.5e5, kinds=("yarn", "llama3")),
        **experts("num_local_experts", own=""), **window(), **layer_types(), "attention_bias": usual(True, False),
        "swiglu_alpha": seldom(1.702, 1.0), "swiglu_limit": seldom(7.0, 1.0)}, published=published.unless_default),
    Family("nemotron", "Nemotron", {
        **shape(), **width(), **act("relu2"), **ends(eps="norm_eps"), **rope(partial=HALF, kinds=("linear", "dynamic", "yarn")),
        "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True)}, vocabulary="nemotron"),
    Family("nemotron_h", "NemotronH", {
        **shape((4,), head_dim=True), **width(), **act("relu2", "mlp_hidden_act"), **ends(eps="layer_norm_epsilon"),
        "layers_block_type": usual(["linear_attention", "mlp", "full_attention", "mlp"],
                                   ["linear_attention", "moe", "full_attention", "moe"], ["mlp", "linear_attention", "mlp", "full_attention"]),
        "mamba_num_heads": either(8, 4), "mamba_head_dim": either(16, 32), "n_groups": either(2, 1), "ssm_state_size": either(16, 24),
        "conv_kernel": usual(4, 3), "expand": 2, "chunk_size": 32, "use_conv_bias": usual(True, False), "mamba_proj_bias": seldom(False, True),
        "mamba_hidden_act": seldom("silu", "relu"), "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True),
        "use_bias": seldom(False, True), **experts("n_routed_experts"), **choice_of_experts(), "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": either(80, 48)}, published=published.nemotron_h),
    Family("falcon", "Falcon", {
        **{k: v for k, v in shape(head_dim=False, groups=False).items()}, **ends(True, "layer_norm_epsilon", 1e-5), **rope(),
        "new_decoder_architecture": usual(False, True), "multi_query": lambda d: True if d["new_decoder_architecture"] else usual(True, False),
        "num_kv_heads": lambda d: usual(2, 1) if d["new_decoder_architecture"] else STATED_NOT,
        "parallel_attn": seldom(True, False), "bias": usual(False, True), "alibi": seldom(False, True),
        "ffn_hidden_size": lambda d: usual(STATED_NOT, 96), "num_ln_in_parallel_attn": lambda d: seldom(
            STATED_NOT, 1) if d["new_decoder_architecture"] else STATED_NOT,
        **act("gelu", "activation")}),
    Family("falcon-h1", "FalconH1", {
        **shape(head_dim=True), **width(), **act(), **ends(), **rope(1e6), "mamba_d_ssm": usual(128, 64, None),
        "mamba_n_heads": either(8, 4), "mamba_n_groups": usual(1, 2), "mamba_d_state": either(16, 24), "mamba_d_conv": usual(4, 3), "mamba_chunk_size": 32,
        "mamba_expand": 2, "mamba_conv_bias": usual(True, False), "mamba_proj_bias": seldom(False, True),
        "mamba_norm_before_gate": seldom(True, False), "mamba_rms_norm": usual(False, True), "projectors_bias": seldom(False, True),
        "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True),
        **{f"{key}_multiplier": usual(1.0, 0.6, 1.7) for key in (
            "lm_head", "embedding", "key", "attention_out", "attention_in", "ssm_in", "ssm_out")},
        "mlp_multipliers": usual([1.0, 1.0], [0.7, 1.3]), "ssm_multipliers": usual([1.0] * 5, [0.8, 1.2, 0.7, 1.3, 0.9])}),
    Family("lfm2", "Lfm2", {
        **shape((3, 4), head_dim=False), **width(), **ends(True, "norm_eps", 1e-5), **rope(1e6), "conv_L_cache": usual(3, 4), "conv_bias": seldom(False, True),
        "block_auto_adjust_ff_dim": usual(False, True), "block_multiple_of": either(32, 16), "block_ffn_dim_multiplier": usual(1.0, 1.5),
        "layer_types": lambda d: usual(*kinds_of(d["num_hidden_layers"], "conv"))}, published=published.lfm2),
    Family("lfm2moe", "Lfm2Moe", {
        **shape((3, 4), head_dim=False), **width(), **ends(True, "norm_eps", 1e-5), **rope(1e6), "conv_L_cache": usual(3, 4), "conv_bias": seldom(False, True),
        "layer_types": lambda d: usual(*kinds_of(d["num_hidden_layers"], "conv")), **experts(), "num_dense_layers": usual(1, 2, 0),
        "use_expert_bias": usual(True, False), "routed_scaling_factor": usual(1.0, 2.5), "norm_topk_prob": usual(True, False)}),
    Family("gpt2", "GPT2", {
        "n_layer": either(2, 3), "n_embd": either(64, 96, 32), "n_head": either(4, 2), "n_positions": either(512, 1024), "vocab_size": either(320, 352),
        "n_inner": usual(STATED_NOT, 96), **act("gelu_new", "activation_function"), **ends(True, "layer_norm_epsilon", 1e-5),
        "scale_attn_weights": seldom(True, False), "scale_attn_by_inverse_layer_idx": seldom(False, True)}),
    Family("starcoder", "GPTBigCode", {
        "n_layer": either(2, 3), "n_embd": either(64, 96, 32), "n_head": either(4, 2), "n_positions": either(512, 1024), "vocab_size": either(320, 352),
        "n_inner": lambda d: usual(4 * d["n_embd"], 96), **act("gelu_pytorch_tanh", "activation_function"), **ends(True, "layer_norm_epsilon", 1e-5),
        "scale_attn_weights": seldom(True, False), "multi_query": seldom(True, False)}),
    Family("gptneox", "GPTNeoX", {
        **{k: v for k, v in shape(head_dim=False, groups=False).items()}, **width(), **act("gelu", "hidden_act", "gelu_new"), **ends(eps="layer_norm_eps", least=1e-5),
        **rope(partial=(0.25, 0.5, 1.0)), "use_parallel_residual": usual(True, False), "attention_bias": usual(True, False)}, published=published.gptneox),
    Family("bloom", "Bloom", {
        "n_layer": either(2, 3), "hidden_size": either(64, 96, 32), "n_head": either(4, 2), "vocab_size": either(320, 352), "seq_length": either(512, 1024),
        **ends(True, "layer_norm_epsilon", 1e-5), "apply_residual_connection_post_layernorm": seldom(False, True)}, stronger=4.0),
    Family("mpt", "Mpt", {
        "n_layers": either(2, 3), "d_model": either(64, 96, 32), "n_heads": lambda d: either(4, 2, 6) if d["d_model"] == 96 else either(4, 2),
        "max_seq_len": either(512, 1024), "vocab_size": either(320, 352), "expansion_ratio": usual(4, 2), **ends(True, "layer_norm_epsilon", 1e-5),
        "attn_config.alibi": True, "attn_config.clip_qkv": usual(None, 1.5), "attn_config.alibi_bias_max": usual(8, 4),
        "attn_config.softmax_scale": seldom(None, 0.1), "logit_scale": seldom(None, 0.5)}),
    Family("stablelm", "StableLm", {
        **shape(head_dim=False), **width(), **act(), **ends(eps="layer_norm_eps", least=1e-5), **rope(partial=(0.25, 0.5, 1.0)), "use_qkv_bias": usual(False, True),
        "use_parallel_residual": usual(False, True), "qk_layernorm": usual(False, True)}),
)


def yarn(d: dict, choice):
    return choice if d["rope_parameters.rope_type"] == "yarn" else STATED_NOT


def longrope(d: dict, choice):
    return choice if d["rope_parameters.rope_type"] == "longrope" else STATED_NOT
