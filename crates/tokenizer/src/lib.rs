//! Vocabularies from GGUF, chat templates, incremental decoding
