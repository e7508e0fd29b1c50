"""Packed BitNet checkpoints: their matrices as `arclight` reads them beside what the layers of `transformers` multiply
with. llama.cpp's converter divides by the scale in both forms, so it is no reference here."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations import bitnet

import vocabularies
import written

# What `config.json` says of each form.
FORMS = {
    "bitnet_packed": {"quant_method": "bitnet", "linear_class": "bitlinear", "quantization_mode": "offline"},
    "bitnet_packed_auto": {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
# A quotient and a product round once each; the engine takes F32 here.
TOLERANCE = 2e-7


def build(form: str, plain: Path, folder: Path) -> None:
    """The plain folder with packed matrices, written by the functions of `transformers`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(plain, folder)
    torch.manual_seed(3)
    tensors = {}
    for name, w in load_file(folder / "model.safetensors").items():
        if ".layers." in name and w.dim() == 2:
            tensors[name] = bitnet.pack_weights(torch.randint(-1, 2, w.shape).float())
            tensors[f"{name}_scale"] = torch.empty(1).uniform_(0.3, 3.0).bfloat16()
        else:
            tensors[name] = w
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    vocabularies.write(folder, "config.json", {**config, "quantization_config": FORMS[form]})


def effective(form: str, packed: torch.Tensor, scale: torch.Tensor) -> np.ndarray:
    """The matrix that a layer multiplies with: what it makes of the rows of a unit matrix, which its rounding of
    inputs keeps."""
    rows, cols = packed.shape[0] * bitnet.VALUES_PER_ITEM, packed.shape[1]
    if form == "bitnet_packed":
        layer = bitnet.BitLinear(cols, rows, bias=False, dtype=torch.float32)
        layer.weight, layer.weight_scale = packed, scale.float()
    else:
        layer = bitnet.AutoBitLinear(cols, rows, bias=False, dtype=torch.float32)
        # As its quantizer does when it loads them.
        layer.weight = torch.nn.Parameter(bitnet.unpack_weights(packed, torch.float32), requires_grad=False)
        layer.weight_scale = scale.float()
    with torch.no_grad():
        return layer(torch.eye(cols)).T.numpy()


def differences(arclight: str, run, form: str, work: Path) -> list[str]:
    """Of all matrices of a folder of this form."""
    torch.compiler.set_stance("force_eager")
    plain, folder, file = work / "bitnet_3b", work / form, work / f"{form}.gguf"
    if not plain.exists():
        written.build("bitnet_3b", plain)
    build(form, plain, folder)
    made = run(arclight, "convert", str(folder), "-o", str(file), "--type", "f32")
    if made.returncode:
        return [f"arclight fails: {made.stderr.strip()}"]
    stored, ours = load_file(folder / "model.safetensors"), {t.name: t for t in gguf.GGUFReader(str(file)).tensors}
    found, seen = [], 0
    for name in stored:
        if not name.endswith(".weight_scale"):
            continue
        weight = name.removesuffix("_scale")
        _, _, layer, *module = weight.removesuffix(".weight").split(".")
        want = effective(form, stored[weight], stored[name])
        got = ours[f"blk.{layer}.{NAMES['.'.join(module)]}.weight"].data.reshape(want.shape)
        off = float(np.abs(got - want).max() / np.abs(want).max())
        seen += 1
        if off > TOLERANCE:
            found.append(f"{weight}: off by {off:.1e}")
    return found or ([] if seen == 7 * written.LAYERS else [f"{seen} matrices are packed"])
