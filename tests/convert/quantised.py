"""The same folders with weights in the forms that they are published quantised in, filled with random bits."""

import shutil
from pathlib import Path

import torch

from checkpoints import rewrite

GROUP = 16


def words(rows: int, cols: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, (rows, cols), dtype=torch.int32)


def scales(*shape: int) -> torch.Tensor:
    return torch.empty(shape).uniform_(0.01, 0.1)


def fp8(stem: str, rows: int, cols: int) -> dict:
    bits = torch.empty(rows, cols).uniform_(-400, 400).to(torch.float8_e4m3fn)
    return {f"{stem}.weight": bits, f"{stem}.weight_scale_inv": scales(-(-rows // 24), -(-cols // 20))}


def gptq(stem: str, rows: int, cols: int) -> dict:
    groups = cols // GROUP
    order = torch.randperm(cols, dtype=torch.int32) // GROUP
    return {f"{stem}.qweight": words(cols // 8, rows), f"{stem}.qzeros": words(groups, rows // 8),
            f"{stem}.scales": scales(groups, rows).half(), f"{stem}.g_idx": order.to(torch.int32)}


def packed(stem: str, rows: int, cols: int) -> dict:
    return {f"{stem}.weight_packed": words(rows, cols // 8), f"{stem}.weight_scale": scales(rows, cols // GROUP).bfloat16(),
            f"{stem}.weight_shape": torch.tensor([rows, cols])}


def packed_zeros(stem: str, rows: int, cols: int) -> dict:
    return {**packed(stem, rows, cols), f"{stem}.weight_zero_point": words(rows // 8, cols // GROUP)}


def integers(stem: str, rows: int, cols: int) -> dict:
    return {f"{stem}.weight": torch.randint(-128, 127, (rows, cols), dtype=torch.int8),
            f"{stem}.weight_scale": scales(rows, 1).bfloat16()}


def mxfp4(stem: str, w: torch.Tensor) -> dict:
    experts, cols, rows = w.shape
    return {f"{stem}_blocks": torch.randint(0, 256, (experts, rows, cols // 32, 16), dtype=torch.uint8),
            f"{stem}_scales": torch.randint(110, 135, (experts, rows, cols // 32), dtype=torch.uint8)}


def compressed(form: str, **weights) -> dict:
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights}}}


# Of which folder, how its matrices are made, and what its configuration says.
FORMS = {
    "fp8": ("deepseek_v3", fp8, {"quant_method": "fp8", "weight_block_size": [24, 20]}),
    "gptq": ("llama_small_heads", gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "gptq_v2": ("qwen3_untied", gptq, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}),
    "packed": ("qwen3_untied", packed, compressed("pack-quantized", num_bits=4, group_size=GROUP, strategy="group", type="int")),
    "packed_zeros": ("qwen2", packed_zeros, compressed("pack-quantized", num_bits=4, group_size=GROUP, strategy="group", type="int")),
    "integers": ("qwen3_untied", integers, compressed("int-quantized", num_bits=8, strategy="channel", type="int")),
    "mxfp4": ("gpt_oss", mxfp4, {"quant_method": "mxfp4"}),  # and its experts are narrower
}


def build(name: str, plain: Path, folder: Path) -> None:
    """Writes the quantised folder beside the plain one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(plain, folder)
    torch.manual_seed(7)
    _, make, said = FORMS[name]

    def tensors(all_tensors):
        new = {}
        for key, w in all_tensors.items():
            if make is mxfp4 and ".experts." in key:
                # Experts of one block of 32 instead of 48.
                w = w[:, :32] if key.endswith("down_proj") else w[..., :64]
                new |= mxfp4(key, w) if w.dim() == 3 else {key: w}
            elif make is not mxfp4 and ".layers." in key and w.dim() == 2 and "mlp.gate.weight" not in key:
                new |= make(key.removesuffix(".weight"), *w.shape)
            else:
                new[key] = w
        return new

    narrow = dict(intermediate_size=32) if make is mxfp4 else {}
    rewrite(folder, tensors, lambda c: c.update(quantization_config=said, **narrow))
