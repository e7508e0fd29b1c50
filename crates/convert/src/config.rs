//! What `config.json` says.

use crate::classes::{self, Class};
use crate::error::Error;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A configuration: that of the text model, where a model has more than one. It notes which keys were read, so that
/// the conversion can refuse those that were not.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    values: Map<String, Value>,
    /// As written, with a part for each model.
    whole: Map<String, Value>,
    class: Option<&'static Class>,
    read: Read,
}

/// The keys that were read. Copies share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Read(Rc<RefCell<BTreeSet<String>>>);

impl Read {
    pub(crate) fn note(&self, key: &str) {
        let mut read = self.0.borrow_mut();
        if !read.contains(key) {
            read.insert(key.to_owned());
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.borrow().contains(key)
    }
}

/// Where models that also see or hear keep what they say of text.
const TEXT: [&str; 5] = ["text_config", "llm_config", "language_config", "lm_config", "lfm"];

impl Config {
    pub(crate) fn new(config: Value) -> Result<Config, Error> {
        let Value::Object(whole) = config else {
            return Err(Error::config("it is no JSON object"));
        };
        let mut values = whole.clone();
        if let Some(text) = TEXT.iter().find_map(|key| whole.get(*key)?.as_object()) {
            values.extend(text.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        let mut config = Config { values, whole, class: None, read: Read::default() };
        config.class = config.architectures().into_iter().find_map(classes::of);
        Ok(config)
    }

    /// The keys of the configuration's class, if they are known.
    pub(crate) fn class(&self) -> Option<&'static Class> {
        self.class
    }

    /// Keys that have values and were not read, with their values.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (&str, &Value)> {
        let unread = |key: &str, value: &Value| !value.is_null() && !self.read.has(key);
        self.values.iter().filter(move |(key, value)| unread(key, value)).map(|(k, v)| (&**k, v))
    }

    pub(crate) fn reads(&self) -> &Read {
        &self.read
    }

    /// A value that is there and not null, which stays unread.
    pub(crate) fn peek(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// A value, or what the class takes where the folder is silent. A null is a statement.
    pub(crate) fn meant(&self, key: &str) -> Option<Value> {
        match self.values.contains_key(key) {
            true => self.get(key).cloned(),
            false => self.class?.takes(key).cloned(),
        }
    }

    /// Whether a switch is on, by the folder or by its class.
    pub(crate) fn meant_flag(&self, key: &str) -> bool {
        self.meant(key).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// A number, by the folder or by its class.
    pub(crate) fn meant_number(&self, key: &str) -> Result<Option<f64>, Error> {
        self.meant(key).map(|value| number(key, &value)).transpose()
    }

    /// A count, by the folder or by its class.
    pub(crate) fn meant_size(&self, key: &str) -> Result<Option<usize>, Error> {
        self.meant(key).map(|value| size(key, &value)).transpose()
    }

    /// The model's classes: that of the whole and that of the text model.
    pub(crate) fn architectures(&self) -> Vec<&str> {
        let all = [&self.whole, &self.values];
        let names = all
            .into_iter()
            .filter_map(|map| map.get("architectures")?.as_array()?.first()?.as_str());
        let mut names: Vec<&str> = names.collect();
        names.dedup();
        names
    }

    /// A value that is there and not null.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.read.note(key);
        self.peek(key)
    }

    /// Whether a key is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// The same of the whole model, not of its text alone.
    pub(crate) fn outer(&self, key: &str) -> Option<&Value> {
        self.read.note(key);
        self.whole.get(key).filter(|value| !value.is_null())
    }

    /// The part of another model than that of text, with the whole around it.
    pub(crate) fn part(&self, key: &str) -> Option<Config> {
        let values = self.outer(key)?.as_object()?.clone();
        Some(Config { values, whole: self.whole.clone(), class: None, read: Read::default() })
    }

    /// The first of these keys that is there. Others that say the same are read with it.
    pub(crate) fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &Value)> {
        let (key, value) = keys.iter().find_map(|&key| Some((key, self.peek(key)?)))?;
        for same in keys.iter().filter(|key| self.peek(key) == Some(value)) {
            self.read.note(same);
        }
        Some((key, value))
    }

    /// A count that may be absent.
    pub(crate) fn opt_size(&self, keys: &[&str]) -> Result<Option<usize>, Error> {
        self.first(keys).map(|(key, value)| size(key, value)).transpose()
    }

    /// A count.
    pub(crate) fn size(&self, keys: &[&str]) -> Result<usize, Error> {
        match self.opt_size(keys)? {
            Some(size) => Ok(size),
            None => self.of_class(keys, size)?.ok_or_else(|| missing(keys)),
        }
    }

    /// What the class takes for the first of these keys that it has, where a folder is silent.
    fn of_class<T>(
        &self,
        keys: &[&str],
        parse: fn(&str, &Value) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(class) = self.class else { return Ok(None) };
        // A null is a statement.
        let silent = !keys.iter().any(|key| self.values.contains_key(*key));
        let taken =
            keys.iter().filter(|_| silent).filter_map(|key| Some((*key, class.takes(key)?))).next();
        taken.map(|(key, value)| parse(key, value)).transpose()
    }

    /// A number that may be absent.
    pub(crate) fn opt_number(&self, keys: &[&str]) -> Result<Option<f64>, Error> {
        self.first(keys).map(|(key, value)| number(key, value)).transpose()
    }

    /// A number.
    pub(crate) fn number(&self, keys: &[&str]) -> Result<f64, Error> {
        match self.opt_number(keys)? {
            Some(number) => Ok(number),
            None => self.of_class(keys, number)?.ok_or_else(|| missing(keys)),
        }
    }

    /// Whether a switch is on; absent is off.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A text that may be absent.
    pub(crate) fn text(&self, keys: &[&str]) -> Option<&str> {
        self.first(keys)?.1.as_str()
    }

    /// A list that may be absent.
    pub(crate) fn opt_list(&self, key: &str) -> Result<Option<&Vec<Value>>, Error> {
        let list = |value: &'_ Value| value.as_array().is_some();
        match self.get(key) {
            None => Ok(None),
            Some(value) if list(value) => Ok(value.as_array()),
            Some(value) => Err(Error::config(format!("{key} is {value} and should be a list"))),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, Error> {
        let Some(list) = self.opt_list(key)? else { return Ok(None) };
        let texts: Option<_> = list.iter().map(Value::as_str).collect();
        texts.map(Some).ok_or_else(|| Error::config(format!("{key} should be a list of texts")))
    }

    /// A list of numbers.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        let Some(list) = self.opt_list(key)? else { return Ok(None) };
        list.iter().map(|value| number(key, value)).collect::<Result<_, _>>().map(Some)
    }

    /// A count, or the one that a list has for every layer.
    pub(crate) fn same_size(&self, key: &str) -> Result<Option<usize>, Error> {
        let Some(Value::Array(list)) = self.get(key) else { return self.opt_size(&[key]) };
        let sizes: Vec<usize> = list.iter().map(|v| size(key, v)).collect::<Result<_, _>>()?;
        match sizes[..] {
            [] => Ok(None),
            [first, ..] if sizes.iter().all(|&size| size == first) => Ok(Some(first)),
            _ => {
                Err(Error::config(format!("{key} differs between layers, which is not converted")))
            }
        }
    }

    pub(crate) fn layers(&self) -> Result<usize, Error> {
        self.size(&["n_layers", "num_hidden_layers", "n_layer", "num_layers"])
    }

    pub(crate) fn hidden(&self) -> Result<usize, Error> {
        self.size(&["hidden_size", "n_embd", "n_embed", "d_model", "dim"])
    }

    pub(crate) fn heads(&self) -> Result<usize, Error> {
        self.size(&["num_attention_heads", "n_head", "n_heads"])
    }

    /// Heads of keys and values; those of queries where nothing is said.
    pub(crate) fn kv_heads(&self) -> Result<usize, Error> {
        const KEYS: [&str; 3] = ["num_key_value_heads", "n_kv_heads", "n_head_kv"];
        if let Some(heads) = self.opt_size(&KEYS)? {
            return Ok(heads);
        }
        self.of_class(&KEYS, size)?.map_or_else(|| self.heads(), Ok)
    }

    /// Elements of a head.
    pub(crate) fn head_dim(&self) -> Result<usize, Error> {
        match self.stated_head_dim()? {
            Some(dim) => Ok(dim),
            None => self.hidden_per_head(),
        }
    }

    /// Elements of a head, where the folder says it, or its class has another length than that of the width's share.
    pub(crate) fn stated_head_dim(&self) -> Result<Option<usize>, Error> {
        if let Some(dim) = self.opt_size(&["head_dim"])? {
            return Ok(Some(dim));
        }
        let Some(dim) = self.of_class(&["head_dim"], size)? else { return Ok(None) };
        Ok(Some(dim).filter(|&dim| self.hidden_per_head().ok() != Some(dim)))
    }

    pub(crate) fn hidden_per_head(&self) -> Result<usize, Error> {
        let (hidden, heads) = (self.hidden()?, self.heads()?);
        let dim = hidden.checked_div(heads);
        let dim = dim.ok_or_else(|| Error::config("num_attention_heads is 0"))?;
        size("head_dim", &dim.into())
    }

    /// Experts of a layer, if there are any.
    pub(crate) fn experts(&self) -> Result<Option<usize>, Error> {
        self.opt_size(&["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"])
    }

    pub(crate) fn vocab_size(&self) -> Result<usize, Error> {
        self.size(&["vocab_size"])
    }

    /// Whether each layer is of a kind, by the names of `layer_types`.
    pub(crate) fn layers_that_are(&self, kinds: &[&str]) -> Result<Option<Vec<bool>>, Error> {
        let types = match self.texts("layer_types")? {
            None => self.texts("layers_block_type")?,
            types => types,
        };
        Ok(types.map(|types| types.iter().map(|ty| kinds.contains(ty)).collect()))
    }

    /// Which layers have a window: those of `layer_types`, or all but the last of as many as the folder says, or of
    /// `period`.
    pub(crate) fn windowed(&self, period: usize) -> Result<Vec<bool>, Error> {
        let layers = self.layers()?;
        let period = match self.get("sliding_window_pattern") {
            // A letter for each layer of a period.
            Some(Value::String(letters)) if !letters.is_empty() => {
                let local: Vec<bool> = letters.bytes().map(|letter| letter == b'L').collect();
                let by_letter = (0..layers).map(|layer| local[layer % local.len()]).collect();
                return Ok(self.layers_that_are(&["sliding_attention"])?.unwrap_or(by_letter));
            }
            Some(value) => size("sliding_window_pattern", value)?,
            None => period,
        };
        if let Some(windowed) = self.layers_that_are(&["sliding_attention"])? {
            return match windowed.len() == layers {
                true => Ok(windowed),
                false => {
                    let what =
                        format!("layer_types has {} entries for {layers} layers", windowed.len());
                    Err(Error::config(what))
                }
            };
        }
        Ok((1..=layers).map(|n| !n.is_multiple_of(period)).collect())
    }

    /// Puts in what a folder says elsewhere.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.read.note(key);
        for values in [&mut self.values, &mut self.whole] {
            values.insert(key.to_owned(), value.clone());
        }
        if key == "architectures" {
            self.class = self.architectures().into_iter().find_map(classes::of);
        }
    }

    /// Puts in what the model's own code takes where a folder says nothing.
    pub(crate) fn or(&mut self, key: &str, value: impl Into<Value>) {
        if self.peek(key).is_none() {
            self.read.note(key);
            self.values.insert(key.to_owned(), value.into());
        }
    }
}

/// More than any model has: memory is taken for as many.
const LIMITS: [(&str, usize); 7] = [
    ("vocab_size", 1 << 24),
    ("head_dim", 1 << 16),
    ("global_head_dim", 1 << 16),
    ("num_hidden_layers", 1 << 14),
    ("n_layer", 1 << 14),
    ("n_layers", 1 << 14),
    ("num_layers", 1 << 14),
];

/// A JSON value as a count.
pub(crate) fn size(key: &str, value: &Value) -> Result<usize, Error> {
    let count = value.as_u64().or_else(|| {
        value.as_f64().filter(|x| *x >= 0.0 && x.fract() == 0.0 && *x < 9e15).map(|x| x as u64)
    });
    let count = count.and_then(|n| u32::try_from(n).ok()).map(|n| n as usize);
    let count =
        count.ok_or_else(|| Error::config(format!("{key} is {value} and should be a count")))?;
    let limit =
        LIMITS.iter().find(|(known, _)| *known == key).map_or(usize::MAX, |(_, limit)| *limit);
    match count <= limit {
        true => Ok(count),
        false => {
            Err(Error::config(format!("{key} is {count}, and no model has more than {limit}")))
        }
    }
}

/// A JSON value as a number.
pub(crate) fn number(key: &str, value: &Value) -> Result<f64, Error> {
    value.as_f64().ok_or_else(|| Error::config(format!("{key} is {value} and should be a number")))
}

/// That one of these keys is needed.
pub(crate) fn missing(keys: &[&str]) -> Error {
    Error::config(format!("it does not say {}", keys.join(" or ")))
}
