//! The items of a request, as messages.
//!
//! References are replaced by the items that they mean; `turns` makes messages of them.

use super::store::{Item, Stored};
use super::turns::Reader;
use crate::fault::Fault;
use crate::http::value;
use crate::state::App;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// The items of `input`, each read and then kept as text: a text is a message of the user's. References are replaced by
/// what they refer to; all get ids, which begin with `key`.
///
/// # Errors
/// 400 for what is neither, for references to what is not kept, and for what cannot be read.
pub(super) fn items(
    (app, owner): (&App, u64),
    key: &str,
    input: Option<Box<RawValue>>,
    reader: &mut Reader<'_>,
) -> Result<Vec<Item>, Fault> {
    let Some(input) = input else { return Ok(Vec::new()) };
    let list: Vec<Box<RawValue>> = match input.get().as_bytes().first() {
        Some(b'[') => value(&input, "input")?,
        Some(b'"') => {
            let text: String = value(&input, "input")?;
            let mut message = json!({
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            });
            return Ok(vec![new(&mut message, "input", (key, 0), reader)?]);
        }
        _ => {
            let message = "input must be a string or a list of items";
            return Err(Fault::field("input", message));
        }
    };
    drop(input);
    let mut kept: HashMap<String, Option<Stored>> = HashMap::new();
    let read = |(at, text): (usize, Box<RawValue>)| {
        let name = format!("input[{at}]");
        // One at a time: values are many times as large as their text.
        let mut item: Json = value(&text, &name)?;
        if item["type"] != "item_reference" {
            return new(&mut item, &name, (key, at), reader);
        }
        let id = item["id"].as_str().unwrap_or_default();
        let response = response_of(id);
        let stored =
            kept.entry(response.clone()).or_insert_with(|| app.responses.get(&response, owner));
        let found = stored.iter().flat_map(|s| &s.items).find(|item| *item.id == *id);
        let found = found.ok_or_else(|| {
            let message = format!("{name}: there is no item {id:?}, or no more");
            Fault::field(format!("{name}.id"), message)
        })?;
        reader.item(&value(&found.text, &name)?, &name)?;
        Ok(found.clone())
    };
    list.into_iter().enumerate().map(read).collect()
}

/// Reads an item and gives it an id, if it has none.
fn new(
    item: &mut Json,
    name: &str,
    (key, at): (&str, usize),
    reader: &mut Reader<'_>,
) -> Result<Item, Fault> {
    reader.item(item, name)?;
    if let Json::Object(fields) = &mut *item
        && fields.get("id").is_none_or(|id| !id.is_string())
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
    self::item(item).ok_or_else(|| Fault::internal("an item cannot be written"))
}

/// An item as it is kept; `None` if it has no id.
pub(super) fn item(item: &Json) -> Option<Item> {
    let text = serde_json::value::to_raw_value(item).ok()?;
    Some(Item { id: item["id"].as_str()?.into(), text: text.into() })
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
