//! Documents by how well they answer a query: what a model that ranks makes of the query with each.

use super::beside::beside;
use super::embed::pooled;
use crate::fault::Fault;
use crate::http::{Client, Room};
use crate::model::Model;
use crate::state::App;
use arclight_engine::Adapted;
use std::ops::Range;
use std::sync::Arc;
use tokenizer::EncodeOptions;

/// What is to be ranked.
#[derive(Clone, Debug)]
pub(crate) struct RankRequest {
    pub(crate) query: String,
    pub(crate) documents: Arc<[String]>,
    /// Most tokens of a document; what is longer is cut.
    pub(crate) most: Option<usize>,
    /// Cuts documents that do not fit into the context beside the query; otherwise they are refused.
    pub(crate) truncate: bool,
    /// The adapters; `None`: those of all requests.
    pub(crate) adapters: Option<Vec<Adapted>>,
    /// Gives a classifier's numbers as they are, instead of shares of one.
    pub(crate) raw: bool,
    /// The claim on memory of the values of the request.
    #[expect(dead_code, reason = "held for as long as the texts")]
    pub(crate) room: Room,
}

/// The score of each document.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    pub(crate) scores: Vec<f32>, // [documents]
    /// Tokens of all, with the query in each.
    pub(crate) tokens: usize,
}

/// Computes the scores.
///
/// # Errors
/// When the model ranks nothing, the request cannot be served, or is not in time.
pub(crate) async fn rank(app: &App, client: Client, request: RankRequest) -> Result<Scores, Fault> {
    let model = app.model()?;
    let score = model.score.ok_or_else(|| {
        let message =
            "this model ranks no texts: its file has no classifier for that (pooling type 4)";
        Fault::invalid(message).code("no_ranking")
    })?;
    let request = Arc::new(request);
    let slots: usize = model.replicas.replicas().iter().map(|replica| replica.sequences).sum();
    let mut found = Scores { scores: Vec::with_capacity(request.documents.len()), tokens: 0 };
    // The query stands in each text, so all of them would be many times as long as the request: there are no more at a
    // time than can run.
    for from in (0..request.documents.len()).step_by(slots.max(1)) {
        let part = from..request.documents.len().min(from + slots.max(1));
        let asked = request.clone();
        let texts = beside(model.clone(), move |model| asked.tokens(model, part)).await?;
        let numbers = pooled(app, &model, client, &request.adapters, &texts).await?;
        found.scores.extend(numbers.iter().map(|numbers| {
            let number = numbers.first().copied().unwrap_or(f32::NAN);
            if request.raw { number } else { score.share(number) }
        }));
        found.tokens += texts.iter().map(Vec::len).sum::<usize>();
    }
    Ok(found)
}

impl RankRequest {
    /// The query with each of some documents, as the model was trained to read them.
    fn tokens(&self, model: &Model, part: Range<usize>) -> Result<Vec<Vec<u32>>, Fault> {
        let pair = |(at, document): (usize, &String)| {
            let mut document = document.clone();
            if let Some(most) = self.most {
                document = begin(model, &document, most)?;
            }
            let tokens = match &model.info.rank_template {
                Some(template) => self.written(model, template, &document)?,
                None => self.paired(model, &document)?,
            };
            let (len, context) = (tokens.len(), model.replicas.context());
            if len <= context {
                return Ok(tokens);
            }
            let what = if self.truncate { "the query alone" } else { "with the query it" };
            let message =
                format!("document {at}: {what} has {len} tokens, and the context holds {context}");
            Err(Fault::field("documents", message))
        };
        let documents = self.documents.iter().enumerate();
        documents.skip(part.start).take(part.len()).map(pair).collect()
    }

    /// As a pair of texts.
    fn paired(&self, model: &Model, document: &str) -> Result<Vec<u32>, Fault> {
        let mut pair = model.tokenizer.pair(&self.query, document)?.ok_or_else(|| {
            let message = "this model's vocabulary has no end of text, and its file no template for pairs \
                           (tokenizer.chat_template.rerank)";
            Fault::invalid(message).code("no_ranking")
        })?;
        if self.truncate {
            pair.cut(model.replicas.context());
        }
        if pair.typed {
            let ids = model.replicas.ids();
            pair.tokens[pair.second.start..].iter_mut().for_each(|id| *id = ids.second(*id));
        }
        Ok(pair.tokens)
    }

    /// In the words of the file's template.
    fn written(&self, model: &Model, template: &str, document: &str) -> Result<Vec<u32>, Fault> {
        let encode = |document: &str| {
            let mut texts = [self.query.clone(), document.to_owned()];
            let escape = match &model.escaper {
                Some(escaper) => escaper.escape_texts(&mut texts)?,
                None => None,
            };
            let [query, document] = &texts;
            let text = filled(template, query, document);
            Ok::<_, Fault>(model.tokenizer.encode_rendered(&text, escape, false)?)
        };
        let mut tokens = encode(document)?;
        let context = model.replicas.context();
        if !self.truncate || tokens.len() <= context {
            return Ok(tokens);
        }
        let mut most = model.tokenizer.encode(document, EncodeOptions::default())?.len();
        // A document that ends elsewhere may have another token or two there.
        while tokens.len() > context && most > 0 {
            most = most.saturating_sub(tokens.len() - context);
            tokens = encode(&begin(model, document, most)?)?;
        }
        Ok(tokens)
    }
}

/// A template with a query and a document in their places. What these say is no place.
fn filled(template: &str, query: &str, document: &str) -> String {
    let mut text = String::with_capacity(template.len() + query.len() + document.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let place = [("{query}", query), ("{document}", document)];
        match place.into_iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                text.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                text.push('{');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// The text of its first `most` tokens.
fn begin(model: &Model, text: &str, most: usize) -> Result<String, Fault> {
    let tokens = model.tokenizer.encode(text, EncodeOptions::default())?;
    if tokens.len() <= most {
        return Ok(text.to_owned());
    }
    let kept = model.tokenizer.decode(&tokens[..most], false);
    // Half a character at the end is none.
    Ok(kept.trim_end_matches('\u{FFFD}').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_texts_say_is_no_place_in_a_template() {
        let filled = |template: &str| filled(template, "{document}?", "a {query} b");
        assert_eq!(filled("<{query}> {x} {document}"), "<{document}?> {x} a {query} b");
        assert_eq!(filled("{"), "{");
        assert_eq!(filled("none"), "none");
    }
}
