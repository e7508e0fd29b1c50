"""A folder as the Hugging Face Hub has them: a small Llama in F32 with a vocabulary of bytes."""

import json
import random
import struct
from pathlib import Path

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer():
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    letters = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
    vocab = {text: at for at, text in enumerate(letters + ["th", "he", "in", "er"])}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {
        "added_tokens": [{"id": 260, "content": "<|end|>", "special": True, "normalized": False}],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, levels]},
        "decoder": {**levels, "add_prefix_space": True, "use_regex": True},
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": ["t h", "h e", "i n", "e r"]},
    }


def write(folder, hidden=256, layers=8, seed=1):
    """Makes the folder; 8 layers of 256 are 27 MB."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    wide, vocab = 2 * hidden, 264
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": vocab,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 260,
    }
    shapes = {"model.embed_tokens": [vocab, hidden], "lm_head": [vocab, hidden], "model.norm": [hidden]}
    for layer in range(layers):
        of = f"model.layers.{layer}."
        shapes |= {of + f"self_attn.{name}_proj": [hidden, hidden] for name in "qo"}
        shapes |= {of + f"self_attn.{name}_proj": [hidden // 2, hidden] for name in "kv"}
        shapes |= {of + f"mlp.{name}_proj": [wide, hidden] for name in ("gate", "up")}
        shapes |= {of + "mlp.down_proj": [hidden, wide]}
        shapes |= {of + name: [hidden] for name in ("input_layernorm", "post_attention_layernorm")}
    numbers = random.Random(seed)
    some = struct.pack("<4096f", *(numbers.uniform(-0.1, 0.1) for _ in range(4096)))
    head, data = {}, bytearray()
    for name, shape in shapes.items():
        size, start = 4, len(data)
        for dim in shape:
            size *= dim
        # Another place of the same numbers for each tensor.
        begin = 4 * numbers.randrange(4096)
        turned = some[begin:] + some[:begin]
        data += (turned * (size // len(turned) + 1))[:size]
        head[f"{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(head).encode()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
