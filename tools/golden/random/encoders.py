"""The encoder families, which give a vector for a text. A new one is one entry of `FAMILIES`."""

import published
from draw import either, seldom, usual
from parts import Family, act, by_layer, rope, shape, width, window

BERT = {
    **shape(head_dim=False, groups=False), **width(), **act("gelu", "hidden_act", "gelu_new"),
    "layer_norm_eps": usual(1e-5, 1e-12, 1e-3), "type_vocab_size": usual(2, 1), "pad_token_id": 0}
ROBERTA = {**BERT, "type_vocab_size": 1, "pad_token_id": 1}
T5 = {
    "num_layers": either(2, 3), "d_model": either(64, 32, 96), "num_heads": either(4, 2), "d_kv": either(16, 8, 32), "d_ff": either(96, 64),
    "vocab_size": either(320, 352), "relative_attention_num_buckets": usual(32, 16), "relative_attention_max_distance": usual(128, 64),
    "layer_norm_epsilon": usual(1e-6, 1e-3), "pad_token_id": 0, "dropout_rate": 0.0}

FAMILIES = (
    Family("bert", "Bert", BERT, model="BertModel", vocabulary="words", encoder="mean"),
    Family("roberta", "Roberta", ROBERTA, model="RobertaModel", vocabulary="roberta", encoder="first"),
    Family("xlm-roberta", "XLMRoberta", ROBERTA, model="XLMRobertaModel", vocabulary="unigram", encoder="first"),
    Family("nomic-bert", "NomicBert", {**BERT, **act(), **rope(1000.0, kinds=())}, model="NomicBertModel", vocabulary="words", encoder="mean"),
    Family("jina-v3", "JinaEmbeddingsV3", {**ROBERTA, **rope(20000.0, kinds=())}, model="JinaEmbeddingsV3Model",
           vocabulary="unigram", encoder="mean"),
    Family("modern-bert", "ModernBert", {
        **shape((4, 5), head_dim=False, groups=False), **width(), **act("gelu", "hidden_activation"), "norm_eps": usual(1e-5, 1e-3),
        **by_layer(160000.0, 10000.0, kinds=(), local_kinds=()), "local_attention": usual(16, 32),
        "norm_bias": seldom(False, True), "attention_bias": seldom(False, True), "mlp_bias": seldom(False, True), "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        model="ModernBertModel", vocabulary="bytes", encoder="mean", published=published.modern_bert),
    Family("gemma-embedding", "Gemma3Text", {
        **shape((4, 5), head_dim=True), **width(), **act("gelu_pytorch_tanh", "hidden_activation"), **by_layer(1e6, 1e4, kinds=(), local_kinds=()),
        "rms_norm_eps": usual(1e-6, 1e-3), **window(), "query_pre_attn_scalar": lambda d: usual(d["head_dim"], 37),
        "use_bidirectional_attention": True, "pad_token_id": 0},
        model="Gemma3TextModel", vocabulary="gemma", encoder="mean", published=published.gemma3),
    Family("t5", "T5", {**T5, "feed_forward_proj": usual("relu", "gated-gelu", "gated-silu")}, model="T5EncoderModel", vocabulary="t5",
           encoder="mean"),
    Family("umt5", "UMT5", {**T5, "feed_forward_proj": usual("gated-gelu", "relu")}, model="UMT5EncoderModel", vocabulary="t5",
           encoder="mean"),
)
