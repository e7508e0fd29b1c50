#!/usr/bin/env python3
"""Golden pixel values and logits of models that see images, for the tests of `vision` and of the engine.

For each family a small random model of `transformers` (float32, eager attention) and its image processor (the one on
torchvision): what the processor makes of pictures that a formula gives, and the logits of prompts of tokens and
pictures. Stored are the headers of two GGUF files, the model and its image encoder (`NAME_mmproj`), and the answers.
Weights come from the rule of `weights.py`.

    python images.py            # all models into ../../tests/golden
    python images.py smolvlm    # one of them
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable

import gguf
import numpy as np
import torch
import transformers
from PIL import Image

import weights

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden"
VOCAB, CONTEXT, HIDDEN, HEADS, KV_HEADS, FFN = 160, 1024, 64, 4, 2, 96
IMAGE = VOCAB - 1  # the id that stands for an output of the encoder
WIDE, TALL, SMALL = (150, 97), (61, 130), (23, 19)  # width and height of pictures
EVERY = 101  # of pixel values so many are kept as one
MAX_ERROR = 2e-5  # float32 against float64, relative to the largest logit


def picture(size: tuple[int, int]) -> Image.Image:
    """Slopes and edges; `testkit::picture` is the same in Rust."""
    width, height = size
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    slope = 3 * x + 2 * y * (c + 1) + x * y // 16
    edge = ((x // 9 + y // 7 + c) % 3) * 40
    return Image.fromarray(((slope + edge) % 256).astype(np.uint8))


@dataclass(frozen=True)
class Family:
    name: str
    reference: str  # class in transformers
    config: Callable  # -> its configuration
    processor: Callable  # -> the image processor
    text_arch: str
    text_tensors: dict  # name in the file -> parameter
    image_tensors: dict
    keys: dict  # metadata of the encoder, below clip.
    text_keys: dict = field(default_factory=dict)
    outputs: Callable | None = None  # of one picture: rows for each run of outputs
    more: Callable | None = None  # inputs of the model, by what the processor gave and the tokens
    gains: dict = field(default_factory=dict)  # of kinds of tensors, instead of the usual ones
    permuted: tuple = ()  # where rows of Q and K are for interleaved RoPE
    minus_one: Callable = lambda name: False  # norms to whose weights the model adds one
    pictures: tuple = (WIDE, TALL, SMALL)
    tiles: Callable | None = None  # pixel values of a picture as tiles [3, height, width]


def layers(count: int, table: dict, ends=(".weight",)) -> dict:
    return {f"{ours.format(at)}{end}": f"{theirs.format(at)}{end}"
            for at in range(count) for ours, theirs in table.items() for end in ends}


BOTH = (".weight", ".bias")


def llama(prefix: str, count: int, **more) -> dict:
    of = prefix + "layers.{}."
    return {
        "token_embd.weight": prefix + "embed_tokens.weight",
        "output_norm.weight": prefix + "norm.weight",
        **layers(count, {
            "blk.{}.attn_norm": of + "input_layernorm",
            **{f"blk.{{}}.attn_{m}": f"{of}self_attn.{m}_proj" for m in "qkv"},
            "blk.{}.attn_output": of + "self_attn.o_proj",
            "blk.{}.ffn_norm": of + "post_attention_layernorm",
            **{f"blk.{{}}.ffn_{m}": f"{of}mlp.{m}_proj" for m in ("gate", "up", "down")},
            **more.get("layer", {})}),
        **more.get("whole", {}),
    }


def siglip(prefix: str, count: int) -> dict:
    of = prefix + "encoder.layers.{}."
    return {
        **layers(1, {"v.patch_embd": prefix + "embeddings.patch_embedding",
                     "v.post_ln": prefix + "post_layernorm"}, BOTH),
        "v.position_embd.weight": prefix + "embeddings.position_embedding.weight",
        **layers(count, {
            "v.blk.{}.ln1": of + "layer_norm1", "v.blk.{}.ln2": of + "layer_norm2",
            **{f"v.blk.{{}}.attn_{m}": f"{of}self_attn.{m}_proj" for m in "qkv"},
            "v.blk.{}.attn_out": of + "self_attn.out_proj",
            "v.blk.{}.ffn_up": of + "mlp.fc1", "v.blk.{}.ffn_down": of + "mlp.fc2"}, BOTH),
    }


TEXT = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=2,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=16,
            max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None, pad_token_id=None)
SIGLIP = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, patch_size=8,
              image_size=32, layer_norm_eps=1e-6)
HALF = [0.5, 0.5, 0.5]
VISION_KEYS = {"projection_dim": HIDDEN, "image_size": 32, "patch_size": 8, "embedding_length": 48,
               "feed_forward_length": 80, "block_count": 3, "attention.head_count": 4,
               "attention.layer_norm_epsilon": 1e-6, "image_mean": HALF, "image_std": HALF}


def smolvlm_config():
    return transformers.SmolVLMConfig(
        text_config=dict(model_type="llama", **TEXT), vision_config=SIGLIP, scale_factor=2,
        image_token_id=IMAGE, tie_word_embeddings=False)


def smolvlm_processor():
    return transformers.SmolVLMImageProcessor(
        size={"longest_edge": 96}, max_image_size={"longest_edge": 32}, image_mean=HALF, image_std=HALF)


def gemma3_config():
    # A window that is shorter than an image.
    text = dict(TEXT, rms_norm_eps=1e-5, sliding_window=10, query_pre_attn_scalar=16, tie_word_embeddings=True,
                layer_types=["sliding_attention", "full_attention"],
                rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    return transformers.Gemma3Config(
        text_config=text, vision_config=dict(model_type="siglip_vision_model", vision_use_head=False,
                                             **{**SIGLIP, "image_size": 64}),
        mm_tokens_per_image=16, image_token_index=IMAGE, tie_word_embeddings=True)


def gemma3_processor():
    return transformers.Gemma3ImageProcessor(size={"height": 64, "width": 64}, image_mean=HALF, image_std=HALF)


def rows(first: int, of: int) -> Callable:
    """One of several runs of rows of a parameter."""
    return lambda p: p[first * p.shape[0] // of:(first + 1) * p.shape[0] // of]


QWEN_PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 30}
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def qwen25_config():
    text = dict(TEXT, max_window_layers=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]})
    return transformers.Qwen2_5_VLConfig(
        text_config=text, image_token_id=IMAGE, vision_start_token_id=0, vision_end_token_id=1, video_token_id=2,
        vision_config=dict(depth=4, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, window_size=112,
                           fullatt_block_indexes=[1, 3], out_hidden_size=HIDDEN))


def qwen2_config():
    text = dict(TEXT, max_window_layers=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]})
    return transformers.Qwen2VLConfig(
        text_config=text, image_token_id=IMAGE, vision_start_token_id=0, vision_end_token_id=1, video_token_id=2,
        vision_config=dict(depth=3, embed_dim=48, hidden_size=HIDDEN, mlp_ratio=2, num_heads=4, patch_size=14))


def qwen_processor(patch: int, mean, std):
    return lambda: transformers.Qwen2VLImageProcessor(
        size=QWEN_PIXELS, patch_size=patch, image_mean=mean, image_std=std)


def qwen3_config():
    text = dict(TEXT, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]})
    return transformers.Qwen3VLConfig(
        text_config=text, image_token_id=IMAGE, vision_start_token_id=0, vision_end_token_id=1, video_token_id=2,
        vision_config=dict(depth=3, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14,
                           out_hidden_size=HIDDEN, num_position_embeddings=36, deepstack_visual_indexes=[0, 1]))


def qwen35_config():
    text = dict(TEXT, layer_types=["full_attention"] * 2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                linear_value_head_dim=16, linear_conv_kernel_dim=4,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2],
                                 "mrope_interleaved": True, "partial_rotary_factor": 1.0})
    return transformers.Qwen3_5Config(
        text_config=text, image_token_id=IMAGE, vision_start_token_id=0, vision_end_token_id=1, video_token_id=2,
        vision_config=dict(depth=3, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14,
                           out_hidden_size=HIDDEN, num_position_embeddings=36, deepstack_visual_indexes=[]))


def untiled(merge: int, patch: int) -> Callable:
    """A picture of Qwen's processor, whose patches are in the order of outputs and twice."""
    def tiles(got):
        _, height, width = got["image_grid_thw"][0].tolist()
        patches = got["pixel_values"].reshape(height // merge, width // merge, merge, merge, 3, 2, patch, patch)
        once = patches[:, :, :, :, :, 0]
        return [once.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, height * patch, width * patch)]
    return tiles


def qwen_more(got, tokens):
    return {"pixel_values": got["pixel_values"], "image_grid_thw": got["image_grid_thw"],
            "mm_token_type_ids": (tokens == IMAGE).int()}


QWEN_VISION = {**VISION_KEYS, "image_size": 84, "patch_size": 14, "spatial_merge_size": 2,
               "image_min_pixels": QWEN_PIXELS["shortest_edge"], "image_max_pixels": QWEN_PIXELS["longest_edge"]}
PATCHES = {"v.patch_embd.weight": [("model.visual.patch_embed.proj.weight", lambda p: p[:, :, 0])],
           "v.patch_embd.weight.1": [("model.visual.patch_embed.proj.weight", lambda p: p[:, :, 1])]}
BLOCK = "model.visual.blocks.{}."


def mistral3_config():
    return transformers.Mistral3Config(
        text_config=dict(model_type="mistral", **TEXT, sliding_window=None), image_token_index=IMAGE,
        spatial_merge_size=2, tie_word_embeddings=False,
        vision_config=dict(model_type="pixtral", hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                           num_attention_heads=4, head_dim=12, image_size=96, patch_size=8, hidden_act="silu"))


def mistral3_processor():
    return transformers.PixtralImageProcessor(size={"longest_edge": 96}, patch_size={"height": 16, "width": 16})


def mistral3_rows(got):
    height, width = got["image_sizes"][0].tolist()
    return [width // 16] * (height // 16)


def gemma4_config(limits: bool = False):
    # A window that is shorter than an image; layers without one read images as they read text.
    text = dict(TEXT, rms_norm_eps=1e-5, pad_token_id=0, sliding_window=10, head_dim=16, global_head_dim=16, hidden_size_per_layer_input=0,
                vocab_size_per_layer_input=VOCAB, use_bidirectional_attention="vision", tie_word_embeddings=True,
                layer_types=["sliding_attention", "full_attention"],
                rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    return transformers.Gemma4Config(
        text_config=text, audio_config=None, image_token_id=IMAGE, tie_word_embeddings=True, boi_token_id=0, eoi_token_id=1,
        vision_config=dict(hidden_size=64, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                           head_dim=16, patch_size=8, position_embedding_size=64, pooling_kernel_size=3, standardize=True,
                           use_clipped_linears=limits, rms_norm_eps=1e-6))


def gemma4_limits(count: int) -> dict:
    """Numbers beside each matrix of a layer that its inputs and products are kept between."""
    names = {**{f"attn_{m}": f"self_attn.{m}_proj" for m in "qkv"}, "attn_out": "self_attn.o_proj",
             **{f"ffn_{m}": f"mlp.{m}_proj" for m in ("gate", "up", "down")}}
    return {f"v.blk.{at}.{ours}.{end}": [(f"model.vision_tower.encoder.layers.{at}.{theirs}.{end}", lambda p: p.view(1))]
            for at in range(count) for ours, theirs in names.items() for end in LIMITS}


# Around what is limited by a few tenths of all numbers; other ones for inputs than for products.
LIMITS = {"input_min": -0.9, "input_max": 1.1, "output_min": -0.7, "output_max": 0.6}


def gemma4_processor():
    transformers.models.gemma4.image_processing_gemma4._SUPPORTED_SOFT_TOKENS = (12,)
    return transformers.Gemma4ImageProcessor(patch_size=8, max_soft_tokens=12, pooling_kernel_size=3)


def gemma4_tiles(got):
    at = got["image_position_ids"][0]
    count = int((at[:, 0] >= 0).sum())
    width, height = (int(n) + 1 for n in at[:count].amax(0))
    own = got["pixel_values"][0][:count].reshape(height, width, 8, 8, 3)
    return [own.permute(4, 0, 2, 1, 3).reshape(3, height * 8, width * 8)]


def lfm2_config():
    text = dict(TEXT, model_type="lfm2", norm_eps=1e-5, layer_types=["full_attention"] * 2, conv_L_cache=3,
                block_auto_adjust_ff_dim=False, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    return transformers.Lfm2VlConfig(
        text_config=text, image_token_id=IMAGE, projector_hidden_size=80, downsample_factor=2, tie_word_embeddings=True,
        vision_config=dict(model_type="siglip2_vision_model", vision_use_head=False, hidden_size=48,
                           intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, patch_size=16,
                           num_patches=16, layer_norm_eps=1e-6))


def lfm2_processor():
    return transformers.Lfm2VlImageProcessor(
        encoder_patch_size=16, min_image_tokens=4, max_image_tokens=16, downsample_factor=2, tile_size=512,
        return_row_col_info=True)


def lfm2_tiles(got):
    tiles = []
    for patches, (height, width) in zip(got["pixel_values"], got["spatial_shapes"].tolist()):
        own = patches[:height * width].reshape(height, width, 16, 16, 3)
        tiles.append(own.permute(4, 0, 2, 1, 3).reshape(3, height * 16, width * 16))
    return tiles


FAMILIES = [
    Family(
        "smolvlm", "SmolVLMForConditionalGeneration", smolvlm_config, smolvlm_processor, "llama",
        llama("model.text_model.", 2, whole={"output.weight": "lm_head.weight"}),
        {**siglip("model.vision_model.", 3),
         "mm.model.fc.weight": "model.connector.modality_projection.proj.weight"},
        {"projector_type": "idefics3", "vision": {**VISION_KEYS, "projector.scale_factor": 2,
                                                  "preproc_image_size": 96}},
        permuted=("blk.",),
        tiles=lambda got: [tile for tile in got["pixel_values"][0]],
        outputs=lambda got: [4] * got["pixel_values"].shape[1],
        more=lambda got, tokens: {"pixel_values": got["pixel_values"],
                                  "pixel_attention_mask": got["pixel_attention_mask"]},
    ),
    Family(
        "gemma3_images", "Gemma3ForConditionalGeneration", gemma3_config, gemma3_processor, "gemma3",
        llama("model.language_model.", 2, layer={
            "blk.{}.ffn_norm": "model.language_model.layers.{}.pre_feedforward_layernorm",
            "blk.{}.post_attention_norm": "model.language_model.layers.{}.post_attention_layernorm",
            "blk.{}.post_ffw_norm": "model.language_model.layers.{}.post_feedforward_layernorm",
            "blk.{}.attn_q_norm": "model.language_model.layers.{}.self_attn.q_norm",
            "blk.{}.attn_k_norm": "model.language_model.layers.{}.self_attn.k_norm"}),
        {**siglip("model.vision_tower.", 3),
         "mm.input_projection.weight": "model.multi_modal_projector.mm_input_projection_weight",
         "mm.soft_emb_norm.weight": "model.multi_modal_projector.mm_soft_emb_norm.weight"},
        {"projector_type": "gemma3", "vision": {**VISION_KEYS, "image_size": 64, "projector.scale_factor": 2}},
        text_keys={"attention.sliding_window": 10, "attention.sliding_window_pattern": 2, "rope.freq_base": 1e6},
        minus_one=lambda name: name.endswith("norm.weight"),
        # with a scaled embedding that is the head too, weaker blocks would only say the last token again
        gains={"post_attention_norm": 10.0, "post_ffw_norm": 10.0, "soft_emb_norm": 5.0},
        tiles=lambda got: [got["pixel_values"][0]],
        outputs=lambda got: [16],
        more=lambda got, tokens: {"pixel_values": got["pixel_values"], "token_type_ids": (tokens == IMAGE).int()},
    ),
    Family(
        "qwen2vl_images", "Qwen2VLForConditionalGeneration", qwen2_config,
        qwen_processor(14, CLIP_MEAN, CLIP_STD), "qwen2vl",
        llama("model.language_model.", 2, whole={
            "output.weight": "lm_head.weight",
            **layers(2, {f"blk.{{}}.attn_{m}": f"model.language_model.layers.{{}}.self_attn.{m}_proj" for m in "qkv"},
                     (".bias",))}),
        {**PATCHES,
         **layers(3, {"v.blk.{}.ln1": BLOCK + "norm1", "v.blk.{}.ln2": BLOCK + "norm2", "v.blk.{}.attn_out": BLOCK + "attn.proj",
                      "v.blk.{}.ffn_up": BLOCK + "mlp.fc1", "v.blk.{}.ffn_down": BLOCK + "mlp.fc2"}, BOTH),
         **{f"v.blk.{at}.attn_{m}{end}": [(f"model.visual.blocks.{at}.attn.qkv{end}", rows(i, 3))]
            for at in range(3) for i, m in enumerate("qkv") for end in BOTH},
         **layers(1, {"v.post_ln": "model.visual.merger.ln_q", "mm.0": "model.visual.merger.mlp.0",
                      "mm.2": "model.visual.merger.mlp.2"}, BOTH)},
        # Files state the width of the language model as that of feed-forward layers, which are 96 wide here.
        {"projector_type": "qwen2vl_merger",
         "vision": {**QWEN_VISION, "feed_forward_length": HIDDEN, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}},
        text_keys={"rope.freq_base": 1e6, "rope.dimension_sections": [2, 3, 3, 0]},
        tiles=untiled(2, 14),
        outputs=lambda got: [int(got["image_grid_thw"][0].prod()) // 4],
        more=qwen_more,
    ),
    Family(
        "qwen25vl_images", "Qwen2_5_VLForConditionalGeneration", qwen25_config,
        qwen_processor(14, CLIP_MEAN, CLIP_STD), "qwen2vl",
        llama("model.language_model.", 2, whole={
            "output.weight": "lm_head.weight",
            **layers(2, {f"blk.{{}}.attn_{m}": f"model.language_model.layers.{{}}.self_attn.{m}_proj" for m in "qkv"},
                     (".bias",))}),
        {**PATCHES,
         "v.post_ln.weight": "model.visual.merger.ln_q.weight",
         **layers(4, {"v.blk.{}.ln1": BLOCK + "norm1", "v.blk.{}.ln2": BLOCK + "norm2"}),
         **layers(4, {"v.blk.{}.attn_out": BLOCK + "attn.proj",
                      **{f"v.blk.{{}}.ffn_{m}": f"{BLOCK}mlp.{m}_proj" for m in ("gate", "up", "down")}}, BOTH),
         **{f"v.blk.{at}.attn_{m}{end}": [(f"model.visual.blocks.{at}.attn.qkv{end}", rows(i, 3))]
            for at in range(4) for i, m in enumerate("qkv") for end in BOTH},
         **layers(1, {"mm.0": "model.visual.merger.mlp.0", "mm.2": "model.visual.merger.mlp.2"}, BOTH)},
        {"projector_type": "qwen2.5vl_merger", "use_silu": True,
         "vision": {**QWEN_VISION, "block_count": 4, "n_wa_pattern": 2, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}},
        text_keys={"rope.freq_base": 1e6, "rope.dimension_sections": [2, 3, 3, 0]},
        tiles=untiled(2, 14),
        outputs=lambda got: [int(got["image_grid_thw"][0].prod()) // 4],
        more=qwen_more,
    ),
    Family(
        "qwen3vl_images", "Qwen3VLForConditionalGeneration", qwen3_config, qwen_processor(14, HALF, HALF), "qwen3vl",
        llama("model.language_model.", 2, layer={
            f"blk.{{}}.attn_{m}_norm": f"model.language_model.layers.{{}}.self_attn.{m}_norm" for m in "qk"},
            whole={"output.weight": "lm_head.weight"}),
        {**PATCHES, "v.patch_embd.bias": "model.visual.patch_embed.proj.bias",
         "v.position_embd.weight": "model.visual.pos_embed.weight",
         **layers(1, {"v.post_ln": "model.visual.merger.norm", "mm.0": "model.visual.merger.linear_fc1",
                      "mm.2": "model.visual.merger.linear_fc2"}, BOTH),
         **layers(3, {"v.blk.{}.ln1": BLOCK + "norm1", "v.blk.{}.ln2": BLOCK + "norm2",
                      "v.blk.{}.attn_qkv": BLOCK + "attn.qkv", "v.blk.{}.attn_out": BLOCK + "attn.proj",
                      "v.blk.{}.ffn_up": BLOCK + "mlp.linear_fc1", "v.blk.{}.ffn_down": BLOCK + "mlp.linear_fc2"}, BOTH),
         **layers(2, {"v.deepstack.{}.norm": "model.visual.deepstack_merger_list.{}.norm",
                      "v.deepstack.{}.fc1": "model.visual.deepstack_merger_list.{}.linear_fc1",
                      "v.deepstack.{}.fc2": "model.visual.deepstack_merger_list.{}.linear_fc2"}, BOTH)},
        {"projector_type": "qwen3vl_merger", "use_gelu": True,
         "vision": {**QWEN_VISION, "is_deepstack_layers": [True, True, False]}},
        text_keys={"rope.freq_base": 1e6, "rope.dimension_sections": [4, 2, 2, 0], "n_deepstack_layers": 2},
        tiles=untiled(2, 14),
        outputs=lambda got: [int(got["image_grid_thw"][0].prod()) // 4],
        more=qwen_more,
    ),
    Family(
        "mistral3_images", "Mistral3ForConditionalGeneration", mistral3_config, mistral3_processor, "llama",
        llama("model.language_model.", 2, whole={"output.weight": "lm_head.weight"}),
        {**layers(1, {"v.patch_embd": "model.vision_tower.patch_conv", "v.pre_ln": "model.vision_tower.ln_pre",
                      "mm.input_norm": "model.multi_modal_projector.norm",
                      "mm.patch_merger": "model.multi_modal_projector.patch_merger.merging_layer",
                      "mm.1": "model.multi_modal_projector.linear_1", "mm.2": "model.multi_modal_projector.linear_2"}),
         **layers(3, {"v.blk.{}.ln1": "model.vision_tower.transformer.layers.{}.attention_norm",
                      "v.blk.{}.ln2": "model.vision_tower.transformer.layers.{}.ffn_norm",
                      **{f"v.blk.{{}}.attn_{m}": f"model.vision_tower.transformer.layers.{{}}.attention.{m}_proj" for m in "qkv"},
                      "v.blk.{}.attn_out": "model.vision_tower.transformer.layers.{}.attention.o_proj",
                      **{f"v.blk.{{}}.ffn_{m}": f"model.vision_tower.transformer.layers.{{}}.feed_forward.{m}_proj"
                         for m in ("gate", "up", "down")}})},
        {"projector_type": "pixtral", "use_silu": True,
         "vision": {**VISION_KEYS, "image_size": 96, "spatial_merge_size": 2, "attention.layer_norm_epsilon": 1e-5,
                    "image_mean": CLIP_MEAN, "image_std": CLIP_STD}},
        permuted=("blk.", "v.blk."),
        tiles=lambda got: [got["pixel_values"][0]],
        outputs=mistral3_rows,
        more=lambda got, tokens: {"pixel_values": got["pixel_values"], "image_sizes": got["image_sizes"]},
    ),
    Family(
        "gemma4_images", "Gemma4ForConditionalGeneration", gemma4_config, gemma4_processor, "gemma4",
        llama("model.language_model.", 2, layer={
            "blk.{}.ffn_norm": "model.language_model.layers.{}.pre_feedforward_layernorm",
            "blk.{}.post_attention_norm": "model.language_model.layers.{}.post_attention_layernorm",
            "blk.{}.post_ffw_norm": "model.language_model.layers.{}.post_feedforward_layernorm",
            "blk.{}.attn_q_norm": "model.language_model.layers.{}.self_attn.q_norm",
            "blk.{}.attn_k_norm": "model.language_model.layers.{}.self_attn.k_norm"}),
        {"v.patch_embd.weight": [("model.vision_tower.patch_embedder.input_proj.weight",
                                  lambda p: p.view(p.shape[0], 8, 8, 3).permute(0, 3, 1, 2))],
         "v.position_embd.weight": "model.vision_tower.patch_embedder.position_embedding_table",
         **layers(3, {"v.blk.{}.ln1": "model.vision_tower.encoder.layers.{}.input_layernorm",
                      "v.blk.{}.attn_post_norm": "model.vision_tower.encoder.layers.{}.post_attention_layernorm",
                      "v.blk.{}.ln2": "model.vision_tower.encoder.layers.{}.pre_feedforward_layernorm",
                      "v.blk.{}.ffn_post_norm": "model.vision_tower.encoder.layers.{}.post_feedforward_layernorm",
                      **{f"v.blk.{{}}.attn_{m}_norm": f"model.vision_tower.encoder.layers.{{}}.self_attn.{m}_norm" for m in "qk"},
                      **{f"v.blk.{{}}.attn_{m}": f"model.vision_tower.encoder.layers.{{}}.self_attn.{m}_proj.linear" for m in "qkv"},
                      "v.blk.{}.attn_out": "model.vision_tower.encoder.layers.{}.self_attn.o_proj.linear",
                      **{f"v.blk.{{}}.ffn_{m}": f"model.vision_tower.encoder.layers.{{}}.mlp.{m}_proj.linear"
                         for m in ("gate", "up", "down")}}),
         "v.std_bias": "model.vision_tower.std_bias", "v.std_scale": "model.vision_tower.std_scale",
         "mm.input_projection.weight": "model.embed_vision.embedding_projection.weight"},
        {"projector_type": "gemma4v", "vision": {
            **VISION_KEYS, "image_size": 224, "embedding_length": 64, "image_mean": [0.0] * 3, "image_std": [1.0] * 3,
            "image_max_pixels": 12 * 24 * 24}},
        text_keys={"attention.sliding_window": 10, "attention.sliding_window_pattern": [True, False], "rope.freq_base": 1e6,
                   "rope.freq_base_swa": 1e4, "attention.key_length_swa": 16, "attention.value_length_swa": 16,
                   "rope.dimension_count_swa": 16},
        gains={"post_attention_norm": 6.0, "post_ffw_norm": 6.0, "attn_q_norm": 0.6, "attn_k_norm": 0.6},
        tiles=gemma4_tiles,
        outputs=lambda got: [int(got["num_soft_tokens_per_image"][0])],
        more=lambda got, tokens: {"pixel_values": got["pixel_values"], "image_position_ids": got["image_position_ids"],
                                  "mm_token_type_ids": (tokens == IMAGE).int()},
    ),
    Family(
        "lfm2vl_images", "Lfm2VlForConditionalGeneration", lfm2_config, lfm2_processor, "lfm2",
        {"token_embd.weight": "model.language_model.embed_tokens.weight",
         "token_embd_norm.weight": "model.language_model.embedding_norm.weight",
         **layers(2, {"blk.{}.attn_norm": "model.language_model.layers.{}.operator_norm",
                      **{f"blk.{{}}.attn_{m}": f"model.language_model.layers.{{}}.self_attn.{m}_proj" for m in "qkv"},
                      "blk.{}.attn_output": "model.language_model.layers.{}.self_attn.out_proj",
                      "blk.{}.attn_q_norm": "model.language_model.layers.{}.self_attn.q_layernorm",
                      "blk.{}.attn_k_norm": "model.language_model.layers.{}.self_attn.k_layernorm",
                      "blk.{}.ffn_norm": "model.language_model.layers.{}.ffn_norm",
                      "blk.{}.ffn_gate": "model.language_model.layers.{}.feed_forward.w1",
                      "blk.{}.ffn_up": "model.language_model.layers.{}.feed_forward.w3",
                      "blk.{}.ffn_down": "model.language_model.layers.{}.feed_forward.w2"})},
        {**{name: value for name, value in siglip("model.vision_tower.", 3).items() if name != "v.patch_embd.weight"},
         "v.patch_embd.weight": [("model.vision_tower.embeddings.patch_embedding.weight",
                                  lambda p: p.view(p.shape[0], 16, 16, 3).permute(0, 3, 1, 2))],
         **layers(1, {"mm.input_norm": "model.multi_modal_projector.layer_norm",
                      "mm.1": "model.multi_modal_projector.linear_1",
                      "mm.2": "model.multi_modal_projector.linear_2"}, BOTH)},
        {"projector_type": "lfm2", "vision": {**VISION_KEYS, "image_size": 256, "patch_size": 16, "projector.scale_factor": 2,
                                              "image_min_pixels": 4 * 32 * 32, "image_max_pixels": 16 * 32 * 32}},
        text_keys={"rope.freq_base": 1e6, "shortconv.l_cache": 3, "attention.head_count_kv": [2, 2]},
        pictures=(WIDE, (61, 90), SMALL, (301, 157)),
        tiles=lfm2_tiles,
        outputs=lambda got: [h * w // 4 for h, w in got["spatial_shapes"].tolist()],
        more=lambda got, tokens: {key: got[key] for key in ("pixel_values", "spatial_shapes", "pixel_attention_mask")},
    ),
]


BY_NAME = {family.name: family for family in FAMILIES}
FAMILIES.append(replace(
    BY_NAME["qwen3vl_images"], name="qwen35_images", reference="Qwen3_5ForConditionalGeneration", config=qwen35_config,
    text_arch="qwen35",
    text_tensors={name.replace("ffn_norm", "post_attention_norm"): tensor
                  for name, tensor in BY_NAME["qwen3vl_images"].text_tensors.items()},
    image_tensors={name: tensor for name, tensor in BY_NAME["qwen3vl_images"].image_tensors.items() if "deepstack" not in name},
    keys={"projector_type": "qwen3vl_merger", "use_gelu": True, "vision": {**QWEN_VISION, "is_deepstack_layers": [False] * 3}},
    text_keys={"rope.freq_base": 1e6, "rope.dimension_sections": [4, 2, 2, 0], "full_attention_interval": 4,
               "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 64,
               "attention.recurrent_layers": [False, False]},
    minus_one=lambda name: name.endswith("norm.weight") and not name.startswith("v.")))
FAMILIES.append(replace(
    BY_NAME["gemma4_images"], name="gemma4_limits", config=lambda: gemma4_config(limits=True),
    image_tensors={**BY_NAME["gemma4_images"].image_tensors, **gemma4_limits(3)}))


def unpermute(data: np.ndarray, heads: int) -> np.ndarray:
    """Rows of Q or K as the file has them, for half-split RoPE."""
    rows = data.reshape(heads, data.shape[0] // heads // 2, 2, *data.shape[1:])
    return rows.swapaxes(1, 2).reshape(data.shape)


def fill(spec: Family, model, seed: int) -> tuple[dict, dict]:
    """The tensors of both files, with amplitude and offset, given to the model as well."""
    buffers = {name: b for name, b in model.named_buffers() if name.endswith(("std_bias", "std_scale", *LIMITS))}
    parameters = {**dict(model.named_parameters()), **buffers}
    left, files = set(parameters), []
    for tensors in (spec.text_tensors, spec.image_tensors):
        file = {}
        for ours, theirs in tensors.items():
            theirs = [theirs] if isinstance(theirs, str) else theirs
            whole = lambda p: p
            views = [(name, whole) if isinstance(name, str) else name for name in theirs]
            to = [view(parameters[name].data) for name, view in views]
            shape = (sum(t.shape[0] for t in to), *to[0].shape[1:])
            kind = ours.removesuffix(".weight").removesuffix(".bias").rsplit(".", 1)[-1]
            if kind in LIMITS:
                spread = (np.float32(0.0), np.float32(LIMITS[kind]))
            elif kind in ("std_bias", "std_scale"):
                spread = (np.float32(0.5), np.float32(1.0 if kind == "std_scale" else 0.0))
            elif kind in ("ln1", "ln2", "post_ln", "pre_ln", "norm", "input_norm"):
                spread = (0.5, 1.0) if ours.endswith(".weight") else (0.2, 0.0)
                spread = tuple(np.float32(x) for x in spread)
            elif ours.startswith("v.patch_embd.weight"):
                spread = (np.float32((3 / np.prod(shape[1:])) ** 0.5), np.float32(0))
            else:
                spread = weights.spread(ours, shape, {"position_embd": 4.0, "bias": 0.2, "attn_out": 3.0, **spec.gains})
            data = weights.values(seed, ours, shape, *spread)
            file[ours] = (data, *spread)
            for where in spec.permuted:
                if kind in ("attn_q", "attn_k") and ours.startswith(where):
                    heads = HEADS if where != "blk." or kind == "attn_q" else KV_HEADS
                    data = unpermute(data, heads)
            first, minus = 0, np.float32(1.0 if spec.minus_one(ours) else 0.0)
            for (name, _), t in zip(views, to):
                own = data[first:first + t.shape[0]]
                first += t.shape[0]
                t.copy_(torch.from_numpy(np.ascontiguousarray(own - minus)))
                left.discard(name)
        files.append(file)
    if left:
        raise SystemExit(f"{spec.name}: nobody fills {sorted(left)}")
    return tuple(files)


def add(w, key: str, value) -> None:
    kind = {str: w.add_string, bool: w.add_bool, int: w.add_uint32, float: w.add_float32, list: w.add_array}
    kind[type(value)](key, value)


def write(name: str, arch: str, keys: dict, file: dict, path: Path) -> bytes:
    w = gguf.GGUFWriter(str(path), arch)
    w.add_name(f"golden {name}")
    w.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    for key, value in keys.items():
        add(w, key, value)
    w.add_uint64(weights.SEED, 1)
    w.add_array(weights.AMPLITUDE, [float(f[1]) for f in file.values()])
    w.add_array(weights.OFFSET, [float(f[2]) for f in file.values()])
    for tensor, (data, *_) in file.items():
        w.add_tensor(tensor, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path.read_bytes()[: gguf.GGUFReader(str(path)).data_offset]


def text_keys(spec: Family) -> dict:
    own = {"context_length": CONTEXT, "embedding_length": HIDDEN, "block_count": 2, "feed_forward_length": FFN,
           "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": 16,
           "attention.value_length": 16, "rope.dimension_count": 16, "rope.freq_base": 10000.0,
           "attention.layer_norm_rms_epsilon": 1e-5, **spec.text_keys}
    keys = {f"{spec.text_arch}.{key}": value for key, value in own.items() if value is not None}
    return {**keys, "tokenizer.ggml.model": "no_vocab"}


def image_keys(spec: Family) -> dict:
    keys = {f"clip.vision.{key}": value for key, value in spec.keys["vision"].items()}
    return {"clip.has_vision_encoder": True, "clip.projector_type": spec.keys["projector_type"],
            **{f"clip.{key}": value for key, value in spec.keys.items() if key not in ("vision", "projector_type")},
            **keys}


@torch.no_grad()
def make(spec: Family) -> None:
    config = spec.config()
    config._attn_implementation = "eager"
    model = getattr(transformers, spec.reference)._from_config(config, attn_implementation="eager").float().eval()
    text, image = fill(spec, model, 1)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.gguf"
        for name, arch, keys, file in ((spec.name, spec.text_arch, text_keys(spec), text),
                                       (spec.name + "_mmproj", "clip", image_keys(spec), image)):
            folder = OUT / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "header.gguf").write_bytes(write(name, arch, keys, file, path))
    processor, rng = spec.processor(), np.random.default_rng(20240229)
    pictures, prompts = [], []
    for size in spec.pictures:
        got = processor(picture(size), return_tensors="pt")
        tiles = spec.tiles(got)
        values = [{"width": tile.shape[-1], "height": tile.shape[-2],
                   "values": [float(f"{v:.6f}") for v in tile.flatten()[::EVERY].tolist()]} for tile in tiles]
        pictures.append({"width": size[0], "height": size[1], "tiles": values})
        # Text, the picture's outputs with a token between two runs, text.
        tokens = rng.integers(0, VOCAB - 1, 5).tolist()
        for at, count in enumerate(spec.outputs(got)):
            tokens += ([int(rng.integers(0, VOCAB - 1))] if at else []) + [IMAGE] * count
        tokens += rng.integers(0, VOCAB - 1, 9).tolist()
        ids = torch.tensor([tokens])
        more = spec.more(got, ids)
        logits = model(input_ids=ids, **more).logits[0].numpy()
        twice = {name: v.double() if v.is_floating_point() else v for name, v in more.items()}
        exact = model.double()(input_ids=ids, **twice).logits[0].numpy()
        model.float()
        error = float(np.abs(logits - exact).max() / np.abs(exact).max())
        if error > MAX_ERROR:
            raise SystemExit(f"{spec.name}: float32 and float64 disagree (error {error:.2e})")
        kept = sorted({len(tokens) - 1, len(tokens) - 6, len(tokens) - 9, *[
            at for at, token in enumerate(tokens) if token == IMAGE][::7]})
        rows = [[float(str(v)) for v in logits[at]] for at in kept]
        prompts.append({"picture": len(pictures) - 1, "positions": kept, "logits": rows,
                        "tokens": [-1 if token == IMAGE else token for token in tokens]})
        print(f"{spec.name}: {size}, {len(tiles)} tiles, {len(tokens)} tokens, float32 error {error:.1e}", flush=True)
    write_json = lambda items: ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)
    (OUT / spec.name / "expected.json").write_text(
        f'{{"every":{EVERY},"pictures":[\n{write_json(pictures)}\n],"prompts":[\n{write_json(prompts)}\n]}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    names = parser.parse_args().names
    unknown = set(names) - {s.name for s in FAMILIES}
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for spec in FAMILIES:
        if not names or spec.name in names:
            make(spec)


if __name__ == "__main__":
    main()
