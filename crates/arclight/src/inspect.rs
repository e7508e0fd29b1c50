//! `arclight inspect`: what is in a model file.

use crate::error::Error;
use crate::hub::named::{self, Missing};
use crate::model_file;
use crate::model_info::{ModelInfo, other_type, type_totals};
use crate::output::{Output, OutputArgs, figure, words};
use crate::term;
use arclight_engine::{Adapter, ModelFile};
use clap::{Args, ValueHint};
use gguf::{Gguf, Value};
use graph::{Graph, Keep, KvType};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// Check a model file and show its metadata and tensors
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Model: a GGUF file (of a split model, any part), a folder of the Hugging Face Hub, or the name of one on
    /// this machine
    #[arg(value_name = "MODEL", value_hint = ValueHint::FilePath, required_unless_present = "model_option")]
    model: Option<PathBuf>,
    /// Model, instead of the first argument
    #[arg(short, long = "model", value_name = "MODEL", value_hint = ValueHint::FilePath,
          conflicts_with = "model")]
    model_option: Option<PathBuf>,
    /// List all tensors: name, shape, type, size
    #[arg(long, conflicts_with = "key")]
    tensors: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Print one metadata value in full
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  arclight inspect model.gguf
  arclight inspect model.gguf --tensors
  arclight inspect model.gguf --key tokenizer.chat_template";

/// Array elements that JSON shows unless one key is asked for.
const SHOWN: usize = 8;

/// Characters of a line of metadata.
const LINE: usize = 100;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<(), Error> {
    let model = args.model.as_deref().or(args.model_option.as_deref()).expect("one is required");
    let file = model_file::open(named::file(model, Missing::Refuse)?)?;
    let gguf = file.survey()?;
    let mut out = Output::new(args.output);
    if let Some(key) = &args.key {
        let value = gguf.metadata().get(key).ok_or_else(|| {
            let file = model.display();
            Error::Refused(format!("{file} has no key {key:?}: without --key all are listed"))
        })?;
        return print_value(value, &mut out);
    }
    if args.output.format.is_data()
        && out.data(&document(&file, &gguf, args.tensors), &["/tensors", "/types"])?
    {
        return Ok(());
    }
    print(&file, &gguf, args.tensors, &mut out)
}

fn print(file: &ModelFile, gguf: &Gguf<'_>, tensors: bool, out: &mut Output) -> Result<(), Error> {
    let info = ModelInfo::of(gguf);
    writeln!(out, "{} {}", info.name, info.ty)?;
    writeln!(
        out,
        "  GGUF version {}, {}, {} parameters, {} of tensors in {} of file",
        gguf.version(),
        info.architecture,
        term::count(info.parameters),
        term::size(info.bytes),
        term::size(file.bytes()),
    )?;
    match built(gguf) {
        _ if Adapter::is_adapter(gguf) => print_adapter(file, out)?,
        Ok(model) => {
            writeln!(out, "  can be run, with contexts up to {}", model.hparams.context)?;
            let active = model.graph.active_elements();
            if active < info.parameters {
                writeln!(out, "  of the parameters, {} are used for a token", term::count(active))?;
            }
            for kv in kv_classes(&model.graph) {
                let layers = term::plural(kv.layers, "layer");
                let token = term::size(kv.bytes_per_token);
                write!(out, "  KV cache in {}: {layers}, {token} a token", KvType::F16)?;
                match kv.window {
                    Some(window) => writeln!(out, ", of which the last {window} are kept")?,
                    None => writeln!(out)?,
                }
            }
        }
        Err(e) => writeln!(out, "  cannot be run: {e}")?,
    }
    writeln!(out, "\nmetadata, {}", term::plural(gguf.metadata().len(), "key"))?;
    let width = gguf.metadata().iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    for (key, value) in gguf.metadata().iter() {
        let most = LINE.saturating_sub(width + 4).max(40);
        writeln!(out, "  {key:<width$}  {}", brief(value, most))?;
    }
    if tensors {
        writeln!(out, "\ntensors")?;
        out.table(rows(gguf).into_iter().map(|t| {
            let dims = t.shape.dims().iter().map(usize::to_string).collect::<Vec<_>>();
            let mib = t.bytes as f64 / f64::from(1 << 20);
            [
                words("name", 0, t.name),
                figure("shape", 16, dims.join(" x ")),
                words("type", 7, t.ty),
                figure("MiB", 10, format_args!("{mib:.3}")),
            ]
        }))?;
    }
    let all = gguf.tensors().len() + gguf.others().len();
    writeln!(out, "\ntypes, {}", term::plural(all, "tensor"))?;
    out.table(type_totals(gguf).into_iter().map(|(ty, total)| {
        [
            words("type", 7, ty),
            figure("tensors", 5, total.tensors),
            figure("parameters", 9, term::count(total.elements)),
            figure("bytes", 10, term::size(total.bytes)),
        ]
    }))?;
    if !gguf.others().is_empty() {
        writeln!(
            out,
            "{} of types that are not supported: their bytes are those up to the next tensor",
            term::plural(gguf.others().len(), "tensor")
        )?;
    }
    Ok(())
}

/// The model that a file has.
fn built(gguf: &Gguf<'_>) -> Result<models::Model, String> {
    match gguf.others().first() {
        Some(other) => Err(other.fault().to_string()),
        None => models::build(gguf, 1).map_err(|e| e.to_string()),
    }
}

/// A tensor of a list.
struct Row<'a> {
    name: &'a str,
    shape: gguf::Shape,
    ty: Cow<'static, str>,
    bytes: usize,
    offset: u64,
    part: usize,
    supported: bool,
}

/// All tensors, of supported types or not, by their places if there are others among them.
fn rows<'a>(gguf: &Gguf<'a>) -> Vec<Row<'a>> {
    let known = gguf.tensors().iter().map(|t| Row {
        name: t.name(),
        shape: t.shape,
        ty: t.ty.name().into(),
        bytes: t.data.len(),
        offset: t.offset,
        part: t.part,
        supported: true,
    });
    let others = gguf.others().iter().map(|t| Row {
        name: t.name(),
        shape: t.shape,
        ty: other_type(t),
        bytes: t.bytes,
        offset: t.offset,
        part: t.part,
        supported: false,
    });
    let mut all: Vec<Row<'a>> = known.chain(others).collect();
    if !gguf.others().is_empty() {
        all.sort_by_key(|row| (row.part, row.offset));
    }
    all
}

/// What an adapter adds to which models.
fn print_adapter(file: &ModelFile, out: &mut Output) -> Result<(), Error> {
    let adapter = match Adapter::read(file) {
        Ok(adapter) => adapter,
        Err(e) => return Ok(writeln!(out, "  an adapter that cannot be used: {e}")?),
    };
    let ranks = adapter.pairs().iter().map(|pair| pair.a.rows);
    let (least, most) = (ranks.clone().min().unwrap_or(0), ranks.max().unwrap_or(0));
    let ranks =
        if least == most { format!("rank {least}") } else { format!("ranks {least} to {most}") };
    writeln!(
        out,
        "  an adapter (LoRA) for {} models: {} of {ranks}; use it with --lora beside its model",
        adapter.architecture(),
        term::plural(adapter.pairs().len(), "pair"),
    )?;
    Ok(())
}

/// What layers that see equally far keep.
#[derive(Serialize)]
struct KvClass {
    layers: usize,
    /// Tokens of a sliding window.
    window: Option<usize>,
    /// In f16.
    bytes_per_token: usize,
}

fn kv_classes(graph: &Graph) -> Vec<KvClass> {
    let class = |(class, keep): (usize, &Keep)| KvClass {
        layers: graph.class_layers(class),
        window: keep.window(),
        bytes_per_token: graph.kv_bytes_per_token(0, KvType::F16, class),
    };
    let classes = graph.classes().iter().enumerate();
    classes.filter(|(_, keep)| keep.is_paged()).map(class).collect()
}

/// A value on one line of at most `most` characters.
fn brief(value: &Value<'_>, most: usize) -> String {
    let text = match value {
        Value::Array(array) => format!("{} {array}", array.element_type()),
        other => other.to_string(),
    };
    match text.char_indices().nth(most) {
        None => text,
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

fn print_value(value: &Value<'_>, out: &mut Output) -> Result<(), Error> {
    if out.data(&to_json(value, usize::MAX), &[""])? {
        return Ok(());
    }
    match value {
        // Text as it is, whatever its bytes.
        Value::Str(text) => {
            out.write_all(text)?;
            Ok(writeln!(out)?)
        }
        Value::Array(array) => {
            array.values().try_for_each(|v| writeln!(out, "{v}")).map_err(Error::from)
        }
        other => Ok(writeln!(out, "{other}")?),
    }
}

fn document(file: &ModelFile, gguf: &Gguf<'_>, tensors: bool) -> Json {
    let metadata: serde_json::Map<String, Json> =
        gguf.metadata().iter().map(|(key, v)| (key.to_owned(), to_json(v, SHOWN))).collect();
    let types: serde_json::Map<String, Json> =
        type_totals(gguf).into_iter().map(|(ty, t)| (ty.into_owned(), json!(t))).collect();
    if Adapter::is_adapter(gguf) {
        return adapter_document(file, gguf, &metadata);
    }
    let built = built(gguf);
    let kv = built.as_ref().map(|model| kv_classes(&model.graph)).ok();
    let mut document = json!({
        "path": file.path().to_string_lossy(),
        "file_bytes": file.bytes(),
        "version": gguf.version(),
        "model": ModelInfo::of(gguf),
        "runs": built.err().map_or(json!(true), |e| json!(e)),
        "kv_cache": kv,
        "metadata": metadata,
        "types": types,
    });
    if tensors {
        let row = |t: Row<'_>| {
            let mut row = json!({
                "name": t.name, "shape": t.shape.dims(), "type": t.ty,
                "bytes": t.bytes, "offset": t.offset, "part": t.part,
            });
            if !t.supported {
                row["supported"] = json!(false);
            }
            row
        };
        document["tensors"] = rows(gguf).into_iter().map(row).collect();
    }
    document
}

/// The same of an adapter.
fn adapter_document(
    file: &ModelFile,
    gguf: &Gguf<'_>,
    metadata: &serde_json::Map<String, Json>,
) -> Json {
    let adapter = match Adapter::read(file) {
        Err(e) => json!({"fault": e.to_string()}),
        Ok(adapter) => {
            let ranks: BTreeSet<usize> = adapter.pairs().iter().map(|pair| pair.a.rows).collect();
            let pairs = adapter.pairs().iter();
            json!({
                "architecture": adapter.architecture(),
                "ranks": ranks,
                "tensors": pairs.map(|pair| pair.tensor.as_str()).collect::<Vec<_>>(),
            })
        }
    };
    json!({
        "path": file.path().to_string_lossy(),
        "file_bytes": file.bytes(),
        "version": gguf.version(),
        "adapter": adapter,
        "metadata": metadata,
    })
}

/// Long arrays become their first elements and their length.
fn to_json(value: &Value<'_>, most: usize) -> Json {
    match value {
        Value::Bool(v) => json!(v),
        Value::Str(v) => json!(String::from_utf8_lossy(v)),
        Value::Array(a) if a.len() > most => json!({
            "first": a.values().take(most).map(|v| to_json(&v, most)).collect::<Vec<_>>(),
            "len": a.len(),
        }),
        Value::Array(a) => a.values().map(|v| to_json(&v, most)).collect(),
        Value::U64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        // All other integers fit.
        other => json!(other.as_int().and_then(|v| i64::try_from(v).ok())),
    }
}
