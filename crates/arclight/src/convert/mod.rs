//! `arclight convert`: a folder of the Hugging Face Hub as a GGUF file, in one step in any type.

use crate::error::Error;
use crate::folder;
use crate::images;
use crate::quantize::making::{Making, Rule};
use crate::quantize::mixes::Mix;
use crate::quantize::types_help;
use crate::term;
use arclight_engine::ModelFile;
use clap::{Args, ValueHint};
use convert::{Float, Options};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Make a GGUF file of a folder of the Hugging Face Hub
#[derive(Args, Debug)]
#[command(after_help = help())]
pub(crate) struct ConvertArgs {
    /// Folder with config.json, .safetensors files and the vocabulary, or one of its .safetensors files
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath, required_unless_present = "families")]
    input: Option<PathBuf>,
    /// File to write; an existing one is replaced
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present_any = ["dry_run", "families"])]
    output: Option<PathBuf>,
    /// Type of the file, such as Q4_K_M; see below [default: BF16 or F16, as the folder has it]
    #[arg(long = "type", value_name = "TYPE")]
    mix: Option<Mix>,
    /// Type of the matrices whose names contain a match of this regular expression, as in
    /// 'ffn_down=Q6_K'; may be given several times, the first that matches counts
    #[arg(long, value_name = "PATTERN=TYPE")]
    tensor_type: Vec<Rule>,
    /// Importance matrix, made by `arclight imatrix` or llama-imatrix: errors become smaller where the model's inputs are
    /// large. Types below 3.1 bits need one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    imatrix: Option<PathBuf>,
    /// Give every matrix the main type, the vocabulary too
    #[arg(long, requires = "mix")]
    pure: bool,
    /// How the vocabulary cuts text (tokenizer.ggml.pre) [default: as tokenizer.json has it]
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Take matrices that the folder has in a type of GGUF already (MXFP4) and that are to have another
    #[arg(long)]
    allow_requantize: bool,
    /// Number of threads [default: one per processor]
    #[arg(short, long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for the image encoder of a model that reads images [default: mmproj-NAME beside the file]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_mmproj")]
    mmproj: Option<PathBuf>,
    /// Make no file of the image encoder
    #[arg(long)]
    no_mmproj: bool,
    /// Only tell which tensors there would be, and of which types
    #[arg(long)]
    dry_run: bool,
    /// List the classes of models that are converted, and the architecture of their files
    #[arg(long, exclusive = true)]
    families: bool,
}

const EXAMPLES: &str = "\
Examples:
  arclight convert Qwen3-4B -o qwen3-4b.gguf
  arclight convert Qwen3-4B -o qwen3-4b-q4_k_m.gguf --type q4_k_m
  arclight convert Qwen3-4B -o small.gguf --type iq2_xs --imatrix qwen3.imatrix.gguf
  arclight convert Qwen3-4B --dry-run
  arclight run Qwen3-4B -p Hello      runs the folder itself, converted as it is loaded";

fn help() -> String {
    format!("{}\n{EXAMPLES}", types_help())
}

/// Runs the command.
pub(crate) fn run(args: &ConvertArgs) -> Result<(), Error> {
    if args.families {
        return families();
    }
    let input = args.input.as_deref().ok_or_else(|| Error::usage("name a folder"))?;
    if !folder::is_of_hub(input) && input.exists() {
        return Err(Error::in_file(
            input,
            "convert takes a folder of the Hugging Face Hub, or a .safetensors file in one; of a GGUF \
             file, arclight quantize makes another type",
        ));
    }
    // Floats are made so at once; other types of what the folder has.
    let float = args.mix.map(|mix| mix.base).filter(|base| base.block_len() == 1);
    let options =
        Options { float: float.map_or(Float::AsStored, Float::Of), pre: args.pre.clone() };
    let (file, notes) = folder::converted(input, &options)?;
    for note in notes {
        tracing::warn!("{note}");
    }
    check(&file)?;
    let encoder = image_encoder(args, input, &options)?;
    let making = Making {
        file: &file,
        output: args.output.as_deref(),
        mix: args.mix.filter(|_| float.is_none()),
        rules: &args.tensor_type,
        pure: args.pure,
        allow_requantize: args.allow_requantize,
        imatrix: args.imatrix.as_deref(),
        threads: args.threads,
        dry_run: args.dry_run,
    };
    making.make("converting")?;
    let Some(encoder) = encoder else { return Ok(()) };
    let beside = |output: &PathBuf| output.with_file_name(images::name_beside(output));
    let output = args.mmproj.clone().or_else(|| args.output.as_ref().map(beside));
    // Its matrices stay floats.
    let (output, file) = (output.as_deref(), &encoder);
    let making =
        Making { file, output, mix: None, rules: &[], pure: false, imatrix: None, ..making };
    making.make("converting the image encoder")
}

/// The folder's image encoder as a file, if one is wanted.
fn image_encoder(
    args: &ConvertArgs,
    input: &Path,
    options: &Options,
) -> Result<Option<ModelFile>, Error> {
    if args.no_mmproj {
        return Ok(None);
    }
    match (folder::encoder(input, options), &args.mmproj) {
        (Ok(Some(file)), _) => check(&file).map(|()| Some(file)),
        (Ok(None), None) => Ok(None),
        (Ok(None), Some(_)) => {
            Err(Error::in_file(input, "it has no image encoder, which --mmproj asks for"))
        }
        (Err(why), Some(_)) => Err(why),
        (Err(why), None) => {
            tracing::warn!("the file reads no images: {}", why.line());
            Ok(None)
        }
    }
}

/// Holds the file against the page of its family, before anything is written.
fn check(file: &ModelFile) -> Result<(), Error> {
    use graph::Error as Graph;
    use models::Error as Model;
    match models::build(&file.gguf()?, 1) {
        Ok(_) => Ok(()),
        // A tensor too few or too many, or of another shape: the folder is not what its configuration says.
        Err(
            source @ (Model::UnusedTensor { .. }
            | Model::Gguf(_)
            | Model::Graph(
                Graph::MissingTensor(_) | Graph::WrongShape { .. } | Graph::WrongExperts { .. },
            )),
        ) => Err(Error::Model { path: file.path().to_owned(), source }),
        Err(Model::UnsupportedArchitecture { name, .. }) => {
            term::note!("{name} is converted for other programs: arclight does not run it");
            Ok(())
        }
        Err(why) => {
            tracing::warn!("arclight would not run the file: {why}");
            Ok(())
        }
    }
}

fn families() -> Result<(), Error> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let mut all: Vec<(&str, &str)> = convert::classes().collect();
    all.sort_unstable();
    let width = all.iter().map(|(class, _)| class.len()).max().unwrap_or(0);
    for (class, arch) in &all {
        writeln!(out, "{class:<width$}  {arch}")?;
    }
    term::note!("{} classes", all.len());
    Ok(())
}
