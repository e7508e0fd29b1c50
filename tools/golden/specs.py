"""The golden models: which architecture, what it exercises, how it is called in `transformers`."""

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Callable

import families

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
    _: KW_ONLY
    local: dict = field(default_factory=dict)  # RoPE of layers with a window, where it differs
    config: dict = field(default_factory=dict)  # more of the Hugging Face configuration; ... leaves something out
    keys: dict = field(default_factory=dict)  # more metadata, by key without the architecture
    gains: dict = field(default_factory=dict)  # of kinds of tensors, instead of the usual ones
    tensors: dict = field(default_factory=dict)  # names of tensors in the file that are not the usual ones
    vocab: int = VOCAB  # prompts use the usual ids
    change: Callable | None = None  # what is done to the model of transformers
    predicts: dict | None = None  # a layer that predicts further tokens: what its configuration has otherwise

    @property
    def permuted(self) -> bool:
        """Whether files of this architecture have rows of Q and K for interleaved RoPE."""
        return self.arch in PERMUTED

    @property
    def interleaved(self) -> bool:
        """Whether RoPE pairs neighbours in files of this architecture."""
        return self.permuted or self.arch in INTERLEAVED


PERMUTED = ("llama", "granite", "granitemoe", "granitehybrid", "minicpm", "smollm3", "mistral3", "arcee",
            "internlm2", "baichuan", "olmo")
INTERLEAVED = ("glm4", "ernie4_5-moe", "deepseek2", "llama4", "ernie4_5", "chatglm", "command-r", "cohere2",
               "mistral4")  # in transformers too
NOPE_EVERY = {"smollm3": 4, "llama4": 4, "nemotron_h": 1, "nemotron_h_moe": 1}  # no RoPE in each such layer: a constant of the architecture
# a dense layer, then layers with experts
SPARSE = dict(num_experts_per_tok=3, moe_intermediate_size=48, first_k_dense_replace=1)
SPARSE_KEYS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48,
               "leading_dense_block_count": 1}
# latents of 32 beside 16 elements with RoPE; heads of 16 without it
LATENT = dict(kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32)
LATENT_KEYS = {"attention.kv_lora_rank": 32, "attention.key_length": 48,
               "attention.value_length": 32, "attention.key_length_mla": 32,
               "attention.value_length_mla": 32, "attention.head_count_kv": 1}
# recurrences: heads of 16 values, keys of 24 or 16; two heads of values share one of keys
DELTA = dict(linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=24,
             linear_value_head_dim=16, linear_conv_kernel_dim=4)
DELTA_KEYS = {"ssm.conv_kernel": 4, "ssm.state_size": 24, "ssm.group_count": 2,
              "ssm.time_step_rank": 4, "ssm.inner_size": 64}
MAMBA_KEYS = {"ssm.conv_kernel": 4, "ssm.state_size": 24, "ssm.group_count": 2,
              "ssm.time_step_rank": 8, "ssm.inner_size": 128}
MIXED = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48)
MIXED_KEYS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48}
THREE_OF_FOUR = ["linear_attention"] * 3 + ["full_attention"]
YARN = dict(factor=4.0, original_max_position_embeddings=256)
# LongRoPE's divisors, far enough apart that short ones cannot pass for long ones
SHORT = [1.0, 1.1, 1.2, 1.3, 1.5, 1.7]
LONG = [1.0, 1.3, 1.9, 3.1, 6.0, 11.0]
# with a scaled embedding that is the head too, weaker blocks would only say the last token again
AFTER = {"post_attention_norm": 10.0, "post_ffw_norm": 10.0}


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
    # heads that are no whole vectors of 16, and matrices of which two heads fill a tile
    Spec("llama_small_heads", "llama", True, 2, 64, 8, 4, 8, 96, 1e4, 1e-5, "Llama", vocab=512),
    Spec("llama_linear", "llama", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Llama",
         dict(rope_type="linear", factor=4.0),
         keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    Spec("mistral", "llama", True, 2, 64, 4, 2, 16, 64, 1e6, 1e-5, "Mistral",
         config=dict(sliding_window=24), keys={"attention.sliding_window": 24}),
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
         config=dict(original_max_position_embeddings=512, sliding_window=40),
         keys={"rope.scaling.original_context_length": 512, "context_length": 512,
               "attention.sliding_window": 40}),
    # an original context so short that everything but one token alone, whose angles are zero,
    # takes the long factors
    Spec("phi3_long", "phi3", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Phi3",
         {**longrope(4), "partial_rotary_factor": 0.75, "attention_factor": 1.2},
         config=dict(original_max_position_embeddings=4),
         keys={"rope.scaling.original_context_length": 4,
               "rope.scaling.attn_factor": 1.2}),
    # as converted from a hybrid model all of whose layers are attention
    Spec("granite4", "granite", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "GraniteMoeHybrid",
         config=dict(embedding_multiplier=2.0, residual_multiplier=0.7, logits_scaling=0.8,
                     attention_multiplier=0.35, position_embedding_type="rope",
                     layer_types=["full_attention"] * 2, num_local_experts=0, num_experts_per_tok=0,
                     shared_intermediate_size=96),
         keys={"embedding_scale": 2.0, "residual_scale": 0.7, "logit_scale": 0.8,
               "attention.scale": 0.35, "attention.head_count_kv": [2, 2], "expert_count": 0,
               "rope.scaling.finetuned": True, "ssm.conv_kernel": 4, "ssm.state_size": 128,
               "ssm.group_count": 1, "ssm.inner_size": 128, "ssm.time_step_rank": 2}),
    # queries of positions from 64 on grow; the gain of YaRN is taken back
    Spec("ministral3", "mistral3", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Ministral3",
         dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, mscale=1.0,
              mscale_all_dim=1.0, llama_4_scaling_beta=0.25),
         config=dict(sliding_window=None),
         keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
               "rope.scaling.original_context_length": 64,
               "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.25}),
    Spec("olmo2", "olmo2", False, 2, 64, 4, 2, 16, 96, 5e5, 1e-6, "Olmo2"),
    # norms over heads that are no whole tiles
    Spec("olmo2_small_heads", "olmo2", False, 2, 96, 8, 4, 12, 96, 5e5, 1e-6, "Olmo2"),
    # full attention, stretched by YaRN, in the last of four layers only
    Spec("olmo3", "olmo2", False, 4, 64, 4, 2, 16, 64, 5e5, 1e-6, "Olmo3",
         dict(rope_type="yarn", **YARN, attention_factor=1.1),
         config=dict(sliding_window=24), local={"rope_type": "default", "rope_theta": 5e5},
         keys={"rope.scaling.type": "yarn", "rope.scaling.factor": YARN["factor"],
               "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
               "rope.scaling.yarn_attn_factor": 1.1, "attention.sliding_window": 24,
               "attention.sliding_window_pattern": [True, True, True, False]}),
    # caps that bend scores and logits; a window in layers 0 and 2
    Spec("gemma2", "gemma2", True, 3, 64, 4, 2, 16, 96, 1e4, 1e-6, "Gemma2",
         config=dict(query_pre_attn_scalar=16, sliding_window=24, attn_logit_softcapping=6.0,
                     final_logit_softcapping=8.0),
         keys={"attention.sliding_window": 24, "attn_logit_softcapping": 6.0,
               "final_logit_softcapping": 8.0}, gains=AFTER),
    # full attention in layer 5 only, with angles of another base divided by 8
    Spec("gemma3", "gemma3", True, 6, 64, 4, 2, 16, 64, 1e6, 1e-6, "Gemma3Text",
         dict(rope_type="linear", factor=8.0), local={"rope_type": "default", "rope_theta": 2e4},
         config=dict(query_pre_attn_scalar=16, sliding_window=24),
         keys={"rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
               "rope.freq_base_swa": 2e4, "attention.sliding_window": 24}, gains=AFTER),
    # smaller biases than elsewhere: there are so many that they would decide every token
    Spec("starcoder2", "starcoder2", False, 2, 64, 4, 2, 16, 128, 1e5, 1e-5, "Starcoder2",
         config=dict(norm_epsilon=1e-5, use_bias=True, sliding_window=40), gains={"bias": 0.2},
         keys={"attention.sliding_window": 40}),
    Spec("qwen3moe", "qwen3moe", False, 2, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen3Moe",
         config=dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
                     norm_topk_prob=True),
         keys={"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48}),
    # one more expert for all tokens, times a sigmoid
    Spec("qwen2moe", "qwen2moe", False, 2, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen2Moe",
         config=dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
                     shared_expert_intermediate_size=80),
         keys={"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48,
               "expert_shared_feed_forward_length": 80}),
    Spec("olmoe", "olmoe", False, 2, 64, 4, 2, 16, 48, 1e4, 1e-5, "Olmoe",
         config=dict(num_experts=8, num_experts_per_tok=3),
         keys={"expert_count": 8, "expert_used_count": 3}),
    Spec("mixtral", "llama", False, 2, 64, 4, 2, 16, 48, 1e6, 1e-5, "Mixtral",
         config=dict(num_local_experts=8, num_experts_per_tok=2),
         keys={"expert_count": 8, "expert_used_count": 2}),
    Spec("granitemoe", "granitemoe", True, 2, 64, 4, 2, 16, 48, 1e4, 1e-5, "GraniteMoeShared",
         config=dict(embedding_multiplier=2.0, residual_multiplier=0.7, logits_scaling=0.8,
                     attention_multiplier=0.35, num_local_experts=8, num_experts_per_tok=3,
                     shared_intermediate_size=80),
         keys={"embedding_scale": 2.0, "residual_scale": 0.7, "logit_scale": 0.8,
               "attention.scale": 0.35, "expert_count": 8, "expert_used_count": 3,
               "expert_shared_feed_forward_length": 80}),
    # a dense layer, then experts by sigmoids and a bias beside two for all tokens
    Spec("dots1", "dots1", False, 3, 64, 4, 2, 16, 96, 1e6, 1e-6, "Dots1",
         config=dict(**SPARSE, n_routed_experts=8, n_shared_experts=2, routed_scaling_factor=2.5,
                     n_group=1, topk_group=1, norm_topk_prob=True),
         keys={**SPARSE_KEYS, "expert_shared_count": 2, "expert_weights_scale": 2.5,
               "expert_weights_norm": True, "expert_gating_func": 2}),
    # the same on a part of a head, in groups of which two are used
    Spec("glm4moe", "glm4moe", False, 3, 64, 4, 2, 16, 96, 1e6, 1e-6, "Glm4Moe",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(**SPARSE, attention_bias=True, use_qk_norm=True, n_routed_experts=8,
                     n_shared_experts=1, routed_scaling_factor=1.5, n_group=4, topk_group=2,
                     norm_topk_prob=True),
         keys={**SPARSE_KEYS, "expert_shared_count": 1, "expert_weights_scale": 1.5,
               "expert_group_count": 4, "expert_group_used_count": 2,
               "expert_weights_norm": True, "expert_gating_func": 2}),
    Spec("minimax_m2", "minimax-m2", False, 2, 64, 4, 2, 16, 48, 1e6, 1e-6, "MiniMaxM2",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(num_local_experts=8, num_experts_per_tok=3),
         keys={"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48,
               "expert_gating_func": 2}),
    # a bias that moves probabilities of an eighth
    Spec("ernie4_5_moe", "ernie4_5-moe", True, 3, 64, 4, 2, 16, 96, 5e5, 1e-5, "Ernie4_5_Moe",
         config=dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=48, moe_num_shared_experts=2,
                     moe_layer_start_index=1, use_bias=False),
         keys={**SPARSE_KEYS, "expert_shared_count": 2, "expert_shared_feed_forward_length": 96},
         gains={"bias": 0.03}),
    # chunks of 24 in layers 0 to 2; no positions, and queries that grow from 31 on, in layer 3;
    # experts in layers 1 and 3, whose input is weighted
    Spec("llama4", "llama4", False, 4, 64, 4, 2, 16, 96, 5e5, 1e-5, "Llama4Text",
         config=dict(intermediate_size=48, intermediate_size_mlp=96, num_local_experts=8,
                     num_experts_per_tok=2, interleave_moe_layer_step=2, use_qk_norm=True,
                     attention_chunk_size=24, no_rope_layer_interval=4,
                     attn_temperature_tuning=True, floor_scale=32, attn_scale=0.25),
         keys={"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 48,
               "interleave_moe_layer_step": 2, "attention.sliding_window": 24,
               "attention.temperature_scale": 0.25, "attention.temperature_length": 32}),
    # LayerNorm, biases of attention and of the head; SparseMixer, whose runners-up count
    Spec("phimoe", "phimoe", False, 2, 64, 4, 2, 16, 48, 1e4, 1e-5, "Phimoe",
         {**longrope(512), "short_factor": [*SHORT, 2.0, 2.5], "long_factor": [*LONG, 15.0, 20.0],
          "short_mscale": 1.2, "long_mscale": 1.2, "attention_factor": 1.2},
         config=dict(original_max_position_embeddings=512, num_local_experts=8,
                     num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
                     sliding_window=40),
         keys={"rope.scaling.original_context_length": 512, "context_length": 512,
               "rope.scaling.attn_factor": 1.2, "attention.sliding_window": 40,
               "expert_count": 8, "expert_used_count": 2}, gains={"bias": 0.2}),
    # norms of heads after RoPE; one more expert for all tokens
    Spec("hunyuan_moe", "hunyuan-moe", True, 2, 64, 4, 2, 16, 48, 1e4, 1e-5, "HunYuanMoEV1",
         config=dict(num_experts=8, moe_topk=3),
         keys={"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48,
               "expert_shared_feed_forward_length": 48, "expert_shared_count": 1}),
    # transformers has no Ling; in other words it is a GLM-4.5 with Q, K and V in one tensor
    Spec("bailingmoe2", "bailingmoe2", False, 3, 64, 4, 2, 16, 96, 1e4, 1e-6, "Glm4Moe",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(**SPARSE, use_qk_norm=True, n_routed_experts=8, n_shared_experts=1,
                     routed_scaling_factor=2.5, n_group=4, topk_group=2, norm_topk_prob=True),
         keys={**SPARSE_KEYS, "expert_shared_count": 1, "expert_shared_feed_forward_length": 48,
               "expert_weights_scale": 2.5, "expert_group_count": 4, "expert_group_used_count": 2,
               "expert_weights_norm": True, "expert_gating_func": 2}),
    # experts of the two groups with the best one, softmax; keys' and values' matrices apart
    Spec("deepseek_v2", "deepseek2", False, 3, 64, 4, 4, 16, 96, 1e4, 1e-6, "DeepseekV2",
         config=dict(**SPARSE, **LATENT, q_lora_rank=None, n_routed_experts=8, n_shared_experts=2,
                     topk_method="group_limited_greedy", n_group=4, topk_group=2,
                     routed_scaling_factor=4.0),
         keys={**SPARSE_KEYS, **LATENT_KEYS, "expert_shared_count": 2, "expert_weights_scale": 4.0,
               "expert_group_count": 4, "expert_group_used_count": 2}),
    # as in old files: one matrix for keys and values, sizes without latents
    Spec("deepseek_v2_old", "deepseek2", False, 3, 64, 4, 4, 16, 96, 1e4, 1e-6, "DeepseekV2",
         config=dict(**SPARSE, **LATENT, q_lora_rank=48, n_routed_experts=8, n_shared_experts=1),
         keys={**SPARSE_KEYS, "attention.kv_lora_rank": 32, "attention.q_lora_rank": 48,
               "attention.key_length": 32, "attention.value_length": 32, "expert_shared_count": 1,
               "expert_weights_scale": 1.0},
         tensors={"self_attn.kv_b_proj": "attn_kv_b"}),
    # sigmoid, a bias, the groups with the best two; YaRN, whose gain scales attention
    Spec("deepseek_v3", "deepseek2", False, 3, 64, 4, 4, 16, 96, 1e4, 1e-6, "DeepseekV3",
         dict(rope_type="yarn", **YARN, mscale=0.8, mscale_all_dim=0.8),
         config=dict(**SPARSE, **LATENT, q_lora_rank=48, n_routed_experts=8, n_shared_experts=1,
                     routed_scaling_factor=2.5, n_group=4, topk_group=2, norm_topk_prob=True),
         keys={**SPARSE_KEYS, **LATENT_KEYS, "attention.q_lora_rank": 48, "expert_shared_count": 1,
               "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2,
               "expert_group_count": 4, "expert_group_used_count": 2, "rope.scaling.type": "yarn",
               "rope.scaling.factor": YARN["factor"],
               "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
               "rope.scaling.yarn_log_multiplier": 0.08}),
    # clamps at 7 that gates and ups reach; a window in layers 0 and 2; YaRN's ramp within pairs
    Spec("gpt_oss", "gpt-oss", False, 3, 64, 4, 2, 16, 48, 1.5e5, 1e-5, "GptOss",
         dict(rope_type="yarn", **YARN, beta_fast=32.0, beta_slow=1.0, truncate=False),
         config=dict(num_local_experts=8, num_experts_per_tok=3, sliding_window=24,
                     attention_bias=True),
         keys={"rope.scaling.type": "yarn", "rope.scaling.factor": YARN["factor"],
               "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
               "attention.sliding_window": 24, "expert_count": 8, "expert_used_count": 3,
               "expert_feed_forward_length": 48},
         gains={"ffn_gate_exps": 3.0, "ffn_up_exps": 3.0}),
    Spec("glm4", "glm4", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Glm4",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(attention_bias=True)),
    # stronger blocks, as the scaled embedding is the head too
    Spec("gemma", "gemma", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-6, "Gemma",
         gains={"attn_output": 20.0, "ffn_down": 20.0}),
    # transformers has no EXAONE 3; it is a Llama
    Spec("exaone", "exaone", False, 2, 64, 4, 2, 16, 96, 5e5, 1e-5, "Llama",
         dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=256)),
    # RoPE where there is a window
    Spec("exaone4", "exaone4", False, 4, 64, 4, 2, 16, 64, 1e6, 1e-5, "Exaone4",
         config=dict(sliding_window=24, sliding_window_pattern=4),
         keys={"attention.sliding_window": 24, "attention.sliding_window_pattern": [True, True, True, False]}),
    # RoPE in all layers, as there are no windows
    Spec("exaone4_global", "exaone4", True, 2, 64, 4, 2, 16, 96, 1e6, 1e-5, "Exaone4",
         config=dict(sliding_window=None, layer_types=["full_attention"] * 2)),
    # heads * head_dim differs from hidden
    Spec("seed_oss", "seed_oss", False, 2, 64, 4, 2, 32, 96, 1e7, 1e-6, "SeedOss",
         config=dict(attention_bias=True, attention_out_bias=False, attention_dropout=0.0, residual_dropout=0.0)),
    Spec("arcee", "arcee", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Arcee"),
    Spec("ernie4_5", "ernie4_5", True, 2, 64, 4, 2, 32, 96, 5e5, 1e-5, "Ernie4_5"),
    Spec("hunyuan_dense", "hunyuan-dense", True, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "HunYuanDenseV1"),
    # transformers has no InternLM2; it is a Llama
    Spec("internlm2", "internlm2", False, 2, 64, 4, 2, 16, 96, 1e6, 1e-5, "Llama"),
    # sections of RoPE, which are one for text
    Spec("qwen2vl", "qwen2vl", False, 2, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen2VLText",
         {"rope_type": "default", "mrope_section": [2, 3, 3]},
         keys={"rope.dimension_sections": [2, 3, 3, 0]}),
    Spec("qwen3vl", "qwen3vl", True, 2, 64, 4, 2, 16, 96, 5e6, 1e-6, "Qwen3VLText",
         {"rope_type": "default", "mrope_section": [4, 2, 2]},
         keys={"rope.dimension_sections": [4, 2, 2, 0], "n_deepstack_layers": 3}),
    Spec("qwen3vlmoe", "qwen3vlmoe", False, 2, 64, 4, 2, 16, 96, 5e6, 1e-6, "Qwen3VLMoeText",
         {"rope_type": "default", "mrope_section": [4, 2, 2]},
         config=dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48),
         keys={"rope.dimension_sections": [4, 2, 2, 0], "n_deepstack_layers": 3, "expert_count": 8,
               "expert_used_count": 3, "expert_feed_forward_length": 48}),
    # transformers has no Baichuan; the smaller one is a Llama, the larger one a Llama with ALiBi
    Spec("baichuan", "baichuan", False, 2, 64, 4, 4, 16, 96, 1e4, 1e-6, "Llama"),
    Spec("baichuan_alibi", "baichuan", False, 2, 64, 4, 4, 16, 96, 1e4, 1e-6, "Llama",
         change=families.by_distance, keys={"attention.max_alibi_bias": 8.0}),
    Spec("nemotron", "nemotron", False, 2, 64, 4, 2, 16, 128, 1e4, 1e-5, "Nemotron",
         {"rope_type": "default", "partial_rotary_factor": 0.5}, config=dict(norm_eps=1e-5)),
    # numbers of xIELU for each layer
    Spec("apertus", "apertus", False, 2, 64, 4, 2, 16, 128, 1e6, 1e-5, "Apertus", change=families.xielu_by_layer,
         keys={"xielu.alpha_p": [0.3, 0.8], "xielu.alpha_n": [-0.4, 0.5], "xielu.beta": [0.5, 0.75],
               "xielu.eps": [-1e-6, -1e-6]}),
    Spec("gptneox", "gptneox", False, 2, 64, 4, 4, 16, 128, 1e4, 1e-5, "GPTNeoX",
         {"rope_type": "default", "partial_rotary_factor": 0.25},
         config=dict(layer_norm_eps=1e-5, attention_bias=True), gains={"bias": 0.2}, keys={"use_parallel_residual": True}),
    Spec("gptneox_serial", "gptneox", False, 2, 64, 4, 4, 16, 128, 1e4, 1e-5, "GPTNeoX",
         {"rope_type": "default", "partial_rotary_factor": 0.25},
         config=dict(layer_norm_eps=1e-5, attention_bias=True, use_parallel_residual=False), gains={"bias": 0.2},
         keys={"use_parallel_residual": False}),
    Spec("phi2", "phi2", False, 2, 64, 4, 4, 16, 128, 1e4, 1e-5, "Phi",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(layer_norm_eps=1e-5), gains={"bias": 0.2}),
    # one norm and one key/value head
    Spec("falcon_7b", "falcon", True, 2, 64, 4, 1, 16, 256, 1e4, 1e-5, "Falcon",
         config=dict(layer_norm_epsilon=1e-5, head_dim=...)),
    # two norms and two of them
    Spec("falcon_40b", "falcon", False, 2, 64, 4, 2, 16, 256, 1e4, 1e-5, "Falcon",
         config=dict(layer_norm_epsilon=1e-5, new_decoder_architecture=True, num_kv_heads=2,
                     ffn_hidden_size=256, head_dim=...)),
    # six heads, whose slopes are of two kinds; a limit that many queries, keys and values reach
    Spec("mpt", "mpt", True, 2, 96, 6, 6, 16, 384, 1e4, 1e-5, "Mpt",
         config=dict(max_seq_len=CONTEXT, attn_config=dict(clip_qkv=1.5, alibi=True)),
         keys={"attention.clamp_kqv": 1.5, "attention.max_alibi_bias": 8.0}),
    # stronger blocks, as the embedding has a norm
    Spec("bloom", "bloom", True, 2, 64, 4, 4, 16, 256, 1e4, 1e-5, "Bloom",
         config=dict(layer_norm_epsilon=1e-5), gains={"bias": 0.2, "attn_output": 16.0, "ffn_down": 16.0}),
    # norms without weights; a limit
    Spec("olmo", "olmo", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Olmo",
         config=dict(clip_qkv=1.5), keys={"attention.clamp_kqv": 1.5}),
    Spec("stablelm", "stablelm", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "StableLm",
         {"rope_type": "default", "partial_rotary_factor": 0.25},
         config=dict(layer_norm_eps=1e-5, use_qkv_bias=True), gains={"bias": 0.2},
         keys={"use_parallel_residual": True}),
    # parallel, a norm of every head
    Spec("stablelm_12b", "stablelm", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "StableLm",
         {"rope_type": "default", "partial_rotary_factor": 0.25},
         config=dict(layer_norm_eps=1e-5, use_parallel_residual=True, qk_layernorm=True),
         keys={"use_parallel_residual": True}),
    Spec("command_r", "command-r", True, 2, 64, 4, 2, 16, 96, 8e6, 1e-5, "Cohere",
         config=dict(layer_norm_eps=1e-5, logit_scale=0.8), keys={"logit_scale": 0.8, "rope.scaling.type": "none"}),
    Spec("command_r_plus", "command-r", True, 2, 64, 4, 2, 16, 96, 8e6, 1e-5, "Cohere",
         config=dict(layer_norm_eps=1e-5, logit_scale=0.8, use_qk_norm=True),
         keys={"logit_scale": 0.8, "rope.scaling.type": "none"}),
    Spec("cohere2", "cohere2", True, 4, 64, 4, 2, 16, 64, 5e4, 1e-5, "Cohere2",
         config=dict(layer_norm_eps=1e-5, logit_scale=0.8, sliding_window=24,
                     layer_types=["sliding_attention"] * 3 + ["full_attention"]),
         keys={"logit_scale": 0.8, "attention.sliding_window": 24, "rope.scaling.type": "none"}),
    Spec("gpt2", "gpt2", True, 2, 64, 4, 4, 16, 256, 1e4, 1e-5, "GPT2",
         config=dict(n_positions=CONTEXT), gains={"bias": 0.2, "position_embd": 1.0}),
    # one key/value head
    Spec("starcoder", "starcoder", True, 2, 64, 4, 1, 16, 256, 1e4, 1e-5, "GPTBigCode",
         config=dict(n_positions=CONTEXT, multi_query=True, n_inner=256), gains={"bias": 0.2, "position_embd": 1.0}),
    # Q, K and V in one tensor, as in the models' own files
    Spec("chatglm", "chatglm", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-5, "Glm",
         {"rope_type": "default", "partial_rotary_factor": 0.5}, config=dict(attention_bias=True)),
    # transformers has no PLaMo; it is a Llama whose blocks read one norm
    Spec("plamo", "plamo", False, 2, 64, 4, 2, 16, 96, 1e4, 1e-6, "Llama", change=families.in_parallel),
    # latents with LongRoPE, within its original context; factors that are the model's
    Spec("minicpm3", "minicpm3", True, 2, 64, 4, 4, 16, 96, 1e4, 1e-6, "MiniCPM3",
         {**longrope(512), "short_factor": [*SHORT, 2.0, 2.5], "long_factor": [*LONG, 15.0, 20.0]},
         config=dict(**LATENT | dict(v_head_dim=16), q_lora_rank=48, max_position_embeddings=512),
         keys={"attention.kv_lora_rank": 32, "attention.q_lora_rank": 48, "attention.key_length": 32,
               "context_length": 512},
         tensors={"self_attn.kv_b_proj": "attn_kv_b"}, gains={"attn_output": 40.0, "ffn_down": 40.0}),
    # queries of positions from 64 on grow; experts' gate and up in one tensor
    Spec("mistral4", "mistral4", False, 2, 64, 4, 4, 16, 96, 1e4, 1e-6, "Mistral4",
         dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
              llama_4_scaling_beta=0.25, max_position_embeddings=CONTEXT),
         config=dict(**LATENT, q_lora_rank=48, head_dim=..., num_experts_per_tok=3, moe_intermediate_size=48,
                     n_routed_experts=8, n_shared_experts=1),
         keys={**LATENT_KEYS, "attention.q_lora_rank": 48, "expert_count": 8, "expert_used_count": 3,
               "expert_feed_forward_length": 48, "expert_shared_count": 1, "expert_weights_norm": True,
               "leading_dense_block_count": 0, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
               "rope.scaling.original_context_length": 64, "rope.scaling.yarn_log_multiplier": 0.1,
               "attention.temperature_scale": 0.25, "attention.temperature_length": 64}),
    # squared ReLU, as there are fewer key/value heads; norms within the blocks
    Spec("bitnet", "bitnet", True, 2, 64, 4, 2, 16, 96, 5e5, 1e-5, "BitNet"),
    # squared ReLU by the name
    Spec("bitnet_b158", "bitnet-b1.58", True, 2, 64, 4, 4, 16, 96, 5e5, 1e-5, "BitNet"),
    # SiLU, as there are as many
    Spec("bitnet_silu", "bitnet", True, 2, 64, 4, 4, 16, 96, 1e4, 1e-5, "BitNet", config=dict(hidden_act="silu")),
    # transformers has no SmallThinker; it is a Mixtral with ReLU whose router reads something else
    Spec("smallthinker", "smallthinker", False, 5, 64, 4, 2, 16, 48, 1.5e6, 1e-6, "Mixtral",
         config=dict(num_local_experts=8, num_experts_per_tok=3, hidden_act="relu"),
         change=families.chosen_early(24),
         keys={**MIXED_KEYS, "expert_gating_func": 2, "attention.sliding_window": 24},
         gains={"ffn_gate_inp": 0.4}),  # sigmoids that are apart, of a stream that has grown
    Spec("smallthinker_global", "smallthinker", True, 2, 64, 4, 2, 16, 48, 1.5e6, 1e-6, "Mixtral",
         config=dict(num_local_experts=8, num_experts_per_tok=3, hidden_act="relu"),
         change=families.chosen_early(0), keys={**MIXED_KEYS, "expert_gating_func": 2}),
    # short convolutions in layers 0 and 2
    Spec("lfm2", "lfm2", True, 4, 64, 4, 2, 16, 96, 1e6, 1e-5, "Lfm2",
         config=dict(layer_types=["conv", "full_attention"] * 2, conv_L_cache=3, norm_eps=1e-5,
                     block_auto_adjust_ff_dim=False),
         keys={"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3}),
    Spec("lfm2moe", "lfm2moe", True, 4, 64, 4, 2, 16, 96, 1e6, 1e-5, "Lfm2Moe",
         config=dict(**MIXED, layer_types=["conv", "full_attention"] * 2, conv_L_cache=3,
                     norm_eps=1e-5, num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True),
         keys={**MIXED_KEYS, "attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3,
               "leading_dense_block_count": 1, "expert_gating_func": 2}),
    # one group, whose norm goes over all heads; attention without positions in layer 1
    Spec("granitehybrid", "granitehybrid", True, 3, 64, 4, 2, 16, 48, 1e4, 1e-5, "GraniteMoeHybrid",
         config=dict(embedding_multiplier=2.0, residual_multiplier=0.7, logits_scaling=0.8,
                     attention_multiplier=0.35, position_embedding_type="nope",
                     layer_types=["mamba", "full_attention", "mamba"], num_local_experts=8,
                     num_experts_per_tok=3, shared_intermediate_size=80, mamba_n_heads=8,
                     mamba_d_head=16, mamba_n_groups=1, mamba_d_state=24, mamba_d_conv=4,
                     mamba_expand=2, mamba_chunk_size=32),
         keys={**MAMBA_KEYS, "ssm.group_count": 1, "embedding_scale": 2.0, "residual_scale": 0.7,
               "logit_scale": 0.8, "attention.scale": 0.35, "attention.head_count_kv": [0, 2, 0],
               "expert_count": 8, "expert_used_count": 3, "expert_shared_feed_forward_length": 80,
               "rope.scaling.finetuned": False}),
    Spec("nemotron_h", "nemotron_h", False, 5, 64, 4, 2, 16, 96, 1e4, 1e-5, "NemotronH",
         config=dict(hybrid_override_pattern="M-*M-", mamba_num_heads=8, mamba_head_dim=16,
                     n_groups=2, ssm_state_size=24, conv_kernel=4, chunk_size=32,
                     layer_norm_epsilon=1e-5),
         keys={**MAMBA_KEYS, "attention.head_count_kv": [0, 0, 2, 0, 0],
               "feed_forward_length": [0, 96, 0, 0, 96]}),
    Spec("nemotron_h_moe", "nemotron_h_moe", False, 5, 64, 4, 2, 16, 48, 1e4, 1e-5, "NemotronH",
         config=dict(hybrid_override_pattern="ME*ME", mamba_num_heads=8, mamba_head_dim=16,
                     n_groups=2, ssm_state_size=24, conv_kernel=4, chunk_size=32,
                     layer_norm_epsilon=1e-5, n_routed_experts=8, num_experts_per_tok=3,
                     moe_intermediate_size=48, moe_shared_expert_intermediate_size=80,
                     n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
                     routed_scaling_factor=2.5),
         keys={**MAMBA_KEYS, **MIXED_KEYS, "attention.head_count_kv": [0, 0, 2, 0, 0],
               "feed_forward_length": [0, 48, 0, 0, 48], "expert_shared_count": 1,
               "expert_shared_feed_forward_length": 80, "expert_weights_norm": True,
               "expert_weights_scale": 2.5, "expert_group_count": 1}),
    # attention beside the recurrence, whose heads have no norm
    Spec("falcon_h1", "falcon-h1", False, 2, 64, 4, 2, 16, 96, 1e6, 1e-5, "FalconH1",
         config=dict(mamba_d_ssm=128, mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=1,
                     mamba_d_state=24, mamba_d_conv=4, mamba_chunk_size=32, mamba_rms_norm=False),
         keys={**MAMBA_KEYS, "ssm.group_count": 1}),
    Spec("qwen3next", "qwen3next", False, 4, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen3Next",
         {"rope_type": "default", "partial_rotary_factor": 0.5},
         config=dict(**DELTA, **MIXED, layer_types=THREE_OF_FOUR, norm_topk_prob=True,
                     shared_expert_intermediate_size=80, decoder_sparse_step=1, mlp_only_layers=[]),
         keys={**DELTA_KEYS, **MIXED_KEYS, "expert_shared_feed_forward_length": 80}),
    # heads of keys take turns in files; sections of RoPE, which are one for text
    Spec("qwen35", "qwen35", True, 4, 64, 4, 2, 16, 96, 1e6, 1e-6, "Qwen3_5Text",
         {"rope_type": "default", "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
         config=dict(**DELTA, layer_types=THREE_OF_FOUR),
         keys={**DELTA_KEYS, "rope.dimension_sections": [2, 1, 1, 0]}),
    Spec("qwen35moe", "qwen35moe", False, 3, 64, 4, 2, 16, 48, 1e6, 1e-6, "Qwen3_5MoeText",
         {"rope_type": "default", "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
         config=dict(**DELTA, **MIXED, layer_types=["linear_attention", "full_attention", "linear_attention"],
                     shared_expert_intermediate_size=80),
         keys={**DELTA_KEYS, **MIXED_KEYS, "expert_shared_feed_forward_length": 80,
               "attention.recurrent_layers": [True, False, True],
               "rope.dimension_sections": [2, 1, 1, 0]}),
    # four streams, of which layers work on the second; in two layers the largest gates count; widths of 64 and 96;
    # inputs of layers; the last two layers share keys and values
    Spec("gemma3n", "gemma3n", True, 6, 64, 4, 2, 16, 64, 1e6, 1e-6, "Gemma3nText",
         local={"rope_type": "default", "rope_theta": 1e4},
         config=dict(intermediate_size=[64, 64, 96, 96, 64, 64], sliding_window=24,
                     altup_num_inputs=4, altup_active_idx=1, laurel_rank=64,
                     hidden_size_per_layer_input=32, vocab_size_per_layer_input=VOCAB,
                     num_kv_shared_layers=2, final_logit_softcapping=8.0,
                     activation_sparsity_pattern=[0.75, 0.0, 0.5, 0.0, 0.0, 0.0],
                     layer_types=["sliding_attention", "full_attention"] * 3),
         keys={"feed_forward_length": [64, 64, 96, 96, 64, 64], "attention.sliding_window": 24,
               "attention.sliding_window_pattern": [True, False] * 3,
               "altup.num_inputs": 4, "altup.active_idx": 1, "attention.shared_kv_layers": 2,
               "embedding_length_per_layer_input": 32, "final_logit_softcapping": 8.0,
               "activation_sparsity_scale": [0.6744897, -math.inf, 0.0, -math.inf, -math.inf, -math.inf]},
         gains={"post_attention_norm": 4.0, "post_ffw_norm": 4.0, "post_norm": 2.0,
                "laurel_post_norm": 2.0, "attn_q_norm": 0.5, "attn_k_norm": 0.5,
                "altup_router": 12.0, "altup_predict_coef": 0.5, "altup_correct_coef": 0.5}),
    # heads of 16 in layers with a window of 24, of 32 in others; inputs of layers; the last two layers share keys
    # and values, and are twice as wide
    Spec("gemma4", "gemma4", True, 6, 64, 4, 2, 32, 64, 1e6, 1e-6, "Gemma4Text",
         {"rope_type": "proportional", "partial_rotary_factor": 0.25},
         local={"rope_type": "default", "rope_theta": 1e4},
         config=dict(sliding_window=24, global_head_dim=32, hidden_size_per_layer_input=32,
                     vocab_size_per_layer_input=VOCAB, num_kv_shared_layers=2,
                     use_double_wide_mlp=True, final_logit_softcapping=8.0,
                     layer_types=["sliding_attention", "full_attention"] * 3),
         keys={"attention.key_length": 32, "attention.value_length": 32,
               "attention.key_length_swa": 16, "attention.value_length_swa": 16,
               "rope.dimension_count_swa": 16, "rope.freq_base_swa": 1e4,
               "attention.sliding_window": 24, "attention.sliding_window_pattern": [True, False] * 3,
               "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 32,
               "feed_forward_length": [64, 64, 64, 64, 128, 128], "final_logit_softcapping": 8.0},
         gains={"post_attention_norm": 4.0, "post_ffw_norm": 4.0, "post_norm": 2.0,
                "attn_q_norm": 0.5, "attn_k_norm": 0.5}),
    # keys that are values too and fewer of them in layers without a window; experts beside a dense layer
    Spec("gemma4_experts", "gemma4", True, 3, 64, 4, 2, 32, 64, 1e6, 1e-6, "Gemma4Text",
         {"rope_type": "proportional", "partial_rotary_factor": 0.25},
         local={"rope_type": "default", "rope_theta": 1e4},
         config=dict(sliding_window=24, global_head_dim=32, num_global_key_value_heads=1,
                     attention_k_eq_v=True, hidden_size_per_layer_input=0, enable_moe_block=True,
                     num_experts=8, top_k_experts=3, moe_intermediate_size=48,
                     layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
         keys={"attention.key_length": 32, "attention.value_length": 32,
               "attention.key_length_swa": 16, "attention.value_length_swa": 16,
               "rope.dimension_count_swa": 16, "rope.freq_base_swa": 1e4,
               "attention.sliding_window": 24,
               "attention.sliding_window_pattern": [True, True, False],
               "attention.head_count_kv": [2, 2, 1], "embedding_length_per_layer_input": 0,
               "attention.shared_kv_layers": 0, **MIXED_KEYS}, gains=AFTER),
)


def predicting(name: str, **otherwise) -> Spec:
    """The same model with a layer that predicts further tokens."""
    spec = next(spec for spec in SPECS if spec.name == name)
    return replace(spec, name=f"{name}_mtp", keys={**spec.keys, "nextn_predict_layers": 1},
                   predicts=otherwise)


SPECS += (
    predicting("qwen35", layer_types=["full_attention"]),
    predicting("qwen3next", layer_types=["full_attention"]),
    predicting("glm4moe", first_k_dense_replace=0, mlp_layer_types=["sparse"]),
    predicting("deepseek_v3", first_k_dense_replace=0, mlp_layer_types=["sparse"]),
)
