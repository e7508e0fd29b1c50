//! Where values of any shape can stand: each field of each endpoint, and what is read by hand further inside.

use serde_json::{Map, Value as Json, json};

/// Stands for the value.
const HERE: &str = "<here>";

/// A request with a place for a value.
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) name: String,
    /// It is read by hand.
    pub(crate) within: bool,
    /// The body, with a mark for the value.
    body: String,
}

impl Place {
    fn new(path: &str, name: &str, within: bool, body: &Json) -> Place {
        let body = body.to_string();
        assert!(body.contains(&format!("\"{HERE}\"")), "{path} {name}: {body}");
        Place { path: path.to_owned(), name: name.to_owned(), within, body }
    }

    /// The body with a value in its place.
    pub(crate) fn with(&self, value: &str) -> String {
        self.body.replacen(&format!("\"{HERE}\""), value, 1)
    }
}

/// A request that is answered; with a short answer, where it says how long that may be.
fn valid(path: &str) -> Json {
    let user = json!([{"role": "user", "content": "Hi"}]);
    match path {
        "/v1/chat/completions" => json!({"messages": user, "max_tokens": 1}),
        "/v1/messages" | "/v1/messages/count_tokens" => json!({"messages": user, "max_tokens": 1}),
        "/v1/responses" | "/v1/responses/input_tokens" | "/v1/responses/compact" => {
            json!({"input": "Hi", "max_output_tokens": 1, "store": false})
        }
        "/api/chat" => {
            json!({"messages": user, "options": {"num_predict": 1}, "stream": false})
        }
        "/api/generate" => json!({"prompt": "Hi", "options": {"num_predict": 1}, "stream": false}),
        "/v1/completions" | "/v1/completions/render" => json!({"prompt": "Hi", "max_tokens": 1}),
        "/completion" => json!({"prompt": "Hi", "n_predict": 1}),
        "/infill" => json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 1}),
        "/v1/embeddings" | "/api/embed" => json!({"input": "Hi"}),
        "/api/embeddings" => json!({"prompt": "Hi"}),
        "/tokenize" => json!({"prompt": "Hi", "with_pieces": true}),
        "/detokenize" => json!({"tokens": [1]}),
        "/apply-template" | "/v1/chat/completions/render" => json!({"messages": user}),
        "/v1/rerank" | "/v2/rerank" => json!({"query": "Hi", "documents": ["Ho"]}),
        "/v1/score" => json!({"text_1": "Hi", "text_2": "Ho"}),
        "/page/mcp" => json!({"name": "look", "arguments": {}}),
        // What is new, or wants little.
        _ => json!({}),
    }
}

/// A body with some fields more.
fn and(body: Json, more: Json) -> Json {
    let (Json::Object(mut body), Json::Object(more)) = (body, more) else { unreachable!() };
    body.extend(more);
    body.into()
}

/// Places within fields.
fn within(path: &str) -> Vec<(&'static str, Json)> {
    let here = || json!(HERE);
    let function = |parameters: Json| json!({"name": "f", "parameters": parameters});
    let tool = |parameters: Json| json!([{"type": "function", "function": function(parameters)}]);
    let properties = || json!({"type": "object", "properties": {"a": HERE}});
    let message = |more: Json| json!([and(json!({"role": "user"}), more)]);
    let history = |call: Json| {
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "so"}])
    };
    let call = |arguments: Json| json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    match path {
        "/v1/chat/completions" => vec![
            ("parameters", json!({"tools": tool(here())})),
            ("property", json!({"tools": tool(properties())})),
            (
                "property of a forced call",
                json!({"tools": tool(properties()), "tool_choice": "required"}),
            ),
            (
                "custom tool",
                json!({"tools": [{"type": "custom", "custom": {"name": "f", "format": HERE}}]}),
            ),
            ("content", json!({"messages": message(json!({"content": HERE}))})),
            (
                "part",
                json!({"messages": message(json!({"content": [{"type": "text", "text": HERE}]}))}),
            ),
            (
                "other field of a message",
                json!({"messages": message(json!({"content": "Hi", "x": HERE}))}),
            ),
            ("arguments", json!({"messages": history(call(here()))})),
            (
                "call",
                json!({"messages": history(json!({"id": "1", "function": {"name": "f", "x": HERE}}))}),
            ),
            (
                "schema",
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": HERE}}}),
            ),
            (
                "property of a schema",
                json!({"response_format": {"type": "json_schema",
                "json_schema": {"schema": properties()}}}),
            ),
            ("choices of an answer", json!({"structured_outputs": {"choice": HERE}})),
            ("template", json!({"chat_template_kwargs": {"x": HERE}})),
        ],
        "/v1/messages" => vec![
            ("input_schema", json!({"tools": [{"name": "f", "input_schema": HERE}]})),
            ("property", json!({"tools": [{"name": "f", "input_schema": properties()}]})),
            ("content", json!({"messages": message(json!({"content": HERE}))})),
            (
                "input",
                json!({"messages": [{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": HERE}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]}),
            ),
            (
                "result",
                json!({"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": HERE}]}]}),
            ),
            (
                "schema",
                json!({"output_config": {"format": {"type": "json_schema", "schema": HERE}}}),
            ),
        ],
        "/v1/responses" => vec![
            (
                "parameters",
                json!({"tools": [{"type": "function", "name": "f", "parameters": HERE}]}),
            ),
            (
                "property",
                json!({"tools": [{"type": "function", "name": "f", "parameters": properties()}]}),
            ),
            (
                "streamed property",
                json!({"stream": true,
                "tools": [{"type": "function", "name": "f", "parameters": properties()}]}),
            ),
            ("namespace", json!({"tools": [{"type": "namespace", "name": "n", "tools": HERE}]})),
            ("content", json!({"input": message(json!({"content": HERE}))})),
            ("metadata", json!({"metadata": {"x": HERE}})),
            ("kept metadata", json!({"metadata": {"x": HERE}, "store": true})),
            (
                "other call",
                json!({"input": [{"type": "mcp_call", "id": "1", "name": "f", "arguments": HERE}]}),
            ),
            (
                "found tools",
                json!({"input": [{"type": "tool_search_output", "call_id": "1", "tools": HERE}]}),
            ),
            ("schema", json!({"text": {"format": {"type": "json_schema", "schema": HERE}}})),
        ],
        "/api/chat" => vec![
            ("property", json!({"tools": tool(properties())})),
            ("arguments", json!({"messages": history(call(here()))})),
            ("images", json!({"messages": message(json!({"content": "Hi", "images": HERE}))})),
            ("option", json!({"options": {"x": HERE}})),
            ("format", json!({"format": properties()})),
        ],
        "/page/mcp" => vec![("argument", json!({"arguments": {"x": HERE}}))],
        _ => Vec::new(),
    }
}

/// All places of an OpenAPI document.
pub(crate) fn all(document: &Json) -> Vec<Place> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let content = &item["post"]["requestBody"]["content"];
        let Some(schema) = content.get("application/json").map(|json| &json["schema"]) else {
            continue;
        };
        let schema = match schema["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
            Some(pointer) => document.pointer(pointer).unwrap(),
            None => schema,
        };
        // A parameter of a path is an id that there is not.
        let sent = path.replace("{id}", "0").replace("{id_slot}", "0");
        let none = Map::new();
        let fields = schema["properties"].as_object().unwrap_or(&none);
        for name in fields.keys().map(String::as_str).chain(["another field"]) {
            let body = and(valid(path), json!({name: HERE}));
            all.push(Place::new(&sent, name, false, &body));
        }
        for (name, more) in within(path) {
            all.push(Place::new(&sent, name, true, &and(valid(path), more)));
        }
    }
    all
}
