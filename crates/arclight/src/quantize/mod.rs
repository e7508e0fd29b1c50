//! `arclight quantize`: a model file in another type.
//!
//! Tensors are converted one after the other, the rows of each by all threads, and written as they are
//! made: memory holds a few rows of them. The vocabulary and everything else is copied.

mod importance;
mod mixes;
mod rows;

use crate::error::Error;
use crate::hub::{self, Missing};
use crate::replace;
use crate::term::{self, plural};
use arclight_engine::ModelFile;
use clap::{Args, ValueHint};
use gguf::{Gguf, Tensor, TensorType, Writer};
use importance::{Assigned, Known};
pub(crate) use mixes::mixes;
use mixes::{About, Mix};
use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

/// Write a model file with its matrices in another type
#[derive(Args, Debug)]
#[command(after_help = help())]
pub(crate) struct QuantizeArgs {
    /// Model file in F32, F16 or BF16 (of a series: its first part), or the name of one on this machine
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    input: PathBuf,
    /// File to write; an existing one is replaced
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Type of the file, such as Q4_K_M; see below
    #[arg(long = "type", value_name = "TYPE")]
    mix: Mix,
    /// Type of the matrices whose names contain a match of this regular expression, as in
    /// 'ffn_down=Q6_K'; may be given several times, the first that matches counts
    #[arg(long, value_name = "PATTERN=TYPE")]
    tensor_type: Vec<Rule>,
    /// Importance matrix, made by llama-imatrix: errors become smaller where the model's inputs are
    /// large. Types below 3.1 bits need one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    imatrix: Option<PathBuf>,
    /// Give every matrix the main type of the mix, the vocabulary too
    #[arg(long)]
    pure: bool,
    /// Take matrices that are quantised already: errors add up, so the result is worse than one made
    /// from the original
    #[arg(long)]
    allow_requantize: bool,
    /// Number of threads [default: one per processor]
    #[arg(short, long, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
    /// Only tell which tensor would get which type
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  arclight quantize model-f16.gguf model-q4_k_m.gguf --type q4_k_m
  arclight quantize model-bf16.gguf small.gguf --type q4_0 --tensor-type 'attn_v=q8_0'
  arclight quantize model-f16.gguf small.gguf --type iq2_xs --imatrix model.imatrix.gguf
  arclight quantize model-f16.gguf x.gguf --type q3_k_m --dry-run";

fn help() -> String {
    let names: Vec<&str> = mixes().iter().map(|mix| mix.name).collect();
    let lines = names.chunks(8).map(|line| format!("  {}\n", line.join(", ")));
    format!(
        "Types, by the bits of most matrices:\n{}  (_S, _M, _L: some matrices have a better type, \
         few to many)\n\n{EXAMPLES}",
        lines.collect::<String>()
    )
}

/// Types by name.
#[derive(Clone, Debug)]
struct Rule {
    pattern: Regex,
    ty: TensorType,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (pattern, ty) = text.rsplit_once('=').ok_or("it is not PATTERN=TYPE")?;
        let names = || gguf::TYPES.map(|info| info.name).join(", ");
        let ty = TensorType::from_name(ty).ok_or_else(|| format!("the types are {}", names()))?;
        let pattern = Regex::new(pattern).map_err(|e| e.to_string())?;
        Ok(Rule { pattern, ty })
    }
}

/// Runs the command.
pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Error> {
    let start = Instant::now();
    let file = ModelFile::open(hub::file(&args.input, Missing::Refuse)?)?;
    let gguf = file.gguf()?;
    let known = args.imatrix.as_deref().map(Known::open).transpose()?;
    let types = types(args, &gguf, known.is_some())?;
    if args.dry_run {
        tell(&gguf, &types)?;
    }
    let assigned = importance::assign(&gguf, &types, args.mix, known.as_ref());
    if args.dry_run {
        // It is worth knowing, but was not asked for.
        if let Err(fault) = assigned {
            term::note!("{fault}");
        }
        return Ok(());
    }
    let Assigned { importances, without } = assigned?;
    report(known.as_ref(), &without);
    let elements = gguf.tensors().iter().map(Tensor::elements).sum();
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let bar = term::byte_bar("quantizing", gguf.tensors().iter().map(|t| t.data.len()).sum());
    let mut writer = Writer::new();
    metadata(&gguf, args.mix, known.as_ref(), &mut writer);
    for ((tensor, &ty), importance) in gguf.tensors().iter().zip(&types).zip(importances) {
        let (threads, bar) = (threads.map_or(1, usize::from), &bar);
        writer.tensor_with(tensor.name(), tensor.shape.dims(), ty, move |out| {
            rows::convert(tensor, ty, importance, threads, out, &|bytes| bar.inc(bytes as u64))
        });
    }
    let written = replace::file(&args.output, |out| writer.write_to(out));
    bar.finish_and_clear();
    written?;
    let after = gguf.tensors().iter().zip(&types).map(|(t, &ty)| bytes(t, ty)).sum::<usize>();
    anstream::eprintln!(
        "wrote {}: {}, {} parameters, {} of tensors, {:.2} bits each, in {:.1} s",
        args.output.display(),
        args.mix.name,
        term::count(elements),
        term::size(after),
        after as f64 * 8.0 / elements as f64,
        start.elapsed().as_secs_f64(),
    );
    let mut by_type = BTreeMap::<TensorType, usize>::new();
    types.iter().for_each(|&ty| *by_type.entry(ty).or_default() += 1);
    let counts = by_type.iter().map(|(ty, &n)| format!("{} in {ty}", plural(n, "tensor")));
    term::note!("{}", counts.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// The type of every tensor, in the file's order.
fn types(args: &QuantizeArgs, gguf: &Gguf<'_>, importance: bool) -> Result<Vec<TensorType>, Error> {
    let m = gguf.metadata();
    let arch = m.str("general.architecture").unwrap_or_default();
    let size = |key: &str| m.opt_u32(&format!("{arch}.{key}")).ok().flatten().unwrap_or(0) as usize;
    let heads = size("attention.head_count");
    let about = About {
        layers: size("block_count"),
        group: heads.checked_div(size("attention.head_count_kv")).unwrap_or(1),
        experts: size("expert_count"),
        tied: gguf.tensor("output.weight").is_none(),
        importance,
    };
    let mut unused: Vec<bool> = vec![true; args.tensor_type.len()];
    let mut choose = |tensor: &Tensor<'_>| {
        let name = tensor.name();
        if !is_matrix(tensor) {
            return Ok(tensor.ty);
        }
        let rule = args.tensor_type.iter().position(|rule| rule.pattern.is_match(name));
        let ty = match rule {
            Some(rule) => {
                unused[rule] = false;
                args.tensor_type[rule].ty
            }
            None if args.pure => models::published::fit(args.mix.base, tensor.cols()),
            None => args.mix.choose(name, tensor.cols(), &about),
        };
        if !tensor.cols().is_multiple_of(ty.block_len()) {
            let (cols, len) = (tensor.cols(), ty.block_len());
            return Err(Error::Refused(format!(
                "tensor `{name}` has rows of {cols}, which blocks of {len} ({ty}) do not fill"
            )));
        }
        if tensor.ty.block_len() > 1 && tensor.ty != ty && !args.allow_requantize {
            return Err(Error::Refused(format!(
                "tensor `{name}` is quantised already ({}): start from F32, F16 or BF16, or say \
                 --allow-requantize",
                tensor.ty
            )));
        }
        let scale = name.strip_suffix(".weight").map(|stem| format!("{stem}.scale"));
        if let Some(scale) = scale.filter(|scale| tensor.ty != ty && gguf.tensor(scale).is_some()) {
            return Err(Error::Refused(format!(
                "tensor `{name}` is {} and multiplied by `{scale}`, which is not converted: start \
                 from F32, F16 or BF16",
                tensor.ty
            )));
        }
        Ok(ty)
    };
    let types = gguf.tensors().iter().map(&mut choose).collect::<Result<_, _>>()?;
    if let Some(rule) = unused.iter().position(|&unused| unused) {
        let pattern = &args.tensor_type[rule].pattern;
        return Err(Error::Refused(format!(
            "no matrix is left for --tensor-type {pattern}: see --dry-run for their names"
        )));
    }
    Ok(types)
}

/// Whether a tensor is multiplied with, so that its type may change. Routers are small and decide
/// much.
fn is_matrix(tensor: &Tensor<'_>) -> bool {
    let name = tensor.name();
    let kept =
        ["_norm.weight", "ffn_gate_inp.weight", "position_embd.weight", "token_types.weight"];
    // Those of Gemma 3n that llama-quantize leaves alone too.
    let small = ["altup_", "laurel_", "per_layer_model_proj"];
    tensor.shape.rank() > 1
        && name.ends_with(".weight")
        && !kept.iter().any(|k| name.ends_with(k))
        && !small.iter().any(|k| name.contains(k))
}

fn bytes(tensor: &Tensor<'_>, ty: TensorType) -> usize {
    ty.bytes_for(tensor.elements()).expect("rows are whole blocks")
}

/// What the file says, but for its type and what it was made with, and that it was in parts.
fn metadata(gguf: &Gguf<'_>, mix: Mix, known: Option<&Known>, writer: &mut Writer<'_>) {
    let replaced = |key: &str| {
        matches!(key, "general.file_type" | "general.quantization_version")
            || key.starts_with("split.")
            || known.is_some() && key.starts_with(importance::PREFIX)
    };
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !replaced(key)) {
        writer.kv(key, value);
    }
    if let Some(known) = known {
        known.describe(writer);
    }
    writer.kv("general.file_type", mix.file_type).kv("general.quantization_version", 2u32);
}

/// Says how much is known, and warns of matrices of which nothing is.
fn report(known: Option<&Known>, without: &[String]) {
    let Some(known) = known else { return };
    let (entries, chunks) = known.size();
    let matrices = if entries == 1 { "matrix" } else { "matrices" };
    term::note!("importances of {entries} {matrices}, from {}", plural(chunks as usize, "chunk"));
    if let [first, rest @ ..] = without {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        tracing::warn!("no importances of `{first}`{more}: all columns count alike");
    }
}

fn tell(gguf: &Gguf<'_>, types: &[TensorType]) -> Result<(), Error> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let width = gguf.tensors().iter().map(|t| t.name().chars().count()).max().unwrap_or(0);
    let (mut before, mut after) = (0, 0);
    for (tensor, &ty) in gguf.tensors().iter().zip(types) {
        let line = format!("{:<width$}  {:>7}", tensor.name(), tensor.ty.name());
        match tensor.ty == ty {
            true => writeln!(out, "{line}")?,
            false => writeln!(out, "{line} -> {ty}")?,
        }
        before += tensor.data.len();
        after += bytes(tensor, ty);
    }
    writeln!(out, "{} -> {}", term::size(before), term::size(after))?;
    Ok(())
}
