//! `GET /docs`: the OpenAPI document as a page, for people. It asks for nothing else, and runs no script.

use super::of;
use crate::state::App;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value as Json;
use std::sync::Arc;

/// Nothing is loaded from anywhere; the page's own style alone.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
    color-scheme:light dark}code{font-family:ui-monospace,monospace}summary{cursor:pointer;padding:.4rem 0}\
    table{border-collapse:collapse;margin:.5rem 0 1rem}td{padding:.15rem .8rem .15rem 0;vertical-align:top}\
    .m{display:inline-block;min-width:4.5rem;font-weight:600}";

/// The endpoint.
pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    let more = [(HeaderName::from_static("x-content-type-options"), "nosniff")];
    (headers, more, Html(html(&of(&app)))).into_response()
}

fn html(document: &Json) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Arclight: endpoints</title><style>{STYLE}</style></head>\
         <body><h1>Endpoints</h1><p>{} {} — the same for programs: \
         <a href=\"/openapi.json\">/openapi.json</a></p>",
        escaped(text(&document["info"]["title"])),
        escaped(text(&document["info"]["version"])),
    );
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            page.push_str(&format!(
                "<details><summary><span class=\"m\">{}</span><code>{}</code> {}</summary>",
                method.to_uppercase(),
                escaped(path),
                escaped(text(&operation["summary"])),
            ));
            page.push_str(&fields(document, operation));
            page.push_str("</details>");
        }
    }
    page.push_str("</body></html>");
    page
}

/// The fields of a request.
fn fields(document: &Json, operation: &Json) -> String {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let schema = match schema["$ref"].as_str().and_then(|to| to.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or(&Json::Null),
        None => schema,
    };
    let mut table = String::new();
    let required = |name: &str| {
        let list = schema["required"].as_array();
        list.is_some_and(|list| list.iter().any(|of| of == name))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let must = if required(name) { " (required)" } else { "" };
        table.push_str(&format!(
            "<tr><td><code>{}</code>{must}</td><td>{}</td></tr>",
            escaped(name),
            escaped(text(&field["description"])),
        ));
    }
    match table.is_empty() {
        true => "<p>No fields.</p>".into(),
        false => format!("<table>{table}</table>"),
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_on_the_page_and_nothing_is_loaded() {
        let document = super::super::document(true);
        let page = html(&document);
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("<code>{}</code>", escaped(path))), "{path}");
        }
        assert!(page.contains("<code>temperature</code>"));
        for other in ["<script", "src=", "http://", "https://"] {
            assert!(!page.contains(other), "{other}");
        }
        assert_eq!(escaped("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
