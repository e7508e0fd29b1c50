//! The paths of files and batches.

use super::document::Document;
use super::paths::parameter;
use crate::batch::{
    BatchBody, BatchObject, Batches, DeletedFile, FileObject, FileObjects, UploadForm,
};
use crate::openai::shapes;
use serde_json::json;

const FILE: &str = "^file-[A-Za-z0-9]+$";
const BATCH: &str = "^batch_[A-Za-z0-9]+$";

pub(super) fn batches(doc: &mut Document) {
    doc.faults::<shapes::Error>();
    let id =
        |pattern| json!([parameter("path", "id", json!({"type": "string", "pattern": pattern}))]);
    let query = |more: &[serde_json::Value], most: u32| {
        let mut all = vec![
            parameter("query", "after", json!({"type": "string"})),
            parameter("query", "limit", json!({"type": "integer", "minimum": 1, "maximum": most})),
        ];
        all.extend_from_slice(more);
        json!(all)
    };
    let form = doc.request::<UploadForm>();
    let responses = doc.responses::<FileObject>(&[400, 408, 413, 429, 500, 501, 503]);
    doc.operation(
        "/v1/files",
        "post",
        json!({
            "operationId": "send_file", "summary": "Send a file of requests",
            "requestBody": {"required": true, "content": {"multipart/form-data": {"schema": form}}},
            "responses": responses,
        }),
    );
    let files = doc.get::<FileObjects>("/v1/files", "files", "Files", &[400, 501]);
    let order = parameter("query", "order", json!({"enum": ["asc", "desc"]}));
    let purpose = parameter("query", "purpose", json!({"type": "string"}));
    files["parameters"] = query(&[order, purpose], 10_000);
    let path = "/v1/files/{id}";
    let file = doc.get::<FileObject>(path, "file", "A file", &[404, 501]);
    file["parameters"] = id(FILE);
    let responses = doc.responses::<DeletedFile>(&[400, 404, 500, 501]);
    doc.operation(
        path,
        "delete",
        json!({
            "operationId": "delete_file", "summary": "Delete a file",
            "responses": responses, "parameters": id(FILE),
        }),
    );
    let path = "/v1/files/{id}/content";
    let content =
        doc.get::<String>(path, "file_content", "The bytes of a file", &[404, 500, 501, 503]);
    content["parameters"] = id(FILE);
    content["responses"]["200"] = json!({
        "description": "The bytes.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    });
    let path = "/v1/batches";
    let summary = "Answer the requests of a file when there is time";
    let unkept = doc.responses::<BatchObject>(&[501])["501"].take();
    let create = doc.post::<BatchBody, BatchObject>(path, "batch_requests", summary);
    create["responses"]["501"] = unkept.clone();
    let list = doc.get::<Batches>(path, "batches", "Batches, the newest first", &[400, 501]);
    list["parameters"] = query(&[], 100);
    let batch = doc.get::<BatchObject>("/v1/batches/{id}", "batch", "A batch", &[404, 501]);
    batch["parameters"] = id(BATCH);
    let responses = doc.responses::<BatchObject>(&[400, 404, 429, 500, 501]);
    doc.operation(
        "/v1/batches/{id}/cancel",
        "post",
        json!({
            "operationId": "cancel_batch", "summary": "Cancel a batch; what is answered stays",
            "responses": responses, "parameters": id(BATCH),
        }),
    );
}
