//! `arclight pull`: models from the network.

use super::fetch::fetch;
use super::named::parse;
use crate::args::count;
use crate::error::Error;
use clap::Args;
use hub::{Hub, Name, Settings};
use std::io::Write;

/// Fetch a model by name, or its newest version
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct PullArgs {
    /// OWNER/REPO, OWNER/REPO:QUANT, OWNER/REPO:FILE or a short name (arclight list --names)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Connections for a file
    #[arg(long, value_name = "N", value_parser = count, default_value = "4")]
    connections: usize,
    /// Leave out the image encoder that the repository has for the model
    #[arg(long)]
    no_mmproj: bool,
}

const HELP: &str = "\
Models come from the Hugging Face Hub, or with ms: before the name from ModelScope, into the
cache that other programs have for them too. What is here already is not fetched again, and
what was begun goes on. Where the repository has an image encoder (mmproj) for the model, it
is fetched too.

Environment:
  HF_TOKEN         token for gated and private models
  HF_ENDPOINT      another site that speaks the Hub's API
  HF_HUB_CACHE     folder of the cache [default: ~/.cache/huggingface/hub]
  HF_HUB_OFFLINE   1: never use the network
  HTTPS_PROXY      proxy, but for the hosts of NO_PROXY
  SSL_CERT_FILE    certificates to trust instead of Mozilla's list

Examples:
  arclight pull qwen3:4b
  arclight pull ggml-org/gpt-oss-20b-GGUF
  arclight pull Qwen/Qwen3-4B-GGUF:Q8_0
  arclight pull https://huggingface.co/Qwen/Qwen3-4B-GGUF/blob/main/Qwen3-4B-Q6_K.gguf";

/// Runs the command.
pub(crate) fn run(args: &PullArgs) -> Result<(), Error> {
    let names: Vec<Name> = args.names.iter().map(|name| parse(name)).collect::<Result<_, _>>()?;
    let mut settings = Settings::from_env()?;
    settings.connections = args.connections;
    let hub = Hub::new(settings);
    let mut out = std::io::stdout().lock();
    for name in &names {
        let model = fetch(&hub, name, "", !args.no_mmproj)?;
        writeln!(out, "{}", model.path().display())?;
    }
    Ok(())
}
