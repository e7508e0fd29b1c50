//! A folder as a file that is not written yet.

use crate::about;
use crate::array::Array;
use crate::draft::Draft;
use crate::error::Error;
use crate::families::{self, Family};
use crate::folder::Folder;
use crate::images;
use crate::keys;
use crate::pooling;
use crate::tensors::{self, Made};
use crate::vocab;
use gguf::{OwnedValue, TensorType, Writer};
use std::ops::Range;
use std::path::Path;

/// The type of matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Float {
    /// BF16 or F16, as the folder has them; F16 if it has neither.
    #[default]
    AsStored,
    /// All of this type: [`TensorType::F32`], [`TensorType::F16`] or [`TensorType::BF16`].
    Of(TensorType),
}

impl Float {
    /// The type for a folder.
    fn of(self, folder: &Folder) -> TensorType {
        match self {
            Float::Of(ty) => ty,
            Float::AsStored => as_stored(folder),
        }
    }
}

/// What is not in the folder.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The type of matrices.
    pub float: Float,
    /// The name for `tokenizer.ggml.pre`, if it is not to be found out.
    pub pre: Option<String>,
}

/// A folder as a file: metadata, and tensors whose data are made when they are asked for.
pub struct Conversion {
    metadata: Vec<(String, OwnedValue)>,
    tensors: Vec<Tensor>,
    notes: Vec<String>,
}

/// A tensor of the file.
#[derive(Debug)]
pub struct Tensor {
    name: String,
    dims: Vec<usize>,
    ty: TensorType,
    array: Array,
}

impl std::fmt::Debug for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversion").field("tensors", &self.tensors).finish_non_exhaustive()
    }
}

/// Classes of `transformers` that are converted, each with its `general.architecture`.
pub fn classes() -> impl Iterator<Item = (&'static str, &'static str)> {
    families::all().flat_map(|family| family.classes.iter().map(|class| (*class, family.arch)))
}

impl Conversion {
    /// Reads a folder, or a `.safetensors` file in one with what lies beside it.
    ///
    /// # Errors
    /// What is missing in the folder, damaged, or of a kind that is not converted.
    pub fn open(path: &Path, options: &Options) -> Result<Conversion, Error> {
        let mut folder = Folder::open(path)?;
        families::note_class(&mut folder)?;
        let family = families::of(&folder.config)?;
        (family.defaults)(&mut folder.config)?;
        families::note_predicting(&mut folder);
        let arch =
            family.variant.and_then(|variant| variant(&folder.config)).unwrap_or(family.arch);
        let stored = crate::stored::arrays(&folder)?;
        let float = options.float.of(&folder);
        let mut draft = Draft::new(&folder.config, arch);
        keys::compare(&folder.config, family.fixed, arch)?;
        (family.keys)(&mut draft)?;
        if let Some(learnt) = family.learnt {
            learnt(&mut draft, &stored)?;
        }
        pooling::add(&mut draft, &folder)?;
        let mut notes = Vec::new();
        let dense = pooling::dense(&mut draft, &folder, &mut notes)?;
        if folder.config.get("lora_adaptations").is_some() {
            notes.push("its adapters for tasks are left out: it is the model without them".into());
        }
        let mut made = Self::made(family, &draft, stored)?;
        made.extend(dense);
        about::add(&mut draft, &folder, &made)?;
        let kept = made.iter().filter_map(|made| made.array.kept()).next();
        draft.general("general.file_type", kept.unwrap_or(float).info().file.0);
        draft.general("general.quantization_version", 2u32);
        notes.extend(vocab::add(
            &mut draft,
            &folder,
            family.vocab,
            family.pre,
            options.pre.as_deref(),
        )?);
        keys::check(&draft, &mut notes)?;
        let metadata = draft.into_pairs();
        let tensors = made.into_iter().map(|made| Tensor::new(made.ty(float), made));
        Ok(Conversion { metadata, tensors: tensors.collect(), notes })
    }

    /// The image encoder of a folder whose model reads images, as a file of its own (`mmproj`); `None` if the folder
    /// has none. Its matrices are floats, of the type that `options` names.
    ///
    /// # Errors
    /// As [`Conversion::open`]; an encoder of a kind that is not converted too.
    pub fn images(path: &Path, options: &Options) -> Result<Option<Conversion>, Error> {
        let folder = Folder::open(path)?;
        let file = images::file(&folder, options.float.of(&folder))?;
        Ok(file.map(|images::File { metadata, tensors, notes }| {
            let tensors = tensors.into_iter().map(|(made, ty)| Tensor::new(ty, made)).collect();
            Conversion { metadata, tensors, notes }
        }))
    }

    fn made(
        family: &Family,
        draft: &Draft<'_>,
        stored: Vec<(String, Array)>,
    ) -> Result<Vec<Made>, Error> {
        let extra = (family.extra)(draft)?.into_iter().chain(draft.divisors()?);
        let mut all: Vec<Made> =
            extra.map(|(name, array)| Made { name: name.to_owned(), array }).collect();
        all.extend(tensors::tensors(family, draft.arch, draft.config, stored)?);
        Ok(all)
    }

    /// Keys and values, in no particular order.
    pub fn metadata(&self) -> &[(String, OwnedValue)] {
        &self.metadata
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// What a person should know of the result.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The head of the file: all of it before the tensors' data, and the bytes of the whole.
    ///
    /// # Errors
    /// When a tensor or a key cannot be in a file: more dimensions than four, say.
    pub fn head(&self) -> Result<(Vec<u8>, u64), Error> {
        let mut writer = Writer::new();
        for (key, value) in &self.metadata {
            writer.kv(key, value.clone());
        }
        for tensor in &self.tensors {
            writer.tensor_with(&tensor.name, &tensor.dims, tensor.ty, |_| Ok(()));
        }
        Ok(writer.head()?)
    }
}

impl Tensor {
    fn new(ty: TensorType, made: Made) -> Tensor {
        let dims = made.array.shape().iter().rev().copied().collect();
        Tensor { name: made.name, dims, ty, array: made.array }
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Dimensions as files have them: elements of a row first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Its type in the file.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// Rows of all its matrices; 1 of a vector.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// Makes rows as numbers. Of a tensor that is in a type with blocks already, what these stand for.
    ///
    /// # Errors
    /// When numbers cannot be made of its blocks.
    ///
    /// # Panics
    /// When `out` is not as long as the rows.
    pub fn values(&self, rows: Range<usize>, out: &mut [f32]) -> Result<(), gguf::Error> {
        assert_eq!(out.len(), rows.len() * self.cols(), "rows of {}", self.name);
        match self.array.kept() {
            Some(ty) => {
                let mut packed = Vec::new();
                self.array.packed(rows, &mut packed);
                ty.dequantize(&packed, out)?;
            }
            // The elements of a vector are its rows there.
            None if self.dims.len() == 1 => self.array.read(0..self.cols(), out),
            None => self.array.read(rows, out),
        }
        Ok(())
    }

    /// Appends rows in the tensor's type.
    ///
    /// # Errors
    /// When the type cannot hold the numbers.
    pub fn bytes(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<(), gguf::Error> {
        if self.array.kept().is_some() {
            self.array.packed(rows, out);
            return Ok(());
        }
        let mut values = vec![0.0; rows.len() * self.cols()];
        self.values(rows, &mut values)?;
        self.ty.quantize(&values, out)
    }
}

/// The type of half floats that a folder's matrices have.
fn as_stored(folder: &Folder) -> TensorType {
    use crate::dtype::Dtype;
    let matrices = folder.tensors().iter().filter(|tensor| tensor.entry.shape.len() > 1);
    let half = matrices.map(|tensor| tensor.entry.dtype).find_map(|dtype| match dtype {
        Dtype::BF16 => Some(TensorType::BF16),
        Dtype::F16 => Some(TensorType::F16),
        _ => None,
    });
    half.unwrap_or(TensorType::F16)
}
