#!/usr/bin/env python3
"""Golden logits with adapters, for the engine's tests.

Gives some of the golden models adapters of PEFT with random weights and stores the
folders as PEFT writes them, beside what the models then answer (float32, eager
attention). The models are those of `../../tests/golden`, by their own seeds, so
`make.py` comes first.

    python adapters.py              # all into ../../tests/golden/adapters
    python adapters.py qwen3_untied # one of them
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import peft
import torch

import weights
from export import tensors
from make import OUT, build, logits_of, prompts
from specs import SPECS

SEED = 7
LENGTHS = (7, 64)  # of the prompts; of the first, logits of all positions are kept
MIN_CHANGE = 0.05  # of the logits by the adapter, relative to the largest


@dataclass(frozen=True)
class Adapter:
    model: str
    modules: list | str  # `target_modules`
    rank: int
    alpha: float
    more: dict = field(default_factory=dict)  # of the configuration


ADAPTERS = (
    # all matrices and the head, other ranks and alphas for some
    Adapter("qwen3_untied", "all-linear", 4, 8.0,
            dict(rank_pattern={"down_proj": 6, "layers.1.self_attn.q_proj": 3},
                 alpha_pattern={"self_attn.o_proj": 5.0})),
    # rows of queries and keys in another order
    Adapter("llama3_tied", ["q_proj", "k_proj", "v_proj"], 5, 5.0, dict(use_rslora=True)),
    # several matrices in one tensor
    Adapter("phi3_short", ["qkv_proj", "gate_up_proj", "o_proj", "down_proj"], 4, 6.0),
    # Q, K and V of a tensor by heads, in another order; a function behind a product
    Adapter("gptneox", ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"], 3, 6.0),
    # rows that are columns
    Adapter("gpt2", ["c_attn", "c_proj", "c_fc"], 4, 4.0, dict(fan_in_fan_out=True)),
    # norms of sums, and over what all heads give
    Adapter("olmo2", ["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"], 4, 8.0),
    # heads whose rows and columns take turns
    Adapter("qwen35", ["in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "o_proj", "gate_proj"], 4, 8.0),
)


def make(adapter: Adapter) -> None:
    spec = next(spec for spec in SPECS if spec.name == adapter.model)
    with tempfile.TemporaryDirectory() as scratch:
        # A header as a file that a reader takes: with room for data.
        whole = Path(scratch) / "model.gguf"
        whole.write_bytes((OUT / spec.name / "header.gguf").read_bytes() + bytes(4 << 20))
        seed = int(gguf.GGUFReader(str(whole)).get_field(weights.SEED).contents())
    model = build(spec)
    tensors(spec, model, seed, None)
    ids = [prompt for prompt in prompts() if len(prompt) in LENGTHS]
    before = [logits_of(model, tokens) for tokens in ids]
    more = {"modules_to_save": None, **adapter.more}
    config = peft.LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, target_modules=adapter.modules,
                             lora_dropout=0.0, bias="none", **more)
    model = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_A" in name:
                p.copy_(torch.from_numpy(weights.values(SEED, name, tuple(p.shape), p.shape[1] ** -0.5, 0.0)))
            elif "lora_B" in name:
                p.copy_(torch.from_numpy(weights.values(SEED, name, tuple(p.shape), 0.3, 0.0)))
    folder = OUT / "adapters" / adapter.model
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    written = json.loads(path.read_text())
    written["target_modules"] = sorted(written["target_modules"])  # a set
    path.write_text(json.dumps(written, indent=2) + "\n")
    entries, change = [], []
    for tokens, old in zip(ids, before):
        got = logits_of(model, tokens)
        change.append(float(np.abs(got - old).max() / np.abs(got).max()))
        rows = got if len(tokens) == LENGTHS[0] else got[-1:]
        entries.append({"tokens": tokens, "logits": [[float(str(v)) for v in row] for row in rows]})
    if min(change) < MIN_CHANGE:
        raise SystemExit(f"{adapter.model}: the adapter changes little: {change}")
    body = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    (folder / "expected.json").write_text(f'{{"prompts":[\n{body}\n]}}\n')
    print(f"{adapter.model}: logits change by {min(change):.2f}..{max(change):.2f} of the largest", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models whose adapters to make (default: all)")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    for adapter in ADAPTERS:
        if not names or adapter.model in names:
            make(adapter)


if __name__ == "__main__":
    main()
