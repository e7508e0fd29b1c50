//! `GET /openapi.json`: what the server takes and gives, for programs that generate clients and tests.
//!
//! The schemas are derived from the types that requests are read as and answers are written from, with the comments of
//! their fields. What is read by hand inside of requests has types in the `shapes` of each protocol.

mod batches;
mod document;
mod page;
mod paths;

use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use document::Document;
pub(crate) use page::page;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// The endpoint.
pub(crate) async fn serve(State(app): State<Arc<App>>) -> JsonBody<Json> {
    JsonBody(of(&app))
}

/// The document of a server.
fn of(app: &App) -> Json {
    // What concerns no model has no name.
    document(app.options.names.is_empty())
}

/// The document of a server with one model, or with several.
pub(crate) fn document(several: bool) -> Json {
    let mut document = Document::new();
    paths::openai(&mut document);
    paths::responses(&mut document);
    batches::batches(&mut document);
    paths::anthropic(&mut document);
    paths::ollama(&mut document);
    paths::operate(&mut document);
    if several {
        paths::several(&mut document);
    }
    let (paths, schemas) = document.finish();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Arclight",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Large language models on CPUs, with the APIs of OpenAI, Anthropic and Ollama.",
        },
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::MessagesBody;
    use crate::ollama;
    use crate::openai::chat::ChatBody;
    use crate::openai::completions::TextBody;
    use crate::openai::embeddings;
    use crate::openai::sampling::Sampling;
    use crate::responses::ResponseBody;
    use serde::de::value::Error;
    use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

    /// Tells the names of a struct's fields, and gives no values for them.
    struct Fields<'f>(&'f mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("not a struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(fields);
            Err(Error::custom("names only"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    #[test]
    fn requests_have_the_fields_that_are_read_and_no_others() {
        fn fields<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
            let mut found = Vec::new();
            assert!(T::deserialize(Fields(&mut found)).is_err());
            found
        }
        let document = document(true);
        let schemas = &document["components"]["schemas"];
        let told = |name: &str| {
            let properties = schemas[name]["properties"].as_object().unwrap();
            properties.keys().cloned().collect::<std::collections::BTreeSet<String>>()
        };
        let read = |own: Vec<&str>| {
            own.into_iter().chain(fields::<Sampling>()).map(str::to_owned).collect()
        };
        assert_eq!(told("ChatRequest"), read(fields::<ChatBody>()));
        assert_eq!(told("TextRequest"), read(fields::<TextBody>()));
        assert_eq!(told("ResponseRequest"), read(fields::<ResponseBody>()));
        let only = |own: Vec<&str>| own.into_iter().map(str::to_owned).collect();
        assert_eq!(told("EmbeddingRequest"), only(fields::<embeddings::EmbedBody>()));
        assert_eq!(told("RerankRequest"), only(fields::<crate::rerank::RerankBody>()));
        assert_eq!(told("OllamaEmbed"), only(fields::<ollama::EmbedBody>()));
        assert_eq!(told("AnthropicRequest"), only(fields::<MessagesBody>()));
        let ollama = |own: Vec<&str>| {
            own.into_iter().chain(fields::<ollama::Shared>()).map(str::to_owned).collect()
        };
        assert_eq!(told("OllamaChat"), ollama(fields::<ollama::ChatBody>()));
        assert_eq!(told("OllamaGenerate"), ollama(fields::<ollama::GenerateBody>()));
    }

    #[test]
    fn fields_of_requests_are_described() {
        let document = document(true);
        for request in document["paths"].as_object().unwrap().values() {
            let body = &request["post"]["requestBody"]["content"]["application/json"]["schema"];
            let Some(name) = body["$ref"].as_str() else { continue };
            let properties = document.pointer(&name[1..]).unwrap()["properties"].as_object();
            for (field, schema) in properties.unwrap() {
                assert!(schema["description"].is_string(), "{name}: {field}: {schema}");
            }
        }
    }

    /// A request that a field was added to.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Grown {
        /// What is new.
        #[schemars(range(max = 7))]
        new: Option<usize>,
    }

    #[test]
    fn a_new_field_is_in_the_document() {
        let mut document = Document::new();
        document.post::<document::Both<Grown, Sampling>, String>("/grown", "grown", "Grow");
        let (_, schemas) = document.finish();
        let field = &schemas["Grown"]["properties"]["new"];
        let expected = json!({
            "description": "What is new.", "type": ["integer", "null"], "minimum": 0, "maximum": 7,
        });
        assert_eq!(field, &expected);
        assert!(schemas["Grown"]["properties"]["temperature"].is_object());
    }

    #[test]
    fn references_lead_somewhere() {
        let document = document(true);
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#").skip(1) {
            let pointer = &part[..part.find('"').unwrap()];
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
