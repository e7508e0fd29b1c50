//! `arclight show`: what a name stands for.

use super::named::{here, not_here, parse};
use super::progress::size;
use crate::error::Error;
use crate::model_info::ModelInfo;
use crate::output::{Output, OutputArgs};
use crate::term;
use arclight_engine::ModelFile;
use clap::Args;
use hub::{Hub, Settings};
use serde_json::json;
use std::fmt::Display;
use std::io::Write;

/// Show a model of this machine: its files, what it is, its licence
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Name of the model, as `arclight list` prints it, or a short name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight show qwen3:4b
  arclight inspect qwen3:4b                         all metadata";

/// Runs the command.
pub(crate) fn run(args: &ShowArgs) -> Result<(), Error> {
    let name = parse(&args.name)?;
    let hub = Hub::new(Settings::from_env()?);
    let model = here(&hub, &name).ok_or_else(|| not_here(&hub, &name))?;
    let file = ModelFile::open(model.path())?;
    let gguf = file.gguf()?;
    let info = ModelInfo::of(&gguf);
    let text = |key: &str| gguf.metadata().opt_str(key).ok().flatten().map(str::to_owned);
    let of_table = || {
        let row = hub::shorts().iter().find(|s| model.name.starts_with(&format!("{}:", s.repo())));
        row.map(|row| row.licence.clone())
    };
    let licence = text("general.license").or_else(of_table);
    let built = models::build(&gguf, 1).map(|built| built.hparams.context);
    let files: Vec<_> = model.files.iter().map(|path| path.display().to_string()).collect();
    let mut out = Output::new(args.output);
    if out.data(
        &json!({
            "name": model.name, "model": info, "licence": licence,
            "runs": built.as_ref().err().map_or(json!(true), |e| json!(e.to_string())),
            "context": built.as_ref().ok(), "bytes": model.bytes, "place": model.place.to_string(),
            "files": files,
        }),
        &[],
    )? {
        return Ok(());
    }
    let runs = match built {
        Ok(context) => format!("yes, with contexts up to {context}"),
        Err(e) => format!("no: {e}"),
    };
    writeln!(out, "{}", &model.name)?;
    let mut line = |what: &str, value: &dyn Display| writeln!(out, "  {what:<13} {value}");
    line("model", &info.name)?;
    line("architecture", &info.architecture)?;
    line("parameters", &term::count(info.parameters))?;
    line("quantisation", &info.ty)?;
    line("licence", &licence.as_deref().unwrap_or("the file does not say"))?;
    line("runs", &runs)?;
    line("size", &size(model.bytes))?;
    line("place", &model.place)?;
    for (at, path) in files.iter().enumerate() {
        line(if at == 0 { "files" } else { "" }, path)?;
    }
    Ok(())
}
