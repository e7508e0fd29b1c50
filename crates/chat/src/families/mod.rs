//! The families of models, a file each: how they write, in the order in which a template is asked
//! whether it is theirs.

pub(crate) mod cohere;
pub(crate) mod deepseek;
pub(crate) mod glm;
pub(crate) mod granite;
pub(crate) mod hermes;
pub(crate) mod kimi;
pub(crate) mod llama;
pub(crate) mod minimax;
pub(crate) mod mistral;
pub(crate) mod phi;
pub(crate) mod plain;
pub(crate) mod qwen_coder;
pub(crate) mod seed;
