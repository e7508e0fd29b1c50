#!/usr/bin/env python3
"""The golden models in llama.cpp: the same F32 files, its logits beside those of `transformers`.

    pip install llama-cpp-python
    python llama_cpp_logits.py            # all models that it runs
    python llama_cpp_logits.py deepseek_v3

Models that llama.cpp does not load are named: it has OLMoE and dots.llm1 with as many key heads as query
heads only, Qwen3-VL and Command R+ with more layers, DeepSeek-V2 without a rank of queries only at the
published numbers of layers, and ERNIE wants a key that has one value.

Prints the largest difference of the last token's logits for each prompt, relative to the largest
logit. Keys and values are f32. Exits with 1 when a model that is not known to differ is further
off than `MOST`.
"""

import argparse
import ctypes
import json
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

from export import export, tensors
from make import OUT, build
from specs import SPECS

MOST = 1e-3  # its products of f32 are rounded otherwise, its softmax and exponentials are others
DIFFERENT = {
    "mistral": "no window in files of Llama",
    "phi3_short": "no window",
    "starcoder2": "no window",
    "olmo3": "YaRN's gain is the paper's, not what the file states",
    "gpt_oss": "YaRN's ramp begins and ends with whole pairs",
    "phimoe": "a softmax over all experts instead of SparseMixer",
    "llama4": "chunks of 8192 tokens whatever the file says",
    "exaone4": "windows in models of 64 layers only",
    "baichuan": "RoPE in models of 32 layers only",
    "baichuan_alibi": "ALiBi in models of 40 layers only",
    "bitnet": "SiLU, as the older models have it",
    "smallthinker": "windows of 4096 tokens whatever the file says",
}


def seed_of(name: str) -> int:
    header = (OUT / name / "header.gguf").read_bytes()
    with tempfile.NamedTemporaryFile() as padded:
        padded.write(header + bytes(4 << 20))
        padded.flush()
        return int(gguf.GGUFReader(padded.name).fields["golden.seed"].contents())


class Model:
    """A file in llama.cpp."""

    def __init__(self, path: Path):
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp does not load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.type_k = params.type_v = 0  # GGML_TYPE_F32
        params.flash_attn_type = 0
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context of it")

    def last(self, tokens: list[int], vocab: int) -> np.ndarray:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        row = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(row, (vocab,)).copy()

    def close(self) -> None:
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


def compare(spec) -> float:
    expected = json.loads((OUT / spec.name / "expected.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.gguf"
        seed = seed_of(spec.name)
        export(spec, seed, tensors(spec, build(spec), seed), path)
        model = Model(path)
        errors = []
        for prompt in expected["prompts"]:
            want = np.array(prompt["logits"][-1])
            got = model.last(prompt["tokens"], len(want))
            errors.append(float(np.abs(got - want).max() / np.abs(want).max()))
        model.close()
    print(f"{spec.name:20}", *(f"{error:8.1e}" for error in errors),
          f"  {DIFFERENT.get(spec.name, '')}", flush=True)
    return max(errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to compare (default: all)")
    names = parser.parse_args().names
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    far = []
    for spec in SPECS:
        if names and spec.name not in names:
            continue
        try:
            error = compare(spec)
        except RuntimeError as fault:
            print(f"{spec.name:20} {fault}", flush=True)
            continue
        if error > MOST and spec.name not in DIFFERENT:
            far.append(spec.name)
    if far:
        print("further off than", MOST, "and not known to be:", ", ".join(far))
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
