//! The GGUF file format: read, write, validate; block types with exact reference conversion
