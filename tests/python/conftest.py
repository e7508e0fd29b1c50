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


def peft(folder: Path, seed: int) -> Path:
    """A folder of PEFT with an adapter for a matrix of the demo model."""
    rng = np.random.default_rng(seed)
    name = "base_model.model.model.layers.0.self_attn.v_proj"
    tensors = {
        f"{name}.lora_A.weight": rng.standard_normal((4, 256), dtype=np.float32),
        f"{name}.lora_B.weight": rng.standard_normal((128, 4), dtype=np.float32),
    }
    head, data = {}, b""
    for key, value in tensors.items():
        end = len(data) + value.nbytes
        head[key] = {"dtype": "F32", "shape": value.shape, "data_offsets": [len(data), end]}
        data += value.tobytes()
    text = json.dumps(head).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["v_proj"], "base_model_name_or_path": "x"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
