//! Tokens with a role, and what text begins and ends with.

use super::text_of;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use gguf::OwnedValue;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;

/// Roles that files of the Hub name.
pub(super) const NAMED: [&str; 7] = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];

/// The metadata key of a role.
pub(super) fn key(role: &str) -> String {
    let name = match role {
        "unk" => "unknown",
        "sep" => "seperator",
        "pad" => "padding",
        other => other,
    };
    format!("tokenizer.ggml.{name}_token_id")
}

/// Tokens with a role and chat templates.
#[derive(Debug, Default)]
pub(super) struct Special {
    ids: Vec<(&'static str, u32)>,
    add: Vec<(&'static str, bool)>,
    templates: Vec<(String, String)>,
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
    /// Tokens of the vocabulary, if numbers are held against it.
    limit: Option<usize>,
}

impl Special {
    /// Reads tokenizer.json, tokenizer_config.json (`told`), the templates and config.json.
    pub(super) fn read(
        folder: &Folder,
        told: Option<Value>,
        limit: Option<usize>,
    ) -> Result<Special, Error> {
        let mut special = Special { limit, ..Special::default() };
        let json = folder.json("tokenizer.json")?;
        let mut roles: Vec<&'static str> = NAMED.to_vec();
        let mut texts: HashMap<&'static str, String> = HashMap::new();
        for role in NAMED {
            let text = told.as_ref().and_then(|told| text_of(told.get(format!("{role}_token"))?));
            texts.extend(text.map(|text| (role, text.to_owned())));
        }
        if let Some(json) = &json {
            special.normalizer(&json["normalizer"]);
            special.processor(&json["post_processor"], told.is_some(), &mut texts, &mut roles);
        }
        if let Some(told) = &told {
            special.templates = templates(folder, told)?;
            let added = json.as_ref().and_then(|json| json["added_tokens"].as_array());
            for role in roles.iter().copied() {
                if let Some(add) = told.get(format!("add_{role}_token")).and_then(Value::as_bool) {
                    special.or_add(role, add);
                }
                let Some(text) = texts.get(role) else { continue };
                let found = added.into_iter().flatten().find(|token| token["content"] == **text);
                if let Some(id) = found.and_then(|token| token["id"].as_u64()) {
                    special.give(role, id as u32);
                }
            }
        }
        for role in roles {
            let key = format!("{role}_token_id");
            let id = folder.config.outer(&key).or_else(|| folder.config.get(&key));
            match id {
                Some(Value::Number(id))
                    if id.as_u64().is_some_and(|id| u32::try_from(id).is_ok()) =>
                {
                    special.give(role, id.as_u64().unwrap_or(0) as u32);
                }
                Some(Value::Number(id)) => {
                    return Err(Error::config(format!("{key} is {id}, which no token has")));
                }
                _ => {}
            }
        }
        Ok(special)
    }

    /// Gives a token a role that no other has.
    pub(super) fn give(&mut self, role: &'static str, id: u32) {
        let fits = self.limit.is_none_or(|limit| (id as usize) < limit);
        if fits && self.ids.iter().all(|(known, _)| *known != role) {
            self.ids.push((role, id));
        }
    }

    /// Gives a token a role, whatever had it before.
    pub(super) fn replace(&mut self, role: &'static str, id: u32) {
        self.ids.retain(|(known, _)| *known != role);
        self.give(role, id);
    }

    fn set_add(&mut self, role: &'static str, add: bool) {
        match self.add.iter_mut().find(|(known, _)| *known == role) {
            Some(known) => known.1 = add,
            None => self.add.push((role, add)),
        }
    }

    /// The same unless it is known.
    fn or_add(&mut self, role: &'static str, add: bool) {
        if self.add.iter().all(|(known, _)| *known != role) {
            self.add.push((role, add));
        }
    }

    fn normalizer(&mut self, normalizer: &Value) {
        match normalizer["type"].as_str() {
            Some("Lowercase") => self.lowercase = Some(true),
            Some("StripAccents") => self.strip_accents = Some(true),
            Some("BertNormalizer") => {
                self.lowercase = normalizer["lowercase"].as_bool().or(self.lowercase);
                self.strip_accents = normalizer["strip_accents"].as_bool().or(self.strip_accents);
            }
            Some("Sequence") => {
                normalizer["normalizers"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|n| self.normalizer(n));
            }
            _ => {}
        }
    }

    /// What stands before and after a text.
    fn processor(
        &mut self,
        processor: &Value,
        told: bool,
        texts: &mut HashMap<&'static str, String>,
        roles: &mut Vec<&'static str>,
    ) {
        for (role, other) in [("bos", "cls"), ("eos", "sep")] {
            if told
                && !texts.contains_key(role)
                && let Some(text) = texts.get(other).cloned()
            {
                texts.insert(role, text);
            }
        }
        let parts = processor["processors"].as_array();
        let parts = parts.map_or_else(|| vec![processor], |parts| parts.iter().collect());
        for part in parts {
            match part["type"].as_str() {
                Some("ByteLevel") => {
                    self.or_add("bos", false);
                    self.or_add("eos", false);
                }
                Some("RobertaProcessing") => {
                    for role in ["bos", "eos", "sep"] {
                        self.set_add(role, true);
                    }
                    for (role, other) in [("cls", "bos"), ("sep", "eos")] {
                        let text = part[role][0].as_str().map(str::to_owned);
                        let text = text.or_else(|| texts.get(other).cloned());
                        if told && !texts.contains_key(role) {
                            texts.extend(text.map(|text| (role, text)));
                        }
                    }
                }
                Some("TemplateProcessing") => self.template(part, told, texts, roles),
                _ => {}
            }
        }
    }

    /// A template of special tokens and texts: the first and the last of one text, and what lies between two.
    fn template(
        &mut self,
        part: &Value,
        told: bool,
        texts: &mut HashMap<&'static str, String>,
        roles: &mut Vec<&'static str>,
    ) {
        let token = |value: Option<&Value>| {
            value.and_then(|value| value["SpecialToken"]["id"].as_str()).map(str::to_owned)
        };
        let single: Vec<&Value> = part["single"].as_array().into_iter().flatten().collect();
        let (mut first, mut last) = (None, None);
        if single.len() > 1 {
            first = token(single.first().copied());
            last = token(single.last().copied());
        }
        if let Some(first) = &first {
            let is = |texts: &HashMap<_, String>, role| texts.get(role) == Some(first);
            if !told {
                texts.insert("bos", first.clone());
            } else if !is(texts, "bos") && !is(texts, "cls") {
                for role in ["bos", "cls"] {
                    texts.entry(role).or_insert_with(|| first.clone());
                }
            }
            self.set_add("bos", is(texts, "bos") || is(texts, "cls"));
        }
        if let Some(last) = &last {
            if told && texts.get("eos") != Some(last) {
                // What the folder names the end is the end of a turn, then.
                for role in ["eot", "eom"] {
                    if !roles.contains(&role) {
                        roles.push(role);
                        if let Some(eos) = texts.get("eos").cloned() {
                            texts.insert(role, eos);
                        }
                        break;
                    }
                }
            }
            texts.insert("eos", last.clone());
            self.set_add("eos", true);
        }
        let mut pair: Vec<&Value> = part["pair"].as_array().into_iter().flatten().collect();
        if pair.is_empty() {
            return;
        }
        if first.is_some() && token(pair.first().copied()) == first {
            pair.remove(0);
        }
        if last.is_some() && token(pair.last().copied()) == last {
            pair.pop();
        }
        let sequence = |value: Option<&&Value>| {
            value.and_then(|value| value["Sequence"]["id"].as_str()).map(str::to_owned)
        };
        let ends = (sequence(pair.first()), sequence(pair.last()));
        if pair.len() < 3 || (ends.0.as_deref(), ends.1.as_deref()) != (Some("A"), Some("B")) {
            return;
        }
        let between = &pair[1..pair.len() - 1];
        let separates = |text: &Option<String>| {
            text.as_ref()
                .is_some_and(|text| ["sep", "eos"].iter().any(|role| texts.get(role) == Some(text)))
        };
        let mut add = separates(&token(Some(between[0]))) && last.is_none();
        if between.len() == 2 {
            add |= separates(&token(Some(between[1])));
        }
        self.set_add("sep", add);
        if add
            && told
            && !texts.contains_key("sep")
            && let Some(eos) = texts.get("eos").cloned()
        {
            texts.insert("sep", eos);
        }
    }

    /// Adds all of it to the metadata.
    pub(super) fn put(self, draft: &mut Draft<'_>) {
        // Files have no place for the class token.
        for (role, id) in self.ids.into_iter().filter(|(role, _)| *role != "cls") {
            draft.general(key(role), id);
        }
        for (role, add) in self.add {
            if matches!(role, "bos" | "eos" | "sep") {
                draft.general(format!("tokenizer.ggml.add_{role}_token"), add);
            }
        }
        let mut names: Vec<String> = Vec::new();
        for (name, template) in self.templates {
            match &*name {
                "default" => draft.general("tokenizer.chat_template", template),
                _ => {
                    draft.general(format!("tokenizer.chat_template.{name}"), template);
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        if !names.is_empty() {
            draft.general("tokenizer.chat_templates", OwnedValue::strings(&names));
        }
        if let Some(lowercase) = self.lowercase {
            draft.general("tokenizer.ggml.normalizer.lowercase", lowercase);
        }
        if let Some(strip) = self.strip_accents {
            draft.general("tokenizer.ggml.normalizer.strip_accents", strip);
        }
    }
}

/// Chat templates by name. Those in tokenizer_config.json come before those in files of their own.
fn templates(folder: &Folder, told: &Value) -> Result<Vec<(String, String)>, Error> {
    let one = |text: String| vec![("default".to_owned(), text)];
    match told.get("chat_template") {
        Some(Value::String(text)) => return Ok(one(text.clone())),
        Some(Value::Array(list)) => {
            let named = |entry: &Value| {
                let name = plain(entry["name"].as_str()?);
                let template = entry["template"].as_str()?.to_owned();
                (!name.is_empty()).then_some((name, template))
            };
            return Ok(list.iter().filter_map(named).collect());
        }
        _ => {}
    }
    if let Some(text) = folder.text("chat_template.jinja")? {
        let mut all = one(text);
        let mut more: Vec<_> = fs::read_dir(folder.path.join("additional_chat_templates"))
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        more.sort();
        for path in more.iter().filter(|path| path.extension().is_some_and(|e| e == "jinja")) {
            let text = fs::read_to_string(path)
                .map_err(|source| Error::Read { path: path.clone(), source })?;
            let name = path.file_stem().map(|name| plain(&name.to_string_lossy()));
            all.extend(name.map(|name| (name, text)));
        }
        return Ok(all);
    }
    let json = folder.json("chat_template.json")?;
    let text = json.as_ref().and_then(|json| json["chat_template"].as_str());
    Ok(text.map(|text| one(text.to_owned())).unwrap_or_default())
}

/// A name of letters, digits and `_`.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
