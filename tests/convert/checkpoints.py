"""Folders as the Hub has them: the golden models with random weights, saved by `transformers`."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "golden"))

import torch
from safetensors.torch import load_file, save_file

import transformers

import make
import more
import vocabularies
from more import MORE
from specs import SPECS, Spec

VOCAB = 512
SENTENCEPIECE = ("llama2_untied", "mistral", "mixtral", "minicpm", "gemma2", "gemma3", "gemma3n",
                 "phi3_short", "phi3_long", "phimoe", "ernie4_5_moe", "minicpm3")
SCHEMES = {"llama3_tied": "llama-bpe", "smollm3": "llama-bpe", "glm4": "glm4", "glm4moe": "glm4",
           "starcoder2": "gpt-2", "starcoder": "digits", "chatglm": "chatglm-bpe", "olmo2": "gpt-2", "granite": "gpt-2"}
# Names of their own for the same rules.
NAMES = {"hunyuan_moe": "hunyuan", "hunyuan_dense": "hunyuan", "starcoder": "starcoder"}
HALF = ("llama2_untied", "qwen2_yarn", "gemma2", "falcon_h1")  # float16; others are bfloat16
SINGLE = ("olmo2", "deepseek_v2", "deepseek_v3")  # float32, and so is the file
SHARDS = ("qwen3_tied", "mixtral", "qwen3moe", "glm4moe")
# Names of other sizes for the same model, or old files' forms: nothing new to convert. Models that `transformers` has as
# others, of which `written.py` makes folders as published, or that are parts of others there. Forms that the reference
# fails on.
LEFT_OUT = ("deepseek_v2_old", "exaone", "internlm2", "baichuan", "baichuan_alibi", "plamo", "bitnet", "bitnet_b158",
            "bitnet_silu", "smallthinker", "smallthinker_global", "qwen2vl", "qwen3vl", "qwen3vlmoe", "mistral4", "falcon_7b", "stablelm_12b")

CARD = """---
license: apache-2.0
license_link: https://example.org/licence
language:
- en
- no
tags:
  - small
  - "random: yes"
pipeline_tag: text-generation
base_model:
- Some-Org/Tiny-1B-Base
datasets: [org/a-data-set, 'other/set-v2']
---
# Anything
"""
GENERATION = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": True, "repetition_penalty": 1.05}


def models() -> list[Spec]:
    left_out = (*LEFT_OUT, *MORE)
    return [spec for spec in SPECS if spec.predicts is None and spec.name not in left_out]


def build(spec: Spec, folder: Path) -> str:
    """Writes the folder; gives the name of the vocabulary's way to cut text."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(len(spec.name))
    also = dict(vocab_size_per_layer_input=VOCAB) if spec.name == "gemma4" else {}
    save(make.build(replace(spec, vocab=VOCAB, config={**spec.config, **also})), spec.name, folder)
    if spec.name in RENAMED:
        RENAMED[spec.name](spec, folder)
    if spec.name == "qwen3_tied":
        (folder / "README.md").write_text(CARD, encoding="utf-8")
        vocabularies.write(folder, "generation_config.json", GENERATION)
    if spec.name.startswith("gemma4"):
        return vocabularies.merges_with_bytes(folder)
    if spec.name in SENTENCEPIECE:
        more = dict(tokenizer_class="GemmaTokenizer") if spec.name.startswith("gemma") else {}
        return vocabularies.sentencepiece(folder, **more)
    pre = vocabularies.byte_level(folder, SCHEMES.get(spec.name, "qwen2"))
    return NAMES.get(spec.name, pre)


def build_more(name: str, folder: Path) -> str:
    """The same of a family without a golden model."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(len(name))
    prefix, model, config = MORE[name]
    config = getattr(transformers, prefix + "Config")(**config)
    save(getattr(transformers, model or prefix + "ForCausalLM")(config), name, folder)
    if name == "mpt":  # the class as published
        rewrite(folder, lambda t: t, lambda c: c.update(architectures=["MPTForCausalLM"]))
    if name in more.SENTENCEPIECE:
        return vocabularies.sentencepiece(folder)
    if prefix == "T5":
        return vocabularies.t5(folder)
    if name == "embedding_gemma":
        return modules(folder)
    pre = vocabularies.byte_level(folder, SCHEMES.get(name, "gpt-2"))
    return more.NAMES.get(name, pre)


def modules(folder: Path) -> str:
    """What EmbeddingGemma has beside its model: pooling, and two dense layers behind it."""
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize"))
    vocabularies.write(folder, "modules.json", [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds)])
    for path, sizes in (("1_Pooling", None), ("2_Dense", (64, 96)), ("3_Dense", (96, 64))):
        (folder / path).mkdir()
        if not sizes:
            vocabularies.write(folder / path, "config.json", {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True})
            continue
        vocabularies.write(folder / path, "config.json", {
            "in_features": sizes[0], "out_features": sizes[1], "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity"})
        save_file({"linear.weight": torch.empty(sizes[::-1]).uniform_(-1, 1)}, folder / path / "model.safetensors", {"format": "pt"})
    return vocabularies.sentencepiece(folder, tokenizer_class="GemmaTokenizer")


def save(model, name: str, folder: Path) -> None:
    """Saves a model with random weights."""
    with torch.no_grad():
        for _, p in [*model.named_parameters(), *model.named_buffers()]:
            if p.is_floating_point() and not p.is_meta:
                p.uniform_(-1, 1)
    kind = torch.float16 if name in HALF else torch.float32 if name in SINGLE else torch.bfloat16
    model.to(kind)
    model.config.dtype = kind
    if not name.startswith("t5_"):
        model.config.bos_token_id, model.config.eos_token_id = 1, 2
    model.save_pretrained(folder, max_shard_size="150KB" if name in SHARDS else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)


def rewrite(folder: Path, tensors, config) -> None:
    """Passes tensors and configuration through functions."""
    file = folder / "model.safetensors"
    save_file({k: v.contiguous() for k, v in tensors(load_file(file)).items()}, file, {"format": "pt"})
    changed = json.loads((folder / "config.json").read_text())
    config(changed)
    vocabularies.write(folder, "config.json", changed)


def minicpm(spec: Spec, folder: Path) -> None:
    def config(c):
        for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"):
            c.pop(key, None)
        c.update(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=2,
                 scale_depth=1.4, dim_model_base=48)

    rewrite(folder, lambda t: t, config)


def bailing(spec: Spec, folder: Path) -> None:
    def tensors(t):
        new = {}
        for name, w in t.items():
            if "k_proj" in name or "v_proj" in name:
                continue
            if "q_proj" in name:
                w = torch.cat([t[name.replace("q_proj", f"{m}_proj")] for m in "qkv"])
                name = name.replace("self_attn.q_proj", "attention.query_key_value")
            for old, now in (("self_attn.o_proj", "attention.dense"), ("self_attn.q_norm", "attention.query_layernorm"),
                             ("self_attn.k_norm", "attention.key_layernorm"), ("embed_tokens", "word_embeddings"),
                             ("gate.e_score_correction_bias", "gate.expert_bias")):
                name = name.replace(old, now)
            new[name] = w
        return new

    def config(c):
        c["num_experts"], c["num_shared_experts"] = c.pop("n_routed_experts"), c.pop("n_shared_experts")
        c.update(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe", score_function="sigmoid",
                 num_nextn_predict_layers=0)

    rewrite(folder, tensors, config)


def hunyuan(spec: Spec, folder: Path) -> None:
    """As published: a number for each layer."""
    def config(c):
        layers = c["num_hidden_layers"]
        c.update(moe_topk=[c["moe_topk"]] * layers if isinstance(c["moe_topk"], int) else c["moe_topk"],
                 moe_intermediate_size=[48] * layers, num_shared_expert=[1] * layers)

    rewrite(folder, lambda t: t, config)


def minimax(spec: Spec, folder: Path) -> None:
    rewrite(folder, lambda t: t, lambda c: c.update(rotary_dim=spec.head_dim // 2, scoring_func="sigmoid"))


def nemotron(spec: Spec, folder: Path) -> None:
    def config(c):
        c["hybrid_override_pattern"] = spec.config["hybrid_override_pattern"]
        if spec.name == "nemotron_h":  # `transformers` says something of experts that are not there
            for key in [k for k in c if "expert" in k or "moe" in k or k in ("n_group", "topk_group")]:
                del c[key]

    rewrite(folder, lambda t: t, config)


def predicting(prefix: str, last: int):
    """With a layer that predicts further tokens, whose tensors are those of the last layer."""
    def rename(spec: Spec, folder: Path) -> None:
        def tensors(t):
            of = lambda name: torch.empty(name, dtype=torch.bfloat16).uniform_(-1, 1)
            hidden = spec.hidden
            more = {f"{prefix}.layers.0." + name.split(".", 3)[3]: w.clone() for name, w in t.items()
                    if name.startswith(f"model.layers.{last}.")}
            return {**t, **more, f"{prefix}.fc.weight": of((hidden, 2 * hidden)),
                    f"{prefix}.pre_fc_norm_embedding.weight": of(hidden),
                    f"{prefix}.pre_fc_norm_hidden.weight": of(hidden), f"{prefix}.norm.weight": of(hidden)}

        rewrite(folder, tensors, lambda c: c.update(mtp_num_hidden_layers=1) if "3_5" in c["architectures"][0] else None)

    return rename


def phimoe(spec: Spec, folder: Path) -> None:
    """The class as published."""
    rewrite(folder, lambda t: t, lambda c: c.update(architectures=["PhiMoEForCausalLM"]))


def granite(spec: Spec, folder: Path) -> None:
    """Kinds of layers as published: `transformers` renames them."""
    kinds = {"linear_attention": "mamba", "full_attention": "attention"}
    rewrite(folder, lambda t: t, lambda c: c.update(layer_types=[kinds[k] for k in c["layer_types"]]))


def cohere(spec: Spec, folder: Path) -> None:
    """With a key that `transformers` leaves out."""
    rewrite(folder, lambda t: t, lambda c: c.update(rotary_pct=1.0))


RENAMED = {"minicpm": minicpm, "cohere2": cohere, "bailingmoe2": bailing, "hunyuan_moe": hunyuan, "minimax_m2": minimax,
           "granitehybrid": granite, "granite4": granite, "phimoe": phimoe, "nemotron_h": nemotron, "nemotron_h_moe": nemotron, "qwen3next": predicting("mtp", 3),
           "qwen35": predicting("mtp", 3), "qwen35moe": predicting("mtp", 1)}
