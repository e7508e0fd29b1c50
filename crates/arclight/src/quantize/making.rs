//! Writing a file with its tensors in other types: one that is there, or one that is made from a folder.

use super::importance::{self, Assigned, Known};
use super::mixes::{About, Mix};
use super::rows;
use crate::error::Error;
use crate::model_info::ModelInfo;
use crate::replace;
use crate::term::{self, plural};
use arclight_engine::ModelFile;
use gguf::{Gguf, Tensor, TensorType, Writer};
use regex::Regex;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// Types by name.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
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

/// What is to be made of a file.
pub(crate) struct Making<'a> {
    pub(crate) file: &'a ModelFile,
    /// Absent only where nothing is written.
    pub(crate) output: Option<&'a Path>,
    /// Absent, if types stay as they are.
    pub(crate) mix: Option<Mix>,
    pub(crate) rules: &'a [Rule],
    pub(crate) pure: bool,
    pub(crate) allow_requantize: bool,
    pub(crate) imatrix: Option<&'a Path>,
    pub(crate) threads: Option<NonZeroUsize>,
    pub(crate) dry_run: bool,
}

impl Making<'_> {
    /// Makes it, with a bar that says `what`.
    pub(crate) fn make(&self, what: &str) -> Result<(), Error> {
        let start = Instant::now();
        let gguf = self.file.stored()?;
        let known = self.imatrix.map(Known::open).transpose()?;
        let types = types(self, &gguf, known.is_some())?;
        if self.dry_run {
            tell(&gguf, &types)?;
        }
        let assigned = importance::assign(&gguf, &types, self.mix, known.as_ref());
        if self.dry_run {
            // It is worth knowing, but was not asked for.
            if let Err(fault) = assigned {
                term::note!("{fault}");
            }
            return Ok(());
        }
        let Assigned { importances, without } = assigned?;
        report(known.as_ref(), &without);
        let output = self.output.ok_or_else(|| Error::usage("say with -o which file to write"))?;
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok());
        let bar = term::byte_bar(what, gguf.tensors().iter().map(|t| t.data.len()).sum());
        let mut writer = Writer::new();
        metadata(&gguf, self.mix, known.as_ref(), &mut writer);
        for ((tensor, &ty), importance) in gguf.tensors().iter().zip(&types).zip(importances) {
            let (threads, bar, file) = (threads.map_or(1, usize::from), &bar, self.file);
            writer.tensor_with(tensor.name(), tensor.shape.dims(), ty, move |out| {
                let done = |bytes| bar.inc(bytes as u64);
                rows::convert(file, tensor, ty, importance, threads, out, &done)
            });
        }
        let (head, bytes) =
            writer.head().map_err(|source| Error::Write { path: output.to_owned(), source })?;
        drop(head);
        replace::room(output, bytes)?;
        let written = replace::file(output, |out| writer.write_to(out));
        bar.finish_and_clear();
        written?;
        let elements = gguf.tensors().iter().map(Tensor::elements).sum();
        let after =
            gguf.tensors().iter().zip(&types).map(|(t, &ty)| bytes_of(t, ty)).sum::<usize>();
        anstream::eprintln!(
            "wrote {}: {}, {} parameters, {} of tensors, {:.2} bits each, in {:.1} s",
            output.display(),
            self.mix.map_or_else(|| ModelInfo::of(&gguf).ty, |mix| mix.name.to_owned()),
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
}

/// The type of every tensor, in the file's order.
fn types(making: &Making<'_>, gguf: &Gguf<'_>, importance: bool) -> Result<Vec<TensorType>, Error> {
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
    let (rules, made) = (making.rules, making.file.is_made());
    let mut unused: Vec<bool> = vec![true; rules.len()];
    let mut choose = |tensor: &Tensor<'_>| {
        let name = tensor.name();
        if !is_matrix(tensor) {
            return Ok(tensor.ty);
        }
        let rule = rules.iter().position(|rule| rule.pattern.is_match(name));
        let ty = match (rule, making.mix) {
            (Some(rule), _) => {
                unused[rule] = false;
                rules[rule].ty
            }
            (None, None) => tensor.ty,
            // What is made in a type of blocks is in the best that there is.
            (None, Some(mix)) if made && mix.base.block_len() == 1 && tensor.ty.block_len() > 1 => {
                tensor.ty
            }
            (None, Some(mix)) if making.pure => models::published::fit(mix.base, tensor.cols()),
            (None, Some(mix)) => mix.choose(name, tensor.cols(), &about),
        };
        if !tensor.cols().is_multiple_of(ty.block_len()) {
            let (cols, len) = (tensor.cols(), ty.block_len());
            return Err(Error::Refused(format!(
                "tensor `{name}` has rows of {cols}, which blocks of {len} ({ty}) do not fill"
            )));
        }
        if tensor.ty.block_len() > 1 && tensor.ty != ty && !making.allow_requantize {
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
        let pattern = &rules[rule].pattern;
        return Err(Error::Refused(format!(
            "no matrix is left for --tensor-type {pattern}: see --dry-run for their names"
        )));
    }
    Ok(types)
}

/// Whether a tensor is multiplied with, so that its type may change. Routers and biases of distances are small and
/// decide much; convolutions of image encoders have rows of few elements.
fn is_matrix(tensor: &Tensor<'_>) -> bool {
    let name = tensor.name();
    let kept = [
        "_norm.weight",
        "ffn_gate_inp.weight",
        "position_embd.weight",
        "token_types.weight",
        "attn_rel_b.weight",
    ];
    // Those of Gemma 3n that llama-quantize leaves alone too.
    let small = ["altup_", "laurel_", "per_layer_model_proj"];
    (2..=3).contains(&tensor.shape.rank())
        && name.ends_with(".weight")
        && !kept.iter().any(|k| name.ends_with(k))
        && !small.iter().any(|k| name.contains(k))
}

fn bytes_of(tensor: &Tensor<'_>, ty: TensorType) -> usize {
    ty.bytes_for(tensor.elements()).expect("rows are whole blocks")
}

/// What the file says, but for its type and what it was made with, and that it was in parts.
fn metadata(gguf: &Gguf<'_>, mix: Option<Mix>, known: Option<&Known>, writer: &mut Writer<'_>) {
    let replaced = |key: &str| {
        mix.is_some() && matches!(key, "general.file_type" | "general.quantization_version")
            || key.starts_with("split.")
            || known.is_some() && key.starts_with(importance::PREFIX)
    };
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !replaced(key)) {
        writer.kv(key, value);
    }
    if let Some(known) = known {
        known.describe(writer);
    }
    if let Some(mix) = mix {
        writer.kv("general.file_type", mix.file_type).kv("general.quantization_version", 2u32);
    }
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
        after += bytes_of(tensor, ty);
    }
    writeln!(out, "{} -> {}", term::size(before), term::size(after))?;
    Ok(())
}
