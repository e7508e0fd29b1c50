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
from dataclasses import dataclass, field
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
    permuted: bool = False  # rows of Q and K are for interleaved RoPE
    minus_one: Callable = lambda name: False  # norms to whose weights the model adds one
    reshape: dict = field(default_factory=dict)  # tensor of the encoder's file -> from its shape to the parameter's
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


FAMILIES = [
    Family(
        "smolvlm", "SmolVLMForConditionalGeneration", smolvlm_config, smolvlm_processor, "llama",
        llama("model.text_model.", 2, whole={"output.weight": "lm_head.weight"}),
        {**siglip("model.vision_model.", 3),
         "mm.model.fc.weight": "model.connector.modality_projection.proj.weight"},
        {"projector_type": "idefics3", "vision": {**VISION_KEYS, "projector.scale_factor": 2,
                                                  "preproc_image_size": 96}},
        permuted=True,
        tiles=lambda got: [tile for tile in got["pixel_values"][0]],
        outputs=lambda got: [4] * got["pixel_values"].shape[1],
        more=lambda got, tokens: {"pixel_values": got["pixel_values"],
                                  "pixel_attention_mask": got["pixel_attention_mask"]},
    ),
]


def unpermute(data: np.ndarray, heads: int) -> np.ndarray:
    """Rows of Q or K as the file has them, for half-split RoPE."""
    rows = data.reshape(heads, data.shape[0] // heads // 2, 2, *data.shape[1:])
    return rows.swapaxes(1, 2).reshape(data.shape)


def fill(spec: Family, model, seed: int) -> tuple[dict, dict]:
    """The tensors of both files, with amplitude and offset, given to the model as well."""
    parameters = dict(model.named_parameters())
    left, files = set(parameters), []
    for tensors in (spec.text_tensors, spec.image_tensors):
        file = {}
        for ours, theirs in tensors.items():
            theirs = [theirs] if isinstance(theirs, str) else theirs
            shapes = [tuple(parameters[name].shape) for name in theirs]
            change = spec.reshape.get(ours)
            shape = change[0](shapes[0]) if change else (sum(s[0] for s in shapes), *shapes[0][1:])
            kind = ours.removesuffix(".weight").rsplit(".", 1)[-1]
            if kind in ("ln1", "ln2", "post_ln", "pre_ln", "norm"):
                spread = (np.float32(0.5), np.float32(1.0)) if ours.endswith(".weight") else (np.float32(0.2), np.float32(0))
            elif kind in ("patch_embd", "1"):
                spread = (np.float32((3 / np.prod(shape[1:])) ** 0.5), np.float32(0))
            else:
                spread = weights.spread(ours, shape, {"position_embd": 4.0, "bias": 0.2, "attn_out": 3.0})
            data = weights.values(seed, ours, shape, *spread)
            file[ours] = (data, *spread)
            if spec.permuted and kind in ("attn_q", "attn_k") and ours.startswith("blk."):
                data = unpermute(data, HEADS if kind == "attn_q" else KV_HEADS)
            data = change[1](data) if change else data
            first = 0
            for name, s in zip(theirs, shapes):
                own = data if change else data[first:first + s[0]]
                first += s[0]
                minus = np.float32(1.0 if spec.minus_one(ours) else 0.0)
                parameters[name].data.copy_(torch.from_numpy(np.ascontiguousarray(own - minus)).reshape(s))
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
        twice = {name: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for name, v in more.items()}
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
