"""An importance matrix that `arclight imatrix` has written, read with llama.cpp's Python package: its keys and shapes are
those that `llama-quantize` asks for, and its sums those of the inputs that the layers of `transformers` get."""

from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
import transformers

import checkpoints
import vocabularies

MODEL, CHUNK, CHUNKS = "qwen3_untied", 64, 4
INPUTS = {"self_attn.q_proj": ("attn_q", "attn_k", "attn_v"), "self_attn.o_proj": ("attn_output",),
          "mlp.gate_proj": ("ffn_gate", "ffn_up"), "mlp.down_proj": ("ffn_down",)}
# Sums of some hundred squares in single precision, of inputs that differ by 1e-6.
TOLERANCE = 1e-4


def reference(folder: Path, ids: list[list[int]]) -> dict[str, np.ndarray]:
    """Sums of squares of the inputs of each matrix, by column."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    sums = {}

    def add(names, x):
        square = x.double().square().sum((0, 1)).numpy()
        for name in names:
            sums[name] = sums.get(name, 0) + square

    for at, layer in enumerate(model.model.layers):
        for module, tensors in INPUTS.items():
            names = [f"blk.{at}.{tensor}.weight" for tensor in tensors]
            layer.get_submodule(module).register_forward_pre_hook(lambda _, x, names=names: add(names, x[0]))
    with torch.no_grad():
        for chunk in ids:
            model(torch.tensor([chunk]))
    return sums


def differences(arclight: str, run, work: Path) -> list[str]:
    folder, file, out = work / MODEL, work / "imatrix.model.gguf", work / "imatrix.gguf"
    if not folder.exists():
        checkpoints.build(next(spec for spec in checkpoints.models() if spec.name == MODEL), folder)
    text = work / "imatrix.txt"
    text.write_text("\n".join(vocabularies.lines()[:60]), encoding="utf-8")
    for args in (["convert", folder, "-o", file, "--type", "f32"],
                 ["imatrix", file, "-f", text, "-o", out, "--ctx", CHUNK, "--chunks", CHUNKS, "--kv-type", "f32"]):
        made = run(arclight, *map(str, args))
        if made.returncode:
            return [f"arclight {args[0]} fails: {made.stderr.strip()}"]
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text(encoding="utf-8")).ids
    want = reference(folder, [ids[at:at + CHUNK] for at in range(0, CHUNK * CHUNKS, CHUNK)])
    read = gguf.GGUFReader(str(out))
    said = {key: read.fields[key].contents() for key in ("general.type", "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size")}
    found = []
    if said != {"general.type": "imatrix", "imatrix.datasets": [str(text)], "imatrix.chunk_count": CHUNKS, "imatrix.chunk_size": CHUNK}:
        found.append(f"the file says {said}")
    tensors = {t.name: t for t in read.tensors}
    if set(tensors) != {f"{name}.{part}" for name in want for part in ("in_sum2", "counts")}:
        found.append(f"tensors are {sorted(tensors)}")
        return found
    for name, sums in want.items():
        own, counts = tensors[f"{name}.in_sum2"], tensors[f"{name}.counts"]
        if counts.data.flatten().tolist() != [CHUNK * CHUNKS] or own.tensor_type != gguf.GGMLQuantizationType.F32:
            found.append(f"{name}: counts {counts.data}, {own.tensor_type}")
        off = float((np.abs(own.data.flatten() - sums) / sums).max())
        if off > TOLERANCE:
            found.append(f"{name}: off by {off:.1e}")
    return found
