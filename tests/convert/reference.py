"""Runs llama.cpp's converter on a folder. Its table of pre-tokenizers knows published vocabularies by a
digest of token ids, so the name of a small one's is given.

    reference.py LLAMA_CPP FOLDER OUT TYPE PRE [--mmproj]
"""

import json
import sys
from pathlib import Path

converter, folder, out, kind, pre, *encoder = sys.argv[1:]
sys.path[:0] = [converter, str(Path(converter) / "gguf-py")]

import conversion.baichuan
import conversion.base
import conversion.gptneox
import conversion.hunyuan
import convert_hf_to_gguf

conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
# Vocabularies of Qwen's own form need code from the folder.
conversion.hunyuan.HunYuanMoEModel.set_vocab = lambda self: self._set_vocab_gpt2()
# `transformers` has moved what this asks for.
neox = conversion.gptneox.GPTNeoXModel
asked = neox.set_gguf_parameters


def told(self):
    self.hparams.setdefault("rotary_pct", self.rope_parameters.get("partial_rotary_factor"))
    asked(self)


neox.set_gguf_parameters = told
# What it does with other tensors than attention's ends in itself.
baichuan = conversion.baichuan.BaichuanModel
unpacked = baichuan.modify_tensors
baichuan.modify_tensors = lambda self, tensor, name, bid: (
    unpacked if "W_pack" in name else conversion.base.TextModel.modify_tensors)(self, tensor, name, bid)
# `transformers` says of every Nemotron-H that it has experts, and does not know the keys of these as published.
PUBLISHED = ("nomic_bert", "exaone")
base = conversion.base.ModelBase
loaded = base.load_hparams


def as_written(folder, is_mistral_format):
    written = json.loads((Path(folder) / "config.json").read_text())
    plain = written["architectures"] == ["NemotronHForCausalLM"] and "n_routed_experts" not in written
    return written if plain or written.get("model_type") in PUBLISHED else loaded(folder, is_mistral_format)


base.load_hparams = staticmethod(as_written)


class ChatGlm3:
    """What the converter asks of `tokenization_chatglm.py` in the folder of ChatGLM 3: pieces of the model by number, and
    tokens behind them. Its three control tokens have no texts."""

    SPECIAL = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")

    def __init__(self, path):
        import sentencepiece

        self.sp_model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.tokenizer, self.own = self, self.sp_model.vocab_size()

    def _convert_id_to_token(self, token):
        if token >= self.own:
            return dict(enumerate(self.SPECIAL, self.own)).get(token, "")
        special = (self.sp_model.bos_id(), self.sp_model.eos_id(), self.sp_model.unk_id())
        return "" if token in special else self.sp_model.id_to_piece(token)

    def get_vocab(self):
        return {self._convert_id_to_token(token): token for token in range(self.own + len(self.SPECIAL))}


if Path(folder).name == "chatglm3":
    import transformers

    transformers.AutoTokenizer.from_pretrained = lambda path, **_: ChatGlm3(Path(path) / "tokenizer.model")
dense = ["--sentence-transformers-dense-modules"] if (Path(folder) / "2_Dense").exists() else []
sys.argv = ["convert", folder, "--outfile", out, "--outtype", kind, *dense, *encoder]
convert_hf_to_gguf.main()
