"""What tests share: the demo model, loaded once, and the repository's own files."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from arclight import LLM

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo/arclight-demo.gguf"
# The demo model answers greetings.
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    with LLM(DEMO, max_num_seqs=16) as llm:
        yield llm


def arclight(*args: str | Path) -> str:
    """What the command line of the wheel prints."""
    done = subprocess.run([Path(sys.executable).parent / "arclight", *args], check=True, capture_output=True, text=True)
    return done.stdout


def safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors of f32."""
    head, data = {}, b""
    for key, value in tensors.items():
        end = len(data) + value.nbytes
        head[key] = {"dtype": "F32", "shape": value.shape, "data_offsets": [len(data), end]}
        data += value.tobytes()
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def peft(folder: Path, seed: int) -> Path:
    """A folder of PEFT with an adapter for a matrix of the demo model."""
    rng = np.random.default_rng(seed)
    name = "base_model.model.model.layers.0.self_attn.v_proj"
    folder.mkdir()
    tensors = {
        f"{name}.lora_A.weight": rng.standard_normal((4, 256), dtype=np.float32),
        f"{name}.lora_B.weight": rng.standard_normal((128, 4), dtype=np.float32),
    }
    safetensors(folder / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["v_proj"], "base_model_name_or_path": "x"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def ranker(folder: Path) -> Path:
    """A folder of the Hub with a small BERT of random weights that ranks."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "sat", "."]
    rng = np.random.default_rng(1)
    hidden, wide = 32, 64
    tensors = {}

    def add(name: str, *shape: int) -> None:
        tensors[name] = rng.standard_normal(shape, dtype=np.float32) / 2

    def both(name: str, *shape: int) -> None:
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    add("bert.embeddings.word_embeddings.weight", len(words), hidden)
    add("bert.embeddings.position_embeddings.weight", 64, hidden)
    add("bert.embeddings.token_type_embeddings.weight", 2, hidden)
    both("bert.embeddings.LayerNorm", hidden)
    layer = "bert.encoder.layer.0"
    for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        both(f"{layer}.{name}", hidden, hidden)
    both(f"{layer}.attention.output.LayerNorm", hidden)
    both(f"{layer}.intermediate.dense", wide, hidden)
    both(f"{layer}.output.dense", hidden, wide)
    both(f"{layer}.output.LayerNorm", hidden)
    both("bert.pooler.dense", hidden, hidden)
    both("classifier", 1, hidden)
    folder.mkdir()
    safetensors(folder / "model.safetensors", tensors)
    config = {
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": hidden,
        "intermediate_size": wide, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": len(words),
        "type_vocab_size": 2, "max_position_embeddings": 64, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    special = {"[CLS]": 2, "[SEP]": 3}
    ends = [{"SpecialToken": {"id": text, "type_id": 0}} for text in special]
    tokenizer = {
        "added_tokens": [
            {"id": id, "content": text, "special": True, "normalized": False} for id, text in enumerate(words[:5])
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]],
            "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]} for text, id in special.items()},
        },
        "decoder": {"type": "WordPiece"},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "vocab": {text: id for id, text in enumerate(words)},
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
