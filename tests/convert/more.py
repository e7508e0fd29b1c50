"""Families of which there are no golden models: which class of `transformers`, and what is said of it."""

COMMON = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=None)
GPT2 = dict(vocab_size=512, n_embd=64, n_layer=2, n_head=4, n_positions=1024, n_ctx=1024)

MORE = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT2),
    "gptneox": ("GPTNeoX", None, {**COMMON, "rotary_pct": 0.5, "use_parallel_residual": False}),
    "bloom": ("Bloom", None, dict(vocab_size=512, hidden_size=64, n_layer=2, n_head=4, seq_length=1024)),
    "falcon": ("Falcon", None, {**COMMON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "mpt": ("Mpt", None, dict(vocab_size=512, d_model=64, n_layers=2, n_heads=4, max_seq_len=1024)),
    "phi2": ("Phi", None, {**COMMON, "num_key_value_heads": 4, "intermediate_size": 256, "partial_rotary_factor": 0.5}),
    "stablelm": ("StableLm", None, {**COMMON, "use_qkv_bias": True, "use_parallel_residual": True}),
    "command_r": ("Cohere", None, {**COMMON, "logit_scale": 0.25}),
    "olmo": ("Olmo", None, {**COMMON, "clip_qkv": 8.0}),
    "exaone4": ("Exaone4", None, {**COMMON, "sliding_window": 24, "sliding_window_pattern": 4}),
    "nemotron": ("Nemotron", None, {**COMMON, "partial_rotary_factor": 0.5}),
    "ernie4_5": ("Ernie4_5", None, {**COMMON, "use_bias": False}),
    "arcee": ("Arcee", None, COMMON),
    "seed_oss": ("SeedOss", None, {**COMMON, "head_dim": 16}),
    "gemma": ("Gemma", None, {**COMMON, "head_dim": 16}),
}
T5 = dict(vocab_size=512, d_model=64, d_kv=8, d_ff=96, num_layers=2, num_heads=4, relative_attention_num_buckets=32,
          bos_token_id=None, eos_token_id=1, pad_token_id=0)
MORE |= {
    "t5_encoder": ("T5", "T5EncoderModel", T5),
    "t5_encoder_gated": ("T5", "T5EncoderModel", {**T5, "feed_forward_proj": "gated-gelu"}),
}
MORE["embedding_gemma"] = ("Gemma3Text", "Gemma3TextModel", {
    **COMMON, "head_dim": 16, "use_bidirectional_attention": True, "sliding_window": 24, "num_hidden_layers": 6})
SENTENCEPIECE = ("nemotron", "ernie4_5", "gemma")
# Names of their own for the rules of GPT-2.
NAMES = {"exaone4": "exaone4", "phi2": "phi-2"}
