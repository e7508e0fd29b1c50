#!/usr/bin/env python3
"""A hybrid sibling of the demo model: Qwen3.5-shaped, three layers with gated delta nets and one with attention.

    python hybrid.py --minutes 40     # trains, then writes arclight-demo-hybrid-f32.gguf to --work
    python hybrid.py --export         # only writes the file from the checkpoint

The model is that of `transformers`; text, vocabulary and training are those of make.py.
"""

import argparse
import math
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import nn
from transformers import Qwen3_5TextConfig, Qwen3_5ForCausalLM

import corpus
import export
import vocab as vocabulary
from make import HELDOUT_CHARS, heldout_loss, train
from model import Config

HEADS, HEAD = 4, 64  # of the delta nets: as many of values as of keys, so no order of heads is to be changed


class Hybrid(nn.Module):
    """[batch, tokens] ids to [batch, tokens, vocab] logits"""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.inner = Qwen3_5ForCausalLM(Qwen3_5TextConfig(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.ffn, num_hidden_layers=c.layers,
            num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim,
            max_position_embeddings=c.context, rms_norm_eps=c.eps, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": c.theta, "partial_rotary_factor": 0.5,
                             "mrope_section": [8, 4, 4]},
            layer_types=["linear_attention"] * (c.layers - 1) + ["full_attention"],
            linear_num_value_heads=HEADS, linear_num_key_heads=HEADS, linear_key_head_dim=HEAD,
            linear_value_head_dim=HEAD, linear_conv_kernel_dim=4,
            bos_token_id=None, eos_token_id=None, pad_token_id=None))

    def forward(self, ids):
        return self.inner(ids, use_cache=False).logits


def tensors(model: Hybrid):
    """Names and values as llama.cpp's converter writes them."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN35, model.c.layers)
    for name, p in model.inner.named_parameters():
        data = p.detach().float().numpy()
        path = name.removesuffix(".weight")
        if path.endswith("A_log"):
            yield names.get_name(path), -np.exp(data)
        elif path.endswith("dt_bias"):
            yield names.get_name(path.replace("dt_bias", "dt_proj")) + ".bias", data
        else:
            if path.endswith("conv1d"):
                data = data[:, 0]
            elif path.endswith("norm") and not path.endswith("linear_attn.norm"):
                data = data + 1  # which the model adds
            yield names.get_name(path) + ".weight", data


def write(model: Hybrid, vocab, path: Path) -> Path:
    c, w = model.c, gguf.GGUFWriter(str(path), "qwen35")
    export.metadata(w, model, vocab, quantised=False, rotary=c.head_dim // 2)
    for key, value in {"conv_kernel": 4, "state_size": HEAD, "group_count": HEADS,
                       "time_step_rank": HEADS, "inner_size": HEADS * HEAD}.items():
        w.add_uint32(f"qwen35.ssm.{key}", value)
    w.add_uint32("qwen35.full_attention_interval", c.layers)
    w.add_array("qwen35.rope.dimension_sections", [8, 4, 4, 0])
    for name, data in tensors(model):
        w.add_tensor(name, np.ascontiguousarray(data, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4_000_000, help="training tokens")
    parser.add_argument("--minutes", type=float, default=1e9, help="training time at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--export", action="store_true", help="skip training")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)
    vocab = vocabulary.load(args.work / "tokenizer.json")
    heldout = torch.tensor(vocab.encode(corpus.heldout(HELDOUT_CHARS)))
    model = Hybrid(Config())
    checkpoint = args.work / "checkpoint-hybrid.pt"
    if not args.export:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
        tokens = vocabulary.stream(vocab, corpus.TRAIN_SEED, args.tokens)
        train(model, tokens, heldout, args.tokens, args.minutes, checkpoint)
    model.load_state_dict(torch.load(checkpoint))
    print(f"perplexity of heldout.txt: {math.exp(heldout_loss(model, heldout)):.3f}")
    path = write(model, vocab, args.work / "arclight-demo-hybrid-f32.gguf")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
