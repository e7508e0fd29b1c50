//! `GET /openapi.json`: what the server takes and gives, for programs that generate clients and tests.
//!
//! Written by hand, a file per protocol. Tests hold it to the truth: every path that it names is
//! routed, and every field of the requests is in it.

mod anthropic;
mod ollama;
mod openai;
mod operate;
mod responses;
mod schemas;

use axum::Json as JsonBody;
use serde_json::{Map, Value as Json, json};

/// The endpoint.
pub(crate) async fn serve() -> JsonBody<Json> {
    JsonBody(document())
}

/// The document.
pub(crate) fn document() -> Json {
    let paths: Map<String, Json> = [
        openai::paths(),
        responses::paths(),
        anthropic::paths(),
        ollama::paths(),
        operate::paths(),
    ]
    .into_iter()
    .flatten()
    .collect();
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
            "schemas": schemas::all(),
        },
    })
}

/// An operation that takes and gives JSON.
pub(super) fn post(id: &str, summary: &str, request: &str, response: Json) -> Json {
    json!({"post": {
        "operationId": id,
        "summary": summary,
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": reference(request)}},
        },
        "responses": with_faults(response, &["400", "404", "408", "413", "429", "500", "503", "504"]),
    }})
}

/// An operation that only gives.
pub(super) fn get(id: &str, summary: &str, response: Json, faults: &[&str]) -> Json {
    json!({"get": {
        "operationId": id,
        "summary": summary,
        "responses": with_faults(response, faults),
    }})
}

/// Operations whose faults are in the form of another protocol.
pub(super) fn in_words_of(mut item: Json, error: &str) -> Json {
    for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let responses = operation["responses"].as_object_mut();
        for response in responses.into_iter().flat_map(Map::values_mut) {
            let schema = &mut response["content"]["application/json"]["schema"];
            if *schema == reference("Error") {
                *schema = reference(error);
            }
        }
    }
    item
}

/// A schema by its name.
pub(super) fn reference(name: &str) -> Json {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A response of JSON.
pub(super) fn gives(description: &str, schema: &str) -> Json {
    json!({
        "description": description,
        "content": {"application/json": {"schema": reference(schema)}},
    })
}

/// A fault in OpenAI's form.
pub(super) fn fault(description: &str) -> Json {
    gives(description, "Error")
}

/// The success, and faults in OpenAI's form.
fn with_faults(success: Json, statuses: &[&str]) -> Json {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), success);
    for status in ["401"].iter().chain(statuses) {
        let description = match *status {
            "400" => "The request says something that cannot be, or cannot be honoured.",
            "401" => "An API key is needed.",
            "404" => "There is no such model.",
            "408" => "The body did not arrive in time.",
            "413" => "The body is too large.",
            "429" => "The queue is full.",
            "503" => "The model is being loaded, or the server is about to end.",
            "504" => "The answer was not finished in time.",
            _ => "A fault of the server.",
        };
        let mut fault = fault(description);
        if matches!(*status, "429" | "503") {
            fault["headers"] = json!({"Retry-After": {"schema": {"type": "integer"}}});
        }
        responses.insert((*status).to_owned(), fault);
    }
    Json::Object(responses)
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
        let schemas = schemas::all();
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
    fn references_lead_somewhere() {
        let document = document();
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#").skip(1) {
            let pointer = &part[..part.find('"').unwrap()];
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
