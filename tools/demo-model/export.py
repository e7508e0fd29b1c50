"""Writes the trained model as GGUF."""

from pathlib import Path

import gguf
import numpy as np

import chat
import vocab as vocabulary
from model import Model
from vocab import Vocab


def _sizes(model: Model) -> tuple[int, int, int, int]:
    """Weights in all, those that every token uses, those of one expert, and the number of experts."""
    size = lambda experts: sum(p.numel() for n, p in model.named_parameters() if ("_exps." in n) == experts)
    n = model.c.experts
    return size(False) + size(True), size(False), size(True) // max(n, 1), n


def metadata(w: gguf.GGUFWriter, model: Model, vocab: Vocab, quantised: bool, rotary: int | None = None) -> None:
    c = model.c
    w.add_name("Arclight demo")
    w.add_description("A tiny story and chat model, trained from scratch on generated text")
    w.add_license("Apache-2.0 OR MIT")
    w.add_size_label(gguf.size_label(*_sizes(model)))
    w.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q8_0 if quantised else gguf.LlamaFileType.ALL_F32))
    if quantised:
        w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(c.vocab)
    w.add_context_length(c.context)
    w.add_embedding_length(c.hidden)
    w.add_block_count(c.layers)
    w.add_feed_forward_length(c.ffn)
    if c.experts:
        w.add_expert_count(c.experts)
        w.add_expert_used_count(c.used)
        w.add_expert_feed_forward_length(c.expert_ffn)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_rope_dimension_count(rotary or c.head_dim)
    w.add_rope_freq_base(c.theta)
    # As in Qwen's own files: a turn ends with <|im_end|>, a plain document with
    # <|endoftext|>, which engines know as an end by its name and its control type.
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(vocab.tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in vocabulary.SPECIALS else gguf.TokenType.NORMAL
                       for t in vocab.tokens])
    w.add_token_merges(vocab.merges)
    w.add_bos_token_id(vocabulary.END_OF_TEXT)
    w.add_eos_token_id(vocabulary.IM_END)
    w.add_eot_token_id(vocabulary.IM_END)
    w.add_pad_token_id(vocabulary.END_OF_TEXT)
    w.add_add_bos_token(False)
    w.add_chat_template(chat.TEMPLATE)


def write(model: Model, vocab: Vocab, path: Path, quantised: bool) -> Path:
    """Matrices as Q8_0 or F32, norms and routers always F32. The head is the embedding."""
    w = gguf.GGUFWriter(str(path), "qwen3moe" if model.c.experts else "qwen3")
    metadata(w, model, vocab, quantised)
    for name, p in model.named_parameters():
        data = p.detach().numpy().astype(np.float32)
        if quantised and data.ndim >= 2 and "ffn_gate_inp" not in name:
            kind = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(name, gguf.quantize(data, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
