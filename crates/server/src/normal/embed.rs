//! Texts as vectors: what the model's last layer makes of them, pooled and of length one.

use super::beside::beside;
use super::request::TextPrompt;
use super::start::{encode_plain, known_tokens};
use crate::fault::Fault;
use crate::http::{Client, Room};
use crate::model::Model;
use crate::state::App;
use arclight_engine::{Adapted, Request, cut};
use axum::http::StatusCode;

/// The vectors of several texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vectors {
    pub(crate) vectors: Vec<Vec<f32>>, // [texts][dimensions]
    /// Tokens of all texts.
    pub(crate) tokens: usize,
}

/// What texts become.
#[derive(Clone, Debug, Default)]
pub(crate) struct EmbedRequest {
    pub(crate) texts: Vec<TextPrompt>,
    /// Keeps the first so many values of each vector, for models that were trained so
    /// (arXiv:2205.13147).
    pub(crate) dimensions: Option<usize>,
    /// The adapters; `None`: those of all requests.
    pub(crate) adapters: Option<Vec<Adapted>>,
    /// Cuts texts that are longer than the context; otherwise they are refused.
    pub(crate) truncate: bool,
    /// The claim on memory of the values of the request.
    pub(crate) room: Room,
}

/// Computes the vectors.
///
/// # Errors
/// When the request cannot be served, or is not in time.
pub(crate) async fn embed(
    app: &App,
    client: Client,
    request: EmbedRequest,
) -> Result<Vectors, Fault> {
    let model = app.model()?;
    if model.score.is_some() {
        let message =
            "this model ranks texts (/v1/rerank): what it makes of one is a score and no vector";
        return Err(Fault::invalid(message).code("no_embeddings"));
    }
    let EmbedRequest { texts, dimensions, adapters, truncate, room } = request;
    let _texts = room.of_text();
    let context = model.replicas.context();
    let encode = move |model: &Model| {
        let encoded = texts.into_iter().enumerate().map(|(at, text)| {
            let mut tokens = match text {
                TextPrompt::Text(text) => encode_plain(model, &text)?,
                TextPrompt::Tokens(tokens) => known_tokens(model, tokens, "input", at)?.tokens,
            };
            if truncate {
                cut(&mut tokens, context);
            }
            Ok(tokens)
        });
        let encoded = encoded.collect::<Result<Vec<_>, Fault>>();
        drop(room);
        encoded
    };
    let texts = beside(model.clone(), encode).await?;
    let vectors = pooled(app, &model, client, &adapters, &texts).await?;
    let vectors = vectors.iter().map(|vector| unit(vector, dimensions));
    let tokens = texts.iter().map(Vec::len).sum();
    Ok(Vectors { vectors: vectors.collect::<Result<_, Fault>>()?, tokens })
}

/// What the model makes of each text, as it is.
///
/// # Errors
/// When the file's kind of pooling is not known, or it takes too long.
pub(super) async fn pooled(
    app: &App,
    model: &Model,
    client: Client,
    adapters: &Option<Vec<Adapted>>,
    texts: &[Vec<u32>],
) -> Result<Vec<Vec<f32>>, Fault> {
    let pooling = app.now().pooling.or(model.pooling).ok_or_else(|| {
        Fault::invalid(
            "this model's file asks for a kind of pooling that is not supported; the server's \
             --pooling may choose one that is",
        )
        .code("no_embeddings")
    })?;
    let deadline = client.deadline(app.now().request_timeout);
    let mut vectors = Vec::with_capacity(texts.len());
    // As many at once as can run: long lists leave room in the queue for others.
    let slots: usize = model.replicas.replicas().iter().map(|replica| replica.sequences).sum();
    for some in texts.chunks(slots.max(1)) {
        let request = |tokens: &Vec<u32>| Request {
            pooling: Some(pooling),
            adapters: adapters.clone(),
            client: client.0,
            priority: client.priority(0),
            deadline,
            ..Request::new(tokens.clone())
        };
        for mut ticket in model.replicas.submit_all(some.iter().map(request).collect())? {
            while let Some(token) = ticket.recv().await {
                token?;
            }
            if ticket.pooled().is_empty() {
                let message = "the texts took longer than a request may";
                return Err(Fault::new(StatusCode::GATEWAY_TIMEOUT, message).code("timeout"));
            }
            vectors.push(ticket.pooled().to_vec());
        }
    }
    if let Some(key) = app.options.keys.of(client.0) {
        key.count(texts.iter().map(|text| text.len() as u64).sum());
    }
    Ok(vectors)
}

/// The first `dimensions` values, of length one together.
fn unit(vector: &[f32], dimensions: Option<usize>) -> Result<Vec<f32>, Fault> {
    arclight_engine::unit(vector, dimensions).ok_or_else(|| {
        let message = format!("dimensions must be from 1 to {}", vector.len());
        Fault::field("dimensions", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one() {
        assert_eq!(unit(&[3.0, -4.0, 12.0], Some(2)).unwrap(), [0.6, -0.8]);
        assert_eq!(unit(&[0.0, 0.0], None).unwrap(), [0.0, 0.0]);
        assert_eq!(unit(&[f32::MAX, f32::MAX], None).unwrap(), [0.5_f32.sqrt(); 2]);
        for wrong in [0, 4] {
            let fault = unit(&[1.0; 3], Some(wrong)).unwrap_err();
            assert!(fault.message.contains("from 1 to 3"), "{}", fault.message);
        }
    }

    #[test]
    fn long_texts_keep_their_end() {
        let mut tokens = vec![1, 2, 3, 4, 9];
        cut(&mut tokens, 5);
        assert_eq!(tokens, [1, 2, 3, 4, 9]);
        cut(&mut tokens, 3);
        assert_eq!(tokens, [1, 2, 9]);
        cut(&mut tokens, 1);
        assert_eq!(tokens, [9]);
    }
}
