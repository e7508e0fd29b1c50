//! What gateways in front of several servers ask for: the contract of the Gateway API Inference Extension and of llm-d,
//! whose words are vLLM's.
//!
//! A gateway reads load and cache sizes from `/metrics`, has prompts tokenized by the `render` endpoints, and follows
//! which beginnings each server has in its prefix cache by [`events`].

pub(crate) mod events;
pub(crate) mod render;
