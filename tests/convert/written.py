"""Folders of models whose code is not in `transformers`, or which it saves under other names: configuration and tensors
as they are published, with random numbers."""

import shutil
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import save_file

import vocabularies

LAYERS, HIDDEN, HEADS, KEYS, FFN, VOCAB = 2, 64, 4, 2, 96, 512
DIM = HIDDEN // HEADS
ENCODER = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
               num_attention_heads=HEADS, layer_norm_eps=1e-5, type_vocab_size=2, max_position_embeddings=130,
               hidden_act="gelu", pad_token_id=1)
DECODER = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
               num_attention_heads=HEADS, num_key_value_heads=KEYS, rms_norm_eps=1e-5, max_position_embeddings=1024,
               bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)


def with_biases(table: dict, *without: str) -> dict:
    """Weights by their shapes, each with a bias of its rows."""
    return {**{f"{k}.weight": s for k, s in table.items()},
            **{f"{k}.bias": s[:1] for k, s in table.items() if k not in without}}


def weights(table: dict) -> dict:
    return {f"{k}.weight": s for k, s in table.items()}


def of_layers(prefix: str, layer: dict, layers: int = LAYERS) -> dict:
    return {f"{prefix}{n}.{k}": s for n in range(layers) for k, s in layer.items()}


def bert_layer(prefix: str, ffn: dict) -> dict:
    return of_layers(prefix, {**with_biases({
        **{f"attention.self.{m}": (HIDDEN, HIDDEN) for m in ("query", "key", "value")},
        "attention.output.dense": (HIDDEN, HIDDEN), "attention.output.LayerNorm": (HIDDEN,)}), **ffn})


BERT_FFN = with_biases({"intermediate.dense": (FFN, HIDDEN), "output.dense": (HIDDEN, FFN), "output.LayerNorm": (HIDDEN,)})


def embeddings(prefix: str, norm: str, positions: bool = True, types: int = 2) -> dict:
    return {f"{prefix}embeddings.word_embeddings.weight": (VOCAB, HIDDEN),
            f"{prefix}embeddings.token_type_embeddings.weight": (types, HIDDEN),
            **({f"{prefix}embeddings.position_embeddings.weight": (130, HIDDEN)} if positions else {}),
            **with_biases({f"{prefix}{norm}": (HIDDEN,)})}


def nomic(layer: dict) -> dict:
    norms = with_biases({"norm1": (HIDDEN,), "norm2": (HIDDEN,)})
    return {**embeddings("", "emb_ln", positions=False), **of_layers("encoder.layers.", {**norms, **layer})}


NOMIC = dict(vocab_size=VOCAB, n_embd=HIDDEN, n_inner=FFN, n_layer=LAYERS, n_head=HEADS, n_positions=8192,
             layer_norm_epsilon=1e-5, type_vocab_size=2, causal=False, prenorm=False, rotary_emb_fraction=1.0,
             rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_emb_base=1000,
             architectures=["NomicBertModel"], model_type="nomic_bert")
EXPERTS = dict(n_positions=2048, activation_function="gelu", qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True,
               moe_every_n_layers=2, moe_top_k=2, num_experts=8, pad_token_id=1)


def nomic_experts() -> dict:
    attention = with_biases({"attn.Wqkv": (3 * HIDDEN, HIDDEN), "attn.out_proj": (HIDDEN, HIDDEN)})
    dense = {f"encoder.layers.0.{k}": s for k, s in with_biases({"mlp.fc1": (FFN, HIDDEN), "mlp.fc2": (HIDDEN, FFN)}).items()}
    experts = {"router.layer.weight": (8, HIDDEN), "experts.mlp.w1": (8 * FFN, HIDDEN),
               "experts.mlp.w2": (8 * FFN, HIDDEN), "experts.bias": (HIDDEN,)}
    return {**nomic(attention), **dense, **{f"encoder.layers.1.mlp.{k}": s for k, s in experts.items()}}


def jina_3() -> dict:
    """With adapters beside some weights."""
    around = lambda name: f"{name}.parametrizations.weight"
    layer = with_biases({"mixer.Wqkv": (3 * HIDDEN, HIDDEN), "mixer.out_proj": (HIDDEN, HIDDEN),
                         "mlp.fc1": (FFN, HIDDEN), "mlp.fc2": (HIDDEN, FFN)})
    new = {}
    for name, shape in {**nomic(layer), **with_biases({"pooler.dense": (HIDDEN, HIDDEN)})}.items():
        stem = name.removesuffix(".weight")
        if len(shape) == 2 and stem != name:
            new[f"roberta.{around(stem)}.original"] = shape
            new[f"roberta.{around(stem)}.0.lora_A"] = (3, 4, shape[1])
            new[f"roberta.{around(stem)}.0.lora_B"] = (3, shape[0], 4)
        else:
            new[f"roberta.{name}"] = shape
    return new


def modern(prefix: str, head: dict) -> dict:
    tensors = {f"{prefix}embeddings.tok_embeddings.weight": (VOCAB, HIDDEN), f"{prefix}embeddings.norm.weight": (HIDDEN,),
               f"{prefix}final_norm.weight": (HIDDEN,), **head,
               **of_layers(f"{prefix}layers.", weights({
                   "attn_norm": (HIDDEN,), "attn.Wqkv": (3 * HIDDEN, HIDDEN), "attn.Wo": (HIDDEN, HIDDEN),
                   "mlp_norm": (HIDDEN,), "mlp.Wi": (2 * FFN, HIDDEN), "mlp.Wo": (HIDDEN, FFN)}))}
    del tensors[f"{prefix}layers.0.attn_norm.weight"]
    return tensors


MODERN = {**ENCODER, "architectures": ["ModernBertModel"], "model_type": "modernbert", "local_attention": 16,
          "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
          "norm_eps": 1e-5, "hidden_activation": "gelu", "classifier_pooling": "mean"}


def decoder(prefix: str, layer: dict, top: dict, layers: int = LAYERS) -> dict:
    return {**of_layers(prefix, weights(layer), layers), **weights(top)}


def gated(gate: str, up: str, down: str, hidden: int = HIDDEN, ffn: int = FFN) -> dict:
    return {gate: (ffn, hidden), up: (ffn, hidden), down: (hidden, ffn)}


USUAL = gated("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
USUAL_TOP = {"model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,), "lm_head": (VOCAB, HIDDEN)}
NORMS = {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,)}
GROUPS = (HEADS + 2 * KEYS) * DIM
CHATGLM = {"transformer.encoder.layers.%d.self_attention.query_key_value.bias" % n: (GROUPS,) for n in range(LAYERS)}
CHATGLM_3 = {"architectures": ["ChatGLMModel"], "model_type": "chatglm", "num_layers": LAYERS, "vocab_size": VOCAB,
             "padded_vocab_size": VOCAB, "hidden_size": HIDDEN, "ffn_hidden_size": FFN, "num_attention_heads": HEADS,
             "multi_query_attention": True, "multi_query_group_num": KEYS, "kv_channels": DIM, "seq_length": 1024,
             "layernorm_epsilon": 1.5e-7, "eos_token_id": 2, "pad_token_id": 0}
CHATGLM_TENSORS = {
    **decoder("transformer.encoder.layers.", {
        **NORMS, "self_attention.query_key_value": (GROUPS, HIDDEN), "self_attention.dense": (HIDDEN, HIDDEN),
        "mlp.dense_h_to_4h": (2 * FFN, HIDDEN), "mlp.dense_4h_to_h": (HIDDEN, FFN)},
        {"transformer.embedding.word_embeddings": (VOCAB, HIDDEN), "transformer.encoder.final_layernorm": (HIDDEN,),
         "transformer.output_layer": (VOCAB, HIDDEN)}),
    **CHATGLM, "transformer.rotary_pos_emb.inv_freq": (DIM // 4,)}
WIDE = 5120  # the one width that the reference takes


def bitnet() -> dict:
    return decoder("model.layers.", {
        **NORMS, **USUAL, "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KEYS * DIM, HIDDEN),
        "self_attn.v_proj": (KEYS * DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
        "self_attn.inner_attn_ln": (HIDDEN,), "mlp.ffn_layernorm": (FFN,)},
        {k: s for k, s in USUAL_TOP.items() if k != "lm_head"})


def spm(folder: Path) -> str:
    return vocabularies.sentencepiece(folder)


def pooled(vocabulary: Callable, mode: str = "pooling_mode_mean_tokens") -> Callable:
    """With what `sentence-transformers` says of pooling."""
    def write(folder: Path) -> str:
        (folder / "1_Pooling").mkdir()
        module = "sentence_transformers.models."
        vocabularies.write(folder, "modules.json", [
            {"idx": 0, "name": "0", "path": "", "type": module + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": module + "Pooling"}])
        vocabularies.write(folder / "1_Pooling", "config.json", {mode: True})
        return vocabulary(folder)

    return write


def bytes_of(scheme: str, name: str | None = None, **more) -> Callable:
    return lambda folder: vocabularies.byte_level(folder, scheme, **more) and (name or scheme)


WRITTEN = {
    "xlm_r": ({**ENCODER, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"},
              {**embeddings("", "embeddings.LayerNorm"), **bert_layer("encoder.layer.", BERT_FFN),
               **with_biases({"pooler.dense": (HIDDEN, HIDDEN)})},
              pooled(vocabularies.unigram, "pooling_mode_cls_token")),
    "xlm_r_json": ({**ENCODER, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"},
                   {**embeddings("", "embeddings.LayerNorm"), **bert_layer("encoder.layer.", BERT_FFN)},
                   lambda folder: vocabularies.unigram(folder, model=False)),
    "xlm_r_ranks": ({**ENCODER, "architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta",
                     "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}},
                    {**embeddings("roberta.", "embeddings.LayerNorm"), **bert_layer("roberta.encoder.layer.", BERT_FFN),
                     **with_biases({"classifier.dense": (HIDDEN, HIDDEN), "classifier.out_proj": (1, HIDDEN)})},
                    vocabularies.unigram),
    "roberta": ({**ENCODER, "architectures": ["RobertaModel"], "model_type": "roberta", "type_vocab_size": 1},
                {**embeddings("", "embeddings.LayerNorm", types=1), **bert_layer("encoder.layer.", BERT_FFN)},
                bytes_of("gpt-2", "roberta-bpe", pairs=True)),
    "roberta_ranks": ({**ENCODER, "architectures": ["RobertaForSequenceClassification"], "model_type": "roberta", "type_vocab_size": 1,
                       "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}},
                      {**embeddings("roberta.", "embeddings.LayerNorm", types=1), **bert_layer("roberta.encoder.layer.", BERT_FFN),
                       **with_biases({"classifier.dense": (HIDDEN, HIDDEN), "classifier.out_proj": (1, HIDDEN)})},
                      bytes_of("gpt-2", "roberta-bpe", pairs=True)),
    "nomic": ({**NOMIC, "activation_function": "swiglu", "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False},
              nomic(weights({"attn.Wqkv": (3 * HIDDEN, HIDDEN), "attn.out_proj": (HIDDEN, HIDDEN),
                             "mlp.fc11": (FFN, HIDDEN), "mlp.fc12": (FFN, HIDDEN), "mlp.fc2": (HIDDEN, FFN)})),
              pooled(vocabularies.words)),
    "nomic_moe": ({**NOMIC, **EXPERTS}, nomic_experts(), lambda folder: vocabularies.unigram(folder, model=False)),
    "jina_2": ({**ENCODER, "architectures": ["JinaBertForMaskedLM"], "model_type": "bert",
                "position_embedding_type": "alibi", "pad_token_id": 0},
               {**embeddings("bert.", "embeddings.LayerNorm", positions=False),
                **bert_layer("bert.encoder.layer.", {
                    "mlp.gated_layers.weight": (2 * FFN, HIDDEN), **with_biases({"mlp.wo": (HIDDEN, FFN), "mlp.layernorm": (HIDDEN,)})}),
                **with_biases({"cls.predictions.transform.dense": (HIDDEN, HIDDEN)})},
               pooled(lambda folder: vocabularies.words(folder, tokenizer_class="BertTokenizer"))),
    "jina_3": ({**ENCODER, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
                "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_adaptations": ["a", "b", "c"],
                "lora_alpha": 1},
               jina_3(), pooled(lambda folder: vocabularies.unigram(folder, model=False))),
    "modern": (MODERN, modern("", {}), pooled(bytes_of("olmo", "modern-bert"), "pooling_mode_cls_token")),
    "modern_ranks": ({**MODERN, "architectures": ["ModernBertForSequenceClassification"],
                      "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}},
                     modern("model.", {"head.dense.weight": (HIDDEN, HIDDEN), "head.norm.weight": (HIDDEN,),
                                       **with_biases({"classifier": (1, HIDDEN)})}), bytes_of("olmo", "modern-bert")),
    "exaone3": ({**DECODER, "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "num_layers": LAYERS,
                 "activation_function": "silu", "layer_norm_epsilon": 1e-5, "rms_norm_eps": None, "rope_theta": 1e6},
                decoder("transformer.h.", {
                    "ln_1": (HIDDEN,), "ln_2": (HIDDEN,), **gated("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"),
                    **{f"attn.attention.{m}_proj": (d, HIDDEN) for m, d in (("q", HIDDEN), ("k", KEYS * DIM), ("v", KEYS * DIM))},
                    "attn.attention.out_proj": (HIDDEN, HIDDEN)},
                    {"transformer.wte": (VOCAB, HIDDEN), "transformer.ln_f": (HIDDEN,), "lm_head": (VOCAB, HIDDEN)}),
                bytes_of("digits", "exaone")),
    "internlm": ({**DECODER, "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "vocab_size": 400,
                   "rope_theta": 1e6, "bias": False},
                  decoder("model.layers.", {
                      "attention_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attention.wqkv": (GROUPS, HIDDEN),
                      "attention.wo": (HIDDEN, HIDDEN), **gated("feed_forward.w1", "feed_forward.w3", "feed_forward.w2")},
                      {"model.tok_embeddings": (400, HIDDEN), "model.norm": (HIDDEN,), "output": (400, HIDDEN)}),
                  vocabularies.internlm),
    "baichuan2": ({**{k: v for k, v in DECODER.items() if k != "num_key_value_heads"}, "model_max_length": 4096,
                   "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan"},
                  decoder("model.layers.", {**NORMS, **USUAL, "self_attn.W_pack": (3 * HIDDEN, HIDDEN),
                                            "self_attn.o_proj": (HIDDEN, HIDDEN)}, USUAL_TOP), spm),
    "chatglm3": ({**CHATGLM_3, "_name_or_path": "THUDM/chatglm3-6b"}, CHATGLM_TENSORS, vocabularies.chatglm3),
    "chatglm4": ({**CHATGLM_3, "rope_ratio": 500, "eos_token_id": [2, 6, 7], "pad_token_id": 2},
                 CHATGLM_TENSORS, bytes_of("chatglm-bpe")),
    "plamo13": ({**DECODER, "architectures": ["PlamoForCausalLM"], "model_type": "plamo", "hidden_size": WIDE,
                 "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 40, "num_key_value_heads": 40,
                 "n_shared_head": 8},
                decoder("model.layers.layers.", {
                    "norm": (WIDE,), **gated("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", WIDE, 32),
                    "self_attn.q_proj": (WIDE, WIDE), "self_attn.k_proj": (640, WIDE), "self_attn.v_proj": (640, WIDE),
                    "self_attn.o_proj": (WIDE, WIDE)},
                    {"model.embed_tokens": (VOCAB, WIDE), "model.norm": (WIDE,), "lm_head": (VOCAB, WIDE)}, 1), spm),
    "bitnet_3b": ({**DECODER, "architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_act": "relu2", "rope_theta": 10000.0,
                    "tie_word_embeddings": True}, bitnet(), spm),
}


def build(name: str, folder: Path) -> str:
    """Writes the folder; gives the name of the vocabulary's way to cut text."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(len(name))
    config, tensors, vocabulary = WRITTEN[name]
    save_file({k: torch.empty(s).uniform_(-1, 1).bfloat16() for k, s in tensors.items()},
              folder / "model.safetensors", {"format": "pt"})
    vocabularies.write(folder, "config.json", {k: v for k, v in config.items() if v is not None or "scale_base" in k})
    return vocabulary(folder)
