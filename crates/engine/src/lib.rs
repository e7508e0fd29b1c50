//! Load, paged KV, steps over batches, samplers: the public Rust API
