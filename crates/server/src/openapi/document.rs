//! The document as it is put together: operations, and the schemas of the types that they take and give.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value as Json, json};
use std::any::type_name;
use std::borrow::Cow;
use std::marker::PhantomData;

/// A request that is read as two types, each with some of its fields. Named as the first.
pub(super) struct Both<A, B>(PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Both<A, B> {
    fn schema_name() -> Cow<'static, str> {
        A::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        type_name::<PhantomData<(A, B)>>().into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut schema, mut more) = (A::json_schema(generator), B::json_schema(generator));
        let fields = more.get_mut("properties").and_then(Json::as_object_mut).map(std::mem::take);
        let own = schema.ensure_object().get_mut("properties").and_then(Json::as_object_mut);
        if let Some(own) = own {
            for (name, field) in fields.into_iter().flatten() {
                own.entry(name).or_insert(field);
            }
        }
        schema
    }
}

pub(super) struct Document {
    /// Makes the schemas of what is read.
    requests: SchemaGenerator,
    /// Makes the schemas of what is written: fields that are always there are required.
    answers: SchemaGenerator,
    paths: Map<String, Json>,
    /// The schema of faults in the protocol of the next operations.
    fault: Json,
}

impl Document {
    pub(super) fn new() -> Document {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.with_transform(RecursiveTransform(bounds))
        };
        Document {
            requests: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
            paths: Map::new(),
            fault: Json::Null,
        }
    }

    /// The paths, and the schemas by their names.
    pub(super) fn finish(mut self) -> (Map<String, Json>, Map<String, Json>) {
        let mut schemas = self.answers.take_definitions(true);
        schemas.extend(self.requests.take_definitions(true));
        (self.paths, schemas)
    }

    /// The operations that follow have faults of this form.
    pub(super) fn faults<F: JsonSchema>(&mut self) {
        self.fault = self.answer::<F>();
    }

    /// The schema of what a request has, or a reference to it.
    pub(super) fn request<R: JsonSchema>(&mut self) -> Json {
        self.requests.subschema_for::<R>().to_value()
    }

    /// The schema of an answer, or a reference to it.
    pub(super) fn answer<A: JsonSchema>(&mut self) -> Json {
        self.answers.subschema_for::<A>().to_value()
    }

    /// An operation that only gives JSON.
    pub(super) fn get<A: JsonSchema>(
        &mut self,
        path: &str,
        id: &str,
        summary: &str,
        faults: &[u16],
    ) -> &mut Json {
        let responses = self.responses::<A>(faults);
        let operation = json!({"operationId": id, "summary": summary, "responses": responses});
        self.operation(path, "get", operation)
    }

    /// An operation that takes and gives JSON.
    pub(super) fn post<R: JsonSchema, A: JsonSchema>(
        &mut self,
        path: &str,
        id: &str,
        summary: &str,
    ) -> &mut Json {
        let schema = self.request::<R>();
        let operation = json!({
            "operationId": id,
            "summary": summary,
            "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
            "responses": self.responses::<A>(&[400, 404, 408, 413, 415, 429, 500, 503, 504]),
        });
        self.operation(path, "post", operation)
    }

    pub(super) fn operation(&mut self, path: &str, method: &str, operation: Json) -> &mut Json {
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        item[method] = operation;
        &mut item[method]
    }

    /// The success, and faults.
    pub(super) fn responses<A: JsonSchema>(&mut self, faults: &[u16]) -> Json {
        let response = |text: &str, schema: &Json| json!({"description": text, "content": {"application/json": {"schema": schema}}});
        let success = self.answer::<A>();
        let mut responses = json!({"200": response("Success.", &success)});
        for status in [401, 403].iter().chain(faults) {
            let text = match status {
                400 => "A value of the request is wrong or not supported.",
                401 => "An API key is needed.",
                403 => "The page, the host or the key may not do this.",
                404 => "There is no such model or response.",
                408 => "The body did not arrive in time.",
                413 => "The body is too large.",
                415 => "The content type is not supported.",
                429 => "The queue is full.",
                501 => "The server was started without the folder for it.",
                503 => "The model is being loaded, or the server is about to end.",
                504 => "The answer was not finished in time.",
                _ => "A fault of the server.",
            };
            let mut fault = response(text, &self.fault);
            if matches!(status, 429 | 503) {
                fault["headers"] = json!({"Retry-After": {"schema": {"type": "integer"}}});
            }
            responses[status.to_string()] = fault;
        }
        responses
    }
}

/// Bounds in place of the names of Rust's integers, of which JSON schema knows none.
fn bounds(schema: &mut Schema) {
    let (least, most) = match schema.get("format").and_then(Json::as_str) {
        Some("uint32") => (None, Some(u32::MAX.into())),
        Some("int64") => (Some(i64::MIN.into()), Some(i64::MAX.into())),
        Some("uint" | "uint64" | "int8" | "uint8") => (None, None),
        _ => return,
    };
    schema.remove("format");
    let bounds: [(&str, Option<Json>); 2] = [("minimum", least), ("maximum", most)];
    let object = schema.ensure_object();
    for (name, bound) in bounds {
        if let Some(bound) = bound {
            object.entry(name).or_insert(bound);
        }
    }
}
