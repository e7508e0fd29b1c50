//! Sampling parameters of requests without their own.

use crate::error::Error;
use arclight_engine::SamplerParams;
use arclight_server::Options;
use clap::Args;

/// What holds for requests that say nothing; as OpenAI has it, if nothing is said here either.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling, where a request does not say")]
pub(super) struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token [default: 1]
    #[arg(long = "temp", value_name = "X", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Choose among this many likeliest tokens [default: 0, all]
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Choose among the likeliest tokens that have this probability together [default: 1, all]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Leave out tokens of less than this share of the likeliest one's probability [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Make tokens of prompt and answer less likely by this factor [default: 1, off]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
}

impl SamplingArgs {
    pub(super) fn params(&self) -> Result<SamplerParams, Error> {
        let default = Options::default().sampler;
        let params = SamplerParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(default.repetition_penalty),
            ..default
        };
        params.check()?;
        Ok(params)
    }
}
