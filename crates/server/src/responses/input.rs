//! The items of a request, as messages.
//!
//! References are replaced by the items that they mean; `turns` makes messages of them.

use super::store::Stored;
use crate::fault::Fault;
use crate::state::App;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The items of `input`: a text is a message of the user's. References are replaced by what they
/// refer to; all get ids, which begin with `key`.
///
/// # Errors
/// 400 for what is neither, and for references to what is not kept.
pub(super) fn items(
    app: &App,
    owner: u64,
    key: &str,
    input: Option<Json>,
) -> Result<Vec<Arc<Json>>, Fault> {
    let list = match input {
        Some(Json::String(text)) => {
            vec![json!({
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            })]
        }
        Some(Json::Array(list)) => list,
        None | Some(Json::Null) => Vec::new(),
        Some(_) => {
            let message = "input must be a string or a list of items";
            return Err(Fault::field("input", message));
        }
    };
    let mut kept: HashMap<String, Option<Stored>> = HashMap::new();
    let item = |(at, mut item): (usize, Json)| {
        if item["type"] == "item_reference" {
            let id = item["id"].as_str().unwrap_or_default();
            let response = response_of(id);
            let stored =
                kept.entry(response.clone()).or_insert_with(|| app.responses.get(&response, owner));
            let found = stored.iter().flat_map(|s| &s.items).find(|item| item["id"] == id);
            return found.cloned().ok_or_else(|| {
                let message = format!("input[{at}]: there is no item {id:?}, or no more");
                Fault::field(format!("input[{at}].id"), message)
            });
        }
        if let Json::Object(fields) = &mut item
            && fields.get("id").is_none_or(Json::is_null)
        {
            let prefix = match fields.get("type").and_then(Json::as_str) {
                Some("function_call") => "fc",
                Some("function_call_output") => "fco",
                Some("reasoning") => "rs",
                None | Some("message") => "msg",
                Some(_) => "item",
            };
            fields.insert("id".into(), item_id(prefix, key, 'i', at).into());
        }
        Ok(Arc::new(item))
    };
    list.into_iter().enumerate().map(item).collect()
}

/// An item's id has that of its response in it: a reference finds both. `part` is `i` for the input,
/// `o` for the output.
pub(super) fn item_id(prefix: &str, key: &str, part: char, at: usize) -> String {
    format!("{prefix}_{key}{part}{at}")
}

/// The response that an item's id belongs to.
fn response_of(id: &str) -> String {
    let key = id.split_once('_').map_or(id, |(_, key)| key);
    let end = key.char_indices().nth(24).map_or(key.len(), |(at, _)| at);
    format!("resp_{}", &key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_items_tell_their_response() {
        let key = "abcdefghijklmnopqrstuvwx";
        assert_eq!(response_of(&item_id("msg", key, 'o', 12)), format!("resp_{key}"));
        assert_eq!(response_of("msg_short"), "resp_short");
        assert_eq!(response_of("äöü"), "resp_äöü");
    }
}
