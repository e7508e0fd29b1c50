//! The model that is asked about: a published one, or that of a file.

use crate::error::Error;
use crate::model_file;
use crate::model_info::ModelInfo;
use crate::synth;
use arclight_engine::{KvTypes, ModelFile};
use models::Model;
use models::published::Published;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use tune::ModelGraphs;

/// A shape and a type, or a file.
#[derive(Clone, Debug)]
pub(crate) enum ModelChoice {
    Shape(Box<Published>),
    File(PathBuf),
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelChoice, String> {
        match text.parse::<Published>() {
            Ok(model) => Ok(ModelChoice::Shape(Box::new(model))),
            // A name with a colon is no file unless there is one.
            Err(e) if text.contains(':') && !PathBuf::from(text).exists() => Err(e.to_string()),
            Err(_) => Ok(ModelChoice::File(text.into())),
        }
    }
}

/// A model and its name.
pub(crate) struct NamedModel {
    pub(crate) name: String,
    pub(crate) model: ModelGraphs<'static>,
}

impl ModelChoice {
    /// The model with its weights: a file, or random ones of the shape, made in memory.
    pub(super) fn open(&self) -> Result<ModelFile, Error> {
        match self {
            ModelChoice::Shape(published) => synth::in_memory(published, synth::DEFAULT_SEED),
            ModelChoice::File(path) => model_file::open(path),
        }
    }

    /// The graph of a run of layers for one node, or of all.
    pub(super) fn graph(&self, layers: Option<Range<usize>>) -> Result<Model, Error> {
        match (self, layers) {
            (ModelChoice::Shape(published), None) => Ok(published.build(1)),
            (ModelChoice::Shape(published), Some(layers)) => {
                let fault = |source| Error::Model { path: published.shape.title.into(), source };
                published.build_part(1, layers).map_err(fault)
            }
            (ModelChoice::File(path), layers) => {
                let file = model_file::open(path)?;
                let gguf = file.gguf()?;
                let built = match layers {
                    None => models::build(&gguf, 1),
                    Some(layers) => models::build_part(&gguf, 1, layers),
                };
                built.map_err(|source| Error::Model { path: path.clone(), source })
            }
        }
    }

    /// The model of a run of layers, for the model of time; they were built once already.
    pub(super) fn part(&self, layers: Range<usize>, kv: KvTypes) -> Result<ModelGraphs<'_>, Error> {
        const BUILT: &str = "what builds for one node builds for all";
        Ok(match self {
            ModelChoice::Shape(published) => ModelGraphs::new(kv, move |shares| {
                published.build_part(shares, layers.clone()).expect(BUILT).graph
            }),
            ModelChoice::File(path) => {
                let file = model_file::open(path)?;
                ModelGraphs::new(kv, move |shares| {
                    let gguf = file.gguf().expect("it was read before");
                    models::build_part(&gguf, shares, layers.clone()).expect(BUILT).graph
                })
            }
        })
    }

    /// The model, with a cache of this type.
    pub(crate) fn read(&self, kv: KvTypes) -> Result<NamedModel, Error> {
        match self {
            ModelChoice::Shape(published) => Ok(NamedModel {
                name: format!("{} {}", published.shape.title, published.mix.name),
                model: ModelGraphs::published(**published, kv),
            }),
            ModelChoice::File(path) => of_file(model_file::open(path)?, kv),
        }
    }
}

/// The model of a file.
pub(crate) fn of_file(file: ModelFile, kv: KvTypes) -> Result<NamedModel, Error> {
    let gguf = file.gguf()?;
    let fault = |source| Error::Model { path: file.path().to_owned(), source };
    models::build(&gguf, 1).map_err(fault)?;
    let info = ModelInfo::of(&gguf);
    let name = format!("{} {}", info.name, info.ty);
    let build = move |shares| {
        let gguf = file.gguf().expect("it was read before");
        models::build(&gguf, shares).expect("what builds for one node builds for all").graph
    };
    Ok(NamedModel { name, model: ModelGraphs::new(kv, build) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::KvType;
    use tune::{Engine, Job, known};

    #[test]
    fn a_shape_and_its_file_are_the_same() {
        let machine = known::kunpeng_920();
        for text in ["tiny:q4_k_m", "tiny:bf16", "tiny:f32"] {
            let published: Published = text.parse().unwrap();
            let file =
                of_file(synth::in_memory(&published, 1).unwrap(), KvType::F16.into()).unwrap();
            let shape = ModelChoice::Shape(Box::new(published)).read(KvType::F16.into()).unwrap();
            for job in [Job::decode(9), Job { tokens: 99, context: 9, chunk: 64, sequences: 1 }] {
                let of = |m: &NamedModel| {
                    job.predict(&machine, &Engine::tensor_parallel(), &m.model, &[3; 4]).unwrap()
                };
                assert_eq!(of(&file), of(&shape), "{text}");
            }
        }
    }

    #[test]
    fn names_are_shapes_or_files() {
        let fault = "qwen9:q4_0".parse::<ModelChoice>().unwrap_err();
        assert!(fault.contains("there is no shape"), "{fault}");
        assert!(matches!("m.gguf".parse(), Ok(ModelChoice::File(_))));
    }
}
