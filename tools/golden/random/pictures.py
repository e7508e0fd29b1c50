"""Families that read images, with the limits of their processors. A new one is one entry of `FAMILIES`.

A picture is sent to the server between two words. The tokens of the prompt are counted, and log-probabilities of the token
that follows are compared with those that `transformers` has for what the folder's processor makes of the picture."""

import base64
import importlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

import case as cases
import program
import reference
import vocabulary
from case import DIFFERS, PANIC, REFUSED, RIGHT, Outcome
from draw import STATED_NOT, either, nested, seldom, usual
from fill import fill
from program import Panicked, Refused

MOST = 1e-4  # of log-probabilities, as those of texts
PICTURES = ((150, 97), (61, 130), (23, 19), (640, 480), (64, 48))
MARKS = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<image>",
         "<fake_token_around_image>", "<global-img>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
         *(f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)),
         *(f"<|img_row_{r}_col_{c}|>" for r in range(1, 5) for c in range(1, 5))]
SPECIAL = [*vocabulary.SPECIAL, *MARKS]
VOCAB = 384
BEFORE, AFTER = "abc", "dhg"  # words around the picture
TEXT = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, max_position_embeddings=4096, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=None)
SIGLIP = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, patch_size=8, image_size=32)


@dataclass(frozen=True)
class Seeing:
    name: str
    reference: str  # class prefix in transformers
    processor: str  # class of the image processor
    text: dict  # the configuration of the language model, of the encoder, and of the whole
    vision: dict
    whole: dict
    fields: dict  # of the processor, below `processor`, and of the encoder, below `vision`
    mark: str  # for the picture in a text
    expands: Callable  # what stands for the picture, by the prefix's processor with these attributes
    around: tuple[str, str] = ("", "")
    more: Callable = lambda got, ids: {}  # inputs besides
    encoder: str = "image"  # told from decoders
    vocabulary: str = "images"
    part: str = ""


def mark_id(mark: str) -> int:
    return SPECIAL.index(mark)


LOOKS = {"processor.image_mean": usual([0.5, 0.5, 0.5], [0.48, 0.46, 0.41]), "processor.image_std": usual([0.5, 0.5, 0.5], [0.27, 0.26, 0.28])}


def qwen(patch: int = 14, **more) -> dict:
    area = (2 * patch) ** 2
    old = lambda d: d["_form"] == "old"
    return {
        "_form": usual("new", "old"), "_least": usual(4, 16, 64), "_most": usual(1280, 64, 256, 100),
        "processor.size.shortest_edge": lambda d: STATED_NOT if old(d) else d["_least"] * area,
        "processor.size.longest_edge": lambda d: STATED_NOT if old(d) else max(d["_most"], d["_least"]) * area,
        "processor.min_pixels": lambda d: d["_least"] * area if old(d) else STATED_NOT,
        "processor.max_pixels": lambda d: max(d["_most"], d["_least"]) * area if old(d) else STATED_NOT,
        "processor.patch_size": patch, "processor.merge_size": 2, "processor.temporal_patch_size": 2, **LOOKS, **more}


QWEN_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
QWEN_TEXT = {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "rope_parameters": QWEN_ROPE}
QWEN_WHOLE = dict(image_token_id=mark_id("<|image_pad|>"), video_token_id=mark_id("<|video_pad|>"),
                  vision_start_token_id=mark_id("<|vision_start|>"), vision_end_token_id=mark_id("<|vision_end|>"), tie_word_embeddings=False)
QWEN = dict(processor="Qwen2VLImageProcessor", whole=QWEN_WHOLE, mark="<|image_pad|>", around=("<|vision_start|>", "<|vision_end|>"),
            expands=lambda p: dict(image_token="<|image_pad|>"),
            more=lambda got, ids: {"mm_token_type_ids": (ids == mark_id("<|image_pad|>")).int()})

FAMILIES = (
    Seeing("qwen2vl", "Qwen2VL", text=QWEN_TEXT, vision=dict(depth=3, embed_dim=48, hidden_size=64, mlp_ratio=2, num_heads=4, patch_size=14),
           fields={**qwen(), "vision.hidden_act": seldom("quick_gelu", "gelu")}, **QWEN),
    Seeing("qwen25vl", "Qwen2_5_VL", text=QWEN_TEXT, vision=dict(
        depth=4, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, out_hidden_size=64),
        fields={**qwen(), "vision.window_size": usual(112, 56), "vision.fullatt_block_indexes": usual([1, 3], [3], [0]),
                "vision.hidden_act": seldom("silu", "gelu")}, **QWEN),
    Seeing("qwen3vl", "Qwen3VL", text={**TEXT, "rope_parameters": {**QWEN_ROPE, "mrope_section": [4, 2, 2], "mrope_interleaved": True}}, vision=dict(
        depth=3, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=14, out_hidden_size=64, num_position_embeddings=36),
        fields={**qwen(), "vision.deepstack_visual_indexes": usual([0, 1], [1, 2]), "vision.hidden_act": seldom("gelu_pytorch_tanh", "silu")}, **QWEN),
    Seeing("smolvlm", "SmolVLM", "SmolVLMImageProcessor", text=dict(TEXT, model_type="llama"), vision=SIGLIP,
           whole=dict(scale_factor=2, image_token_id=mark_id("<image>"), tie_word_embeddings=False),
           fields={"processor.size.longest_edge": usual(96, 64, 32), "processor.max_image_size.longest_edge": 32,
                   "processor.do_image_splitting": usual(True, False), "processor.return_row_col_info": True,
                   "vision.hidden_act": seldom("gelu_pytorch_tanh", "gelu"), **LOOKS},
           mark="<image>", expands=lambda p: dict(image_token="<image>", fake_image_token="<fake_token_around_image>",
                                                  global_image_token="<global-img>", image_seq_len=4),
           more=lambda got, ids: {}),
    Seeing("mistral3", "Mistral3", "PixtralImageProcessor", text=dict(TEXT, model_type="mistral", sliding_window=None),
           vision=dict(model_type="pixtral", hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, head_dim=12,
                       image_size=96, patch_size=8),
           whole=dict(spatial_merge_size=2, image_token_index=mark_id("[IMG]"), tie_word_embeddings=False),
           fields={"processor.size.longest_edge": usual(96, 64, 48), "processor.patch_size.height": 16, "processor.patch_size.width": 16,
                   "vision.hidden_act": seldom("silu", "gelu"), **LOOKS},
           mark="[IMG]", expands=lambda p: dict(image_token="[IMG]", image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]",
                                                patch_size=8, spatial_merge_size=2)),
    Seeing("lfm2vl", "Lfm2Vl", "Lfm2VlImageProcessor", text=dict(
        TEXT, model_type="lfm2", norm_eps=1e-5, layer_types=["conv", "full_attention"], conv_L_cache=3, block_auto_adjust_ff_dim=False,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
        vision=dict(model_type="siglip2_vision_model", vision_use_head=False, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                    num_attention_heads=4, patch_size=16, num_patches=16),
        whole=dict(projector_hidden_size=80, downsample_factor=2, image_token_id=mark_id("<image>"), tie_word_embeddings=True),
        fields={"processor.min_image_tokens": usual(64, 32, 16), "processor.max_image_tokens": usual(256, 128, 64), "processor.tile_size": 512,
                "processor.encoder_patch_size": 16, "processor.downsample_factor": 2, "processor.do_image_splitting": usual(True, False),
                "processor.return_row_col_info": True, "vision.hidden_act": seldom("gelu_pytorch_tanh", "gelu"), **LOOKS},
        mark="<image>", expands=lambda p: dict(
            image_token="<image>", image_start_token="<|image_start|>", image_end_token="<|image_end|>", image_thumbnail_token="<|img_thumbnail|>")),
)


def picture(size: tuple[int, int]) -> Image.Image:
    """Slopes and edges."""
    width, height = size
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return Image.fromarray(((3 * x + 2 * y * (c + 1) + x * y // 16 + ((x // 9 + y // 7 + c) % 3) * 40) % 256).astype(np.uint8))


def built(family: Seeing, values: dict, seed: int, folder: Path):
    """The model, in its folder with its processor."""
    config = getattr(transformers, family.reference + "Config")(
        text_config=family.text, vision_config={**family.vision, **values.get("vision", {})}, **family.whole)
    config._attn_implementation = "eager"
    with reference.quiet():
        model = getattr(transformers, family.reference + "ForConditionalGeneration")(config).float().eval()
        fill(model, seed, 1.0)
        model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    vocabulary.byte_level(folder, SPECIAL)
    mark = family.mark.join(family.around)
    vocabulary.told(folder, chat_template="{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}"
                    f"{{{{ part.text }}}}{{% else %}}{mark}{{% endif %}}{{% endfor %}}{{% endfor %}}")
    vocabulary.write(folder, "preprocessor_config.json", {"image_processor_type": family.processor, **values["processor"]})
    return model


def prompt(family: Seeing, folder: Path, image: Image.Image) -> tuple[list[int], dict]:
    """What the folder's own processor makes of the words and the picture."""
    maker = getattr(transformers, family.processor).from_pretrained(folder)
    got = maker(image, return_tensors="pt")
    module = importlib.import_module(f"transformers.models.{maker.__class__.__module__.split('.')[2]}")
    name = family.reference + "Processor" if hasattr(transformers, family.reference + "Processor") else "PixtralProcessor"
    whole = object.__new__(getattr(transformers, name, None) or getattr(module, name))
    vars(whole).update(family.expands(maker), image_processor=maker)
    kept = dict(got)
    text = whole.replace_image_token(kept, 0, use_image_special_tokens=True) if family.name == "lfm2vl" else whole.replace_image_token(kept, 0)
    before, after = family.around
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer.encode(f"{BEFORE}{before}{text}{after}{AFTER}").ids, kept


@torch.no_grad()
def expected(family: Seeing, model, ids: list[int], got: dict) -> np.ndarray:
    tokens = torch.tensor([ids])
    inputs = {key: value for key, value in got.items() if isinstance(value, torch.Tensor)}
    out = model(input_ids=tokens, **inputs, **family.more(got, tokens)).logits[0, -1]
    return torch.log_softmax(out.double(), -1).numpy()


def asked(image: Image.Image) -> dict:
    png = io.BytesIO()
    image.save(png, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    content = [{"type": "text", "text": BEFORE}, {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": AFTER}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20,
            "ignore_eos": True}


def compare(family: Seeing, model, folder: Path, address: str, texts: list[str], size: tuple[int, int]) -> tuple[str, float]:
    """What differs of a picture, if anything, and how far log-probabilities are off."""
    image = picture(size)
    ids, got = prompt(family, folder, image)
    row = expected(family, model, ids, got)
    answer = program.ask(address, "/v1/chat/completions", asked(image))
    count = answer["usage"]["prompt_tokens"]
    if count != len(ids):
        return f"{size[0]}x{size[1]}: {count} prompt tokens instead of {len(ids)}", float("inf")
    known = {text: i for i, text in enumerate(texts) if text}
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    pairs = [(known[entry["token"]], entry["logprob"]) for entry in top if entry["token"] in known]
    off = max((abs(row[i] - value) for i, value in pairs), default=float("inf"))
    return (f"{size[0]}x{size[1]}" if off > MOST else ""), off


def run(tools: cases.Tools, family: Seeing, drawn: dict, seed: int) -> Outcome:
    folder = tools.work / f"{family.name}-{seed}"
    values = nested(drawn)
    texts = [*SPECIAL, *map(vocabulary.shown, range(256)), *vocabulary.PAIRS]
    texts = [text if texts.count(text) == 1 else "" for text in texts]
    model = built(family, values, seed, folder)
    out, most, found = folder.with_suffix(".gguf"), 0.0, []
    try:
        encoder = folder.parent / f"mmproj-{family.name}-{seed}.gguf"
        program.convert(tools.program, folder, out, encoder)
        with program.serving(tools.program, out, "--mmproj", str(encoder)) as address:
            for size in PICTURES:
                differs, off = compare(family, model, folder, address, texts, size)
                most = max(most, off)
                found += [differs] if differs else []
    except Refused as fault:
        return Outcome(REFUSED, str(fault))
    except Panicked as fault:
        return Outcome(PANIC, str(fault))
    return Outcome(DIFFERS if found else RIGHT, "; ".join(found), most)
