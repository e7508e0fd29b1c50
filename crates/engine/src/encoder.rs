//! The image encoder of a model, on the cores of its engine.
//!
//! Its outputs of a tile are kept for a while, as the same image comes again with every turn of a conversation.

use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::file::ModelFile;
use crate::images::Encoded;
use crate::load::LoadProgress;
use crate::options::{KvSize, LoadOptions, Numa};
use graph::{Graph, Inset, KvType, Outputs, Schedules, Shares, Together};
use std::collections::HashMap;
use std::sync::Arc;
use vision::{Processor, Rows, Tile};

/// Bytes of outputs that are kept for tiles that come again.
const KEPT: usize = 256 << 20;

/// An image encoder on the cores of an engine.
pub struct Encoder {
    engine: Engine,
    processor: Processor,
    /// By tile: its outputs, and when they were wanted last.
    known: HashMap<[u8; 16], (Encoded, u64)>,
    bytes: usize,
    now: u64,
}

impl Encoder {
    /// Loads the encoder in `file` for `engine`, on its cores: call it on the thread that loaded the engine.
    ///
    /// # Errors
    /// When the file has no encoder of a supported family, is for a model of another width, or cannot be loaded.
    pub fn load(
        file: &ModelFile,
        engine: &Engine,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Encoder, Error> {
        let processor = processor(file)?;
        let exact = options.kv == KvType::F32.into();
        let kv = if exact { KvType::F32 } else { KvType::F16 }.into();
        let numa = if options.numa == Numa::Pipeline { Numa::Auto } else { options.numa };
        let options = LoadOptions {
            numa,
            kv,
            context: Some(processor.vision().most_patches),
            sequences: Some(1),
            kv_size: KvSize::Each,
            phases: Vec::new(),
            schedules: Schedules::default(),
            schedules_for: None,
            huge_pages: None,
            predicting: false,
            step_tokens: None,
            step_outputs: None,
            ..options.clone()
        };
        let encoder = engine.load_beside(file, &options, progress)?;
        same_width(encoder.executor.graph(), engine.executor.graph())?;
        let (known, bytes, now) = (HashMap::new(), 0, 0);
        Ok(Encoder { engine: encoder, processor, known, bytes, now })
    }

    /// What is made of pictures for it.
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// What the encoder gives of a tile: `[outputs, width]`.
    ///
    /// # Errors
    /// When the tile has more patches than the encoder takes, or a step fails.
    pub fn encode(&mut self, tile: &Tile) -> Result<Arc<Vec<f32>>, Error> {
        self.now += 1;
        if let Some((rows, used)) = self.known.get_mut(&tile.id()) {
            *used = self.now;
            return Ok(rows.clone());
        }
        let encoded = Arc::new(self.compute(&self.processor.rows(tile))?);
        self.keep(tile.id(), encoded.clone());
        Ok(encoded)
    }

    fn compute(&mut self, rows: &Rows) -> Result<Vec<f32>, Error> {
        let sequence = self.engine.new_sequence()?;
        let inset = Inset {
            at: 0,
            len: rows.count,
            rows: &rows.values,
            spots: &rows.spots,
            span: rows.count,
            together: Together::Everywhere,
            runs: &rows.runs,
        };
        // Ids of a sequence that shares nothing tell nothing.
        let tokens = vec![0; rows.count];
        let outputs = Outputs::EachHidden(rows.each);
        let entry = BatchEntry { sequence, tokens: &tokens, outputs };
        let result = self.engine.step_with(&[entry], &[&[inset]]).map(|states| {
            let count = rows.count / rows.each;
            let width = states.hidden(0).len();
            let mut all = vec![0.0; count * width];
            for at in 0..count {
                let place = rows.order.get(at).map_or(at, |&place| place as usize);
                all[place * width..(place + 1) * width].copy_from_slice(states.hidden(at));
            }
            all
        });
        self.engine.free(sequence)?;
        result
    }

    fn keep(&mut self, id: [u8; 16], rows: Encoded) {
        self.bytes += size_of_val(rows.as_slice());
        self.known.insert(id, (rows, self.now));
        while self.bytes > KEPT && self.known.len() > 1 {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            let Some((gone, _)) = oldest.and_then(|id| self.known.remove(&id)) else { break };
            self.bytes -= size_of_val(gone.as_slice());
        }
    }
}

/// What is made of pictures for the encoder in a file.
///
/// # Errors
/// When the file has no encoder of a supported family.
pub fn processor(file: &ModelFile) -> Result<Processor, Error> {
    let gguf = file.gguf()?;
    let read = |of: &gguf::Tensor<'_>, values: &mut [f32]| file.values(of, 0..of.rows(), values);
    Ok(Processor::new(&gguf, &read)?)
}

/// Whether the encoder in one file gives what the model in another takes, from their headers alone.
///
/// # Errors
/// When it has no encoder of a supported family or is for a model of another width, or the model is not supported.
pub fn encoder_fits(encoder: &ModelFile, model: &ModelFile) -> Result<(), Error> {
    processor(encoder)?;
    let graph = |file: &ModelFile| -> Result<Graph, Error> {
        Ok(models::build(&file.gguf()?, Shares::from(1))?.graph)
    };
    same_width(&graph(encoder)?, &graph(model)?)
}

fn same_width(encoder: &Graph, model: &Graph) -> Result<(), Error> {
    let (gives, takes) = (encoder.hidden_width(), model.row_width());
    if gives == takes { Ok(()) } else { Err(Error::EncoderWidth { gives, takes }) }
}
