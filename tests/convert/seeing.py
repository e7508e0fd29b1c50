"""Models that read images, saved by `transformers` as on the Hub: two files are made of each folder, the language model
and its image encoder (`mmproj`)."""

import json
import shutil
from pathlib import Path

import torch
import transformers

import checkpoints
import vocabularies

TEXT = dict(vocab_size=checkpoints.VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
            pad_token_id=0)
SIGLIP = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, patch_size=8,
              image_size=32, layer_norm_eps=1e-6)
WINDOWS = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=16,
               rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
PROCESSOR = {"image_mean": [0.5, 0.25, 0.125], "image_std": [0.5, 0.6, 0.7]}


def smolvlm():
    text = dict(model_type="llama", **TEXT)
    return transformers.SmolVLMConfig(text_config=text, vision_config=SIGLIP, scale_factor=2, tie_word_embeddings=False)


def idefics3():
    text = dict(model_type="llama", **TEXT)
    return transformers.Idefics3Config(text_config=text, vision_config=SIGLIP, scale_factor=4, tie_word_embeddings=False)


def gemma3():
    vision = dict(SIGLIP, model_type="siglip_vision_model", vision_use_head=False)
    return transformers.Gemma3Config(text_config={**TEXT, **WINDOWS}, vision_config=vision, mm_tokens_per_image=4)


def gemma4(limits: bool = False):
    rope = dict(WINDOWS["rope_parameters"])
    rope["full_attention"] = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    text = dict(TEXT, **{**WINDOWS, "rope_parameters": rope}, global_head_dim=32, hidden_size_per_layer_input=0, vocab_size_per_layer_input=checkpoints.VOCAB)
    vision = dict(hidden_size=64, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                  head_dim=16, patch_size=8, position_embedding_size=64, pooling_kernel_size=3, standardize=True,
                  use_clipped_linears=limits)
    return transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=None)


def qwen2():
    vision = dict(depth=3, embed_dim=48, hidden_size=64, mlp_ratio=2, num_heads=4, patch_size=14)
    return transformers.Qwen2VLConfig(text_config=dict(TEXT, rope_parameters=ROPE), vision_config=vision)


def qwen25():
    vision = dict(depth=4, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, window_size=112,
                  fullatt_block_indexes=[1, 3], out_hidden_size=64)
    return transformers.Qwen2_5_VLConfig(text_config=dict(TEXT, rope_parameters=ROPE), vision_config=vision)


def qwen3():
    vision = dict(depth=4, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, out_hidden_size=64,
                  num_position_embeddings=36, deepstack_visual_indexes=[1, 2])
    return transformers.Qwen3VLConfig(text_config=dict(TEXT, rope_parameters=ROPE), vision_config=vision)


def qwen3_experts():
    text = dict(TEXT, rope_parameters=ROPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    vision = dict(depth=2, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, out_hidden_size=64,
                  num_position_embeddings=36, deepstack_visual_indexes=[0])
    return transformers.Qwen3VLMoeConfig(text_config=text, vision_config=vision)


def qwen35():
    text = dict(TEXT, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
                linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
                rope_parameters={**ROPE, "mrope_section": [2, 1, 1], "mrope_interleaved": True, "partial_rotary_factor": 0.5})
    vision = dict(depth=3, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, out_hidden_size=64,
                  num_position_embeddings=36, deepstack_visual_indexes=[])
    return transformers.Qwen3_5Config(text_config=text, vision_config=vision)


PIXTRAL = dict(model_type="pixtral", hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
               head_dim=12, image_size=96, patch_size=8, hidden_act="silu")


def pixtral():
    text = dict(model_type="mistral", **TEXT, sliding_window=None)
    return transformers.LlavaConfig(text_config=text, vision_config={**PIXTRAL, "hidden_act": "gelu"},
                                    vision_feature_layer=-1, vision_feature_select_strategy="full")


def mistral3():
    text = dict(model_type="mistral", **TEXT, sliding_window=None)
    return transformers.Mistral3Config(text_config=text, vision_config=PIXTRAL, spatial_merge_size=2, tie_word_embeddings=False)


def lfm2():
    text = dict(TEXT, model_type="lfm2", norm_eps=1e-5, layer_types=["conv", "full_attention"], conv_L_cache=3,
                block_auto_adjust_ff_dim=False, block_ffn_dim_multiplier=1.0, block_multiple_of=16)
    vision = dict(SIGLIP, model_type="siglip2_vision_model", vision_use_head=False, patch_size=16, num_patches=16)
    del vision["image_size"]
    return transformers.Lfm2VlConfig(text_config=text, vision_config=vision, projector_hidden_size=80, downsample_factor=2)


# Class, configuration, what the processor's configuration states besides, way to cut text.
MODELS = {
    "smolvlm": ("SmolVLM", smolvlm, {"size": {"longest_edge": 96}}, "llama-bpe"),
    "idefics3": ("Idefics3", idefics3, {}, "llama-bpe"),
    "gemma3_images": ("Gemma3", gemma3, {"image_seq_length": 4}, "sentencepiece"),
    "gemma4_images": ("Gemma4", gemma4, {}, "merges_with_bytes"),
    "gemma4_limits": ("Gemma4", lambda: gemma4(limits=True), {}, "merges_with_bytes"),
    "qwen2vl": ("Qwen2VL", qwen2, {}, "qwen2"),
    "qwen25vl": ("Qwen2_5_VL", qwen25, {}, "qwen2"),
    "qwen3vl": ("Qwen3VL", qwen3, {}, "qwen2"),
    "qwen3vlmoe": ("Qwen3VLMoe", qwen3_experts, {}, "qwen2"),
    "qwen35_images": ("Qwen3_5", qwen35, {}, "qwen2"),
    "pixtral": ("Llava", pixtral, {}, "llama-bpe"),
    "mistral3_images": ("Mistral3", mistral3, {}, "llama-bpe"),
    "lfm2vl": ("Lfm2Vl", lfm2, {}, "qwen2"),
}
# The class of the language model, where published folders tell it in its part of the configuration, and the reference asks.
TEXTS = {"smolvlm": "VLlama3ForCausalLM", "idefics3": "LlamaForCausalLM", "lfm2vl": "Lfm2ForCausalLM"}


def class_of_text(name: str, config: dict) -> None:
    if name in TEXTS:
        config["text_config"]["architectures"] = [TEXTS[name]]
    if name == "qwen35_images":
        config["text_config"]["mtp_num_hidden_layers"] = 1


def published(name: str, tensors: dict) -> dict:
    """Names, forms and tensors that published folders have, and `transformers` does not keep."""
    if name in ("gemma3_images", "lfm2vl"):
        return {key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in tensors.items()}
    if name == "qwen3vlmoe":
        return {key: value.transpose(1, 2) if "experts" in key else value for key, value in tensors.items()}
    if name == "qwen35_images":  # and a layer that predicts further tokens
        last, of = "model.language_model.layers.1.", lambda *shape: torch.empty(shape, dtype=torch.bfloat16).uniform_(-1, 1)
        layer = {f"mtp.layers.0.{key.removeprefix(last)}": value.clone() for key, value in tensors.items() if key.startswith(last)}
        return {**tensors, **layer, "mtp.fc.weight": of(64, 128), "mtp.pre_fc_norm_embedding.weight": of(64),
                "mtp.pre_fc_norm_hidden.weight": of(64), "mtp.norm.weight": of(64)}
    return tensors


# As files have it at first: everything beside each other in the newer of two files.
NEWER = ("qwen3vl", "gemma4_images")


def build(name: str, folder: Path) -> str:
    """Writes the folder; gives the name of the vocabulary's way to cut text."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(len(name))
    prefix, config, processor, cut = MODELS[name]
    model = getattr(transformers, prefix + "ForConditionalGeneration")(config())
    checkpoints.save(model, name, folder)
    checkpoints.rewrite(folder, lambda tensors: published(name, tensors), lambda config: class_of_text(name, config))
    said = {**PROCESSOR, **processor}
    if name in NEWER:
        vocabularies.write(folder, "preprocessor_config.json", {**PROCESSOR, "image_mean": [0.0, 0.0, 0.0]})
        vocabularies.write(folder, "processor_config.json", {"image_processor": said})
    else:
        vocabularies.write(folder, "preprocessor_config.json", said)
    if cut == "sentencepiece":
        return vocabularies.sentencepiece(folder, tokenizer_class="GemmaTokenizer")
    if cut == "merges_with_bytes":
        return vocabularies.merges_with_bytes(folder)
    pre = vocabularies.byte_level(folder, cut)
    if name in ("pixtral", "mistral3_images"):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        last = max(token["id"] for token in tokenizer["added_tokens"])
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": last + 1, "content": "[IMG_BREAK]"})
        vocabularies.write(folder, "tokenizer.json", tokenizer)
    return pre
