//! LLM inference for many-core CPUs: the command line.

fn main() {}
