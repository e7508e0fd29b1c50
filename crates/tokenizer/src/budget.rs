//! What a rendering may make: a template is a program that came with a file, and a few of its lines
//! can ask for more memory than there is.
//!
//! The engine counts steps; it does not count the bytes that a step makes. Here is a budget of bytes
//! and time, and the functions and filters that draw on it. A program calls them where [`crate::program`]
//! has put the calls: after operators, filters, functions and methods. Filters whose one call
//! can multiply their input are replaced ([`replace`], [`join`], [`map`], …).

use std::cell::Cell;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use minijinja::value::{Kwargs, Rest, StringInput, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use crate::program::{CHARGE, CONCAT, REPEAT};
use crate::tojson::python_float;

/// Largest text that [`ChatTemplate::render`](crate::ChatTemplate::render) gives, and the bytes that
/// all values it makes on the way may have together.
pub const MAX_OUTPUT: usize = 64 << 20;

/// What an element of a list counts as.
const ELEMENT: usize = 4;

/// Deepest nesting of a value that a template makes: comparing and freeing values recurse.
const MAX_DEPTH: usize = 200;

/// A text in a list counts as one part in this many of its bytes: it is shared, but one step may
/// have to read them all.
const SHARED: usize = 256;

/// Longest time of a rendering. Usual templates take some milliseconds; what the other bounds let
/// through, such as a million searches through a long text, ends here.
pub(crate) const TIME: Duration = Duration::from_secs(10);

thread_local! {
    /// What is left, and until when. A rendering stays on its thread.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The budget is spent.
#[derive(Debug, thiserror::Error)]
#[error("the budget is spent")]
pub(crate) struct Spent;

/// The time is up.
#[derive(Debug, thiserror::Error)]
#[error("the time is up")]
pub(crate) struct Late;

fn spent() -> Error {
    Error::new(ErrorKind::InvalidOperation, "too much text").with_source(Spent)
}

/// Gives the rendering that begins its budget.
pub(crate) fn begin() {
    LEFT.set(MAX_OUTPUT);
    END.set(Instant::now().checked_add(TIME));
}

/// Fails if less than `bytes` is left.
fn need(bytes: usize) -> Result<(), Error> {
    if bytes <= LEFT.get() { Ok(()) } else { Err(spent()) }
}

/// Takes `bytes` off the budget.
pub(crate) fn charge(bytes: usize) -> Result<(), Error> {
    LEFT.set(LEFT.get().checked_sub(bytes).ok_or_else(spent)?);
    Ok(())
}

fn charged(value: Value) -> Result<Value, Error> {
    if END.get().is_some_and(|end| Instant::now() > end) {
        return Err(Error::new(ErrorKind::InvalidOperation, "too slow").with_source(Late));
    }
    match value.as_str() {
        Some(text) => charge(text.len())?,
        None => charge_elements(&value, 0)?,
    }
    Ok(value)
}

/// Charges for all elements of a value, as often as they occur in it.
fn charge_elements(value: &Value, depth: usize) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return charge(text.len() / SHARED);
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        let message = format!("a value is nested deeper than {MAX_DEPTH} levels");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    charge(value.len().unwrap_or(0).saturating_mul(ELEMENT))?;
    // What has no length is made while it is gone through; that happens where it is used.
    let Some(object) = value.as_object().filter(|_| value.len().is_some()) else { return Ok(()) };
    if value.kind() == ValueKind::Map {
        let mut pairs = object.try_iter_pairs().into_iter().flatten();
        return pairs.try_for_each(|(_, item)| charge_elements(&item, depth + 1));
    }
    value.try_iter()?.try_for_each(|item| charge_elements(&item, depth + 1))
}

/// A text that draws on the budget as it grows.
#[derive(Default)]
pub(crate) struct Text(String);

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        charge(s.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(s);
        Ok(())
    }
}

impl Text {
    /// Appends a value as Python's `str` writes it.
    pub(crate) fn push(&mut self, value: &Value) -> Result<(), Error> {
        let done = match (value.kind(), value.as_str()) {
            (_, Some(text)) => self.write_str(text),
            (ValueKind::Bool, _) => self.write_str(if value.is_true() { "True" } else { "False" }),
            (ValueKind::None, _) => self.write_str("None"),
            (ValueKind::Number, _) if !value.is_integer() => {
                self.write_str(&python_float(f64::try_from(value.clone())?))
            }
            _ if has_float(value, 0)? => return self.push_items(value),
            _ => write!(self, "{value}"),
        };
        done.map_err(|fmt::Error| spent())
    }

    /// Appends a list, tuple or dict with floats in it, which the engine writes in its own way.
    fn push_items(&mut self, value: &Value) -> Result<(), Error> {
        let tuple = value.downcast_object_ref::<Tuple>().is_some();
        let dict = value.kind() == ValueKind::Map;
        let (open, close) =
            [("[", "]"), ("(", ")"), ("{", "}")][if dict { 2 } else { usize::from(tuple) }];
        let put = |text: &mut Self, part: &str| text.write_str(part).map_err(|_| spent());
        put(self, open)?;
        for (i, item) in value.try_iter()?.enumerate() {
            if i > 0 {
                put(self, ", ")?;
            }
            self.push_item(&item)?;
            if dict {
                put(self, ": ")?;
                self.push_item(&value.get_item(&item)?)?;
            }
        }
        if tuple && value.len() == Some(1) {
            put(self, ",")?;
        }
        put(self, close)
    }

    /// Appends a value as Python's `repr` writes it.
    fn push_item(&mut self, item: &Value) -> Result<(), Error> {
        if has_float(item, 0)? || item.kind() == ValueKind::Number {
            return self.push(item);
        }
        write!(self, "{item:?}").map_err(|fmt::Error| spent())
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Whether there is a float among the elements of a list or dict, or of those in it.
fn has_float(value: &Value, depth: usize) -> Result<bool, Error> {
    let listed = matches!(value.kind(), ValueKind::Seq | ValueKind::Map) && value.len().is_some();
    let Some(object) = value.as_object().filter(|_| listed && depth <= MAX_DEPTH) else {
        return Ok(false);
    };
    let items: Box<dyn Iterator<Item = Value>> = match value.kind() {
        ValueKind::Map => {
            Box::new(object.try_iter_pairs().into_iter().flatten().flat_map(|(k, v)| [k, v]))
        }
        _ => Box::new(value.try_iter()?),
    };
    let is_float = |item: &Value| item.kind() == ValueKind::Number && !item.is_integer();
    // What is looked at is printed afterwards, so the budget ends this too.
    for item in items {
        charge(1)?;
        if is_float(&item) || has_float(&item, depth + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives an environment the functions and filters that draw on the budget.
pub(crate) fn install(env: &mut Environment<'_>) {
    env.add_function(CHARGE, charged);
    env.add_function(CONCAT, |a: &Value, b: &Value| -> Result<String, Error> {
        let mut text = Text::default();
        text.push(a)?;
        text.push(b)?;
        Ok(text.into_string())
    });
    env.add_function(REPEAT, repeat);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("indent", indent);
    env.add_filter("format", |state: &mut State, text: &Value, args: Rest<ValueOrKwargs>| {
        need_for_format(text, '%')?;
        filters::format(state, text, args)
    });
    env.add_filter("list", |state: &State, value: Value| {
        need(value.as_str().map_or(0, str::len).saturating_mul(ELEMENT))?;
        filters::list(state, value)
    });
    env.add_filter("string", |value: &Value| -> Result<Value, Error> {
        if value.as_str().is_some() {
            return Ok(value.clone());
        }
        let mut text = Text::default();
        text.push(value)?;
        Ok(Value::from(text.into_string()))
    });
    env.add_filter("map", map);
}

/// A directive may ask for 65,535 characters.
pub(crate) fn need_for_format(text: &Value, directive: char) -> Result<(), Error> {
    need(text.as_str().map_or(0, |t| t.matches(directive).count()).saturating_mul(1 << 16))
}

/// `a * b`: a product of numbers, or a string or list some times over.
fn repeat(a: &Value, b: &Value) -> Result<Value, Error> {
    let impossible = || {
        let kinds = format!("cannot multiply {} with {}", a.kind(), b.kind());
        Error::new(ErrorKind::InvalidOperation, kinds)
    };
    if let (ValueKind::Number, ValueKind::Number) = (a.kind(), b.kind()) {
        if a.is_integer() && b.is_integer() {
            let product = i128::try_from(a.clone())?.checked_mul(i128::try_from(b.clone())?);
            let product = product.ok_or_else(impossible)?;
            return Ok(i64::try_from(product).map_or_else(|_| product.into(), Value::from));
        }
        return Ok(Value::from(f64::try_from(a.clone())? * f64::try_from(b.clone())?));
    }
    let (many, times) = if a.kind() == ValueKind::Number { (b, a) } else { (a, b) };
    if times.kind() != ValueKind::Number || !times.is_integer() {
        return Err(impossible());
    }
    // Python makes nothing of it.
    let times = usize::try_from(i64::try_from(times.clone())?.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = many.as_str() {
        need(text.len().saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    if many.kind() != ValueKind::Seq {
        return Err(impossible());
    }
    let items: Vec<Value> = many.try_iter()?.collect();
    charge(items.len().saturating_mul(times).saturating_mul(ELEMENT))?;
    let all = std::iter::repeat_n(items, times).flatten();
    Ok(Value::from(all.collect::<Vec<_>>()))
}

/// `value|join(joiner, attribute=…)`.
fn join(
    value: &Value,
    joiner: Option<&str>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let joiner = joiner.or(kwargs.get::<Option<&str>>("d")?).unwrap_or_default();
    let attribute = attribute.or(kwargs.get::<Option<&str>>("attribute")?);
    kwargs.assert_all_used()?;
    joined(value, joiner, attribute)
}

/// `joiner.join(value)`.
pub(crate) fn joined(
    value: &Value,
    joiner: &str,
    attribute: Option<&str>,
) -> Result<String, Error> {
    let mut text = Text::default();
    if value.is_undefined() {
        return Ok(String::new());
    }
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            text.write_str(joiner).map_err(|fmt::Error| spent())?;
        }
        match attribute {
            Some(name) => text.push(&item.get_attr(name)?)?,
            None => text.push(&item)?,
        }
    }
    Ok(text.into_string())
}

/// `text|replace(from, to, count)`, also as a method.
pub(crate) fn replace(
    text: &Value,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let mut whole = Text::default();
    whole.push(text)?;
    let text = whole.into_string();
    let most = usize::try_from(count.unwrap_or(-1)).unwrap_or(usize::MAX);
    let found = text.matches(from).count().min(most);
    charge(text.len().saturating_add(found.saturating_mul(to.len())))?;
    Ok(text.replacen(from, to, found))
}

/// `text|indent(width, first, blank)`.
fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let by_name = if kwargs.has("width") { kwargs.peek("width")? } else { None };
    let width_used: usize = width.or(by_name).unwrap_or(4);
    need(text.as_str().lines().count().saturating_mul(width_used.saturating_add(1)))?;
    filters::indent(text, width, first, blank, kwargs)
}

/// `items|map('filter', …)` or `items|map(attribute=…)`; each result is charged.
fn map(state: &mut State, value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let values = args.into_values();
    let (args, kwargs): (&[Value], Kwargs) = minijinja::value::from_args(&values)?;
    let name = match args.first() {
        Some(name) if !kwargs.has("attribute") => name.as_str().unwrap_or_default().to_owned(),
        _ => {
            let args = Rest(values.into_iter().map(ValueOrKwargs::from).collect());
            return filters::map(state, value, args).map(Value::from);
        }
    };
    let mut out = Vec::new();
    if value.is_undefined() {
        return Ok(Value::from(out));
    }
    for item in value.try_iter()? {
        let mut with_item = vec![item];
        with_item.extend(values.iter().skip(1).cloned());
        out.push(charged(state.apply_filter(&name, &with_item)?)?);
    }
    Ok(Value::from(out))
}
