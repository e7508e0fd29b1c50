//! Answers as Python's values: dictionaries, which `arclight/_outputs.py` makes objects of.

use arclight_server::local::{
    Answer, Delta, Event, Finish, Segment, Text, TokenLogprob, Whole, WholeCall,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

/// A text: a `str`, or a sequence of token ids.
///
/// # Errors
/// `TypeError` for anything else.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> PyResult<Text> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Text::Plain(text.to_cow()?.into_owned()));
    }
    value.extract::<Vec<u32>>().map(Text::Tokens).map_err(|_| {
        PyTypeError::new_err("a text must be a str or a list of token ids, which are not negative")
    })
}

/// A token with its log-probability and those of the likeliest: `(id, bytes, logprob, top)`.
type Logprob<'py> = (u32, Bound<'py, PyBytes>, Option<f32>, Vec<(u32, Bound<'py, PyBytes>, f32)>);

fn logprob<'py>(py: Python<'py>, of: &TokenLogprob) -> Logprob<'py> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let top = of.top.iter().map(|(token, logprob)| (token.id, bytes(&token.bytes), *logprob));
    (of.token.id, bytes(&of.token.bytes), of.logprob, top.collect())
}

fn logprobs<'py>(py: Python<'py>, all: &[TokenLogprob]) -> Vec<Logprob<'py>> {
    all.iter().map(|of| logprob(py, of)).collect()
}

/// How an answer ended.
fn finish<'py>(py: Python<'py>, finish: &Finish) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("reason", finish.reason.word())?;
    dict.set_item("stop", &finish.stop)?;
    dict.set_item("end_token", finish.end_token)?;
    dict.set_item("prompt_tokens", finish.prompt_tokens)?;
    dict.set_item("cached_tokens", finish.cached_tokens)?;
    dict.set_item("tokens", finish.tokens)?;
    dict.set_item("reasoning_tokens", finish.reasoning_tokens)?;
    dict.set_item("queued", finish.queued.as_secs_f64())?;
    dict.set_item("first", finish.first.as_secs_f64())?;
    dict.set_item("rest", finish.rest.as_secs_f64())?;
    Ok(dict)
}

/// A whole choice.
fn whole<'py>(py: Python<'py>, whole: &Whole) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let call = |call: &WholeCall| (call.name.clone(), call.arguments.clone());
    dict.set_item("text", &whole.text)?;
    dict.set_item("reasoning", &whole.reasoning)?;
    dict.set_item("calls", whole.calls.iter().map(call).collect::<Vec<_>>())?;
    dict.set_item("ids", &whole.ids)?;
    dict.set_item("logprobs", logprobs(py, &whole.logprobs))?;
    dict.set_item("finish", finish(py, &whole.finish)?)?;
    Ok(dict)
}

/// A prompt, and what is known of its tokens.
#[derive(Debug)]
pub(crate) struct Asked {
    text: String,
    ids: Vec<u32>,
    logprobs: Vec<TokenLogprob>,
}

impl Asked {
    /// Of an answer to one prompt; its log-probabilities are known from the first piece on.
    pub(crate) fn of(answer: &Answer, logprobs: bool) -> Asked {
        let prompt = answer.prompts().first();
        Asked {
            text: prompt.map(|prompt| prompt.text.clone()).unwrap_or_default(),
            ids: prompt.map(|prompt| prompt.tokens.clone()).unwrap_or_default(),
            logprobs: if logprobs { answer.prompt_logprobs(0) } else { Vec::new() },
        }
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("text", &self.text)?;
        dict.set_item("ids", &self.ids)?;
        dict.set_item("logprobs", logprobs(py, &self.logprobs))?;
        Ok(dict)
    }
}

/// A whole answer.
pub(crate) fn answered<'py>(
    py: Python<'py>,
    asked: &Asked,
    choices: &[Whole],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("prompt", asked.dict(py)?)?;
    let all = choices.iter().map(|choice| whole(py, choice)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("choices", PyList::new(py, all)?)?;
    Ok(dict)
}

/// A piece of a choice. The first of an answer has its prompt.
pub(crate) fn piece<'py>(
    py: Python<'py>,
    choice: usize,
    delta: &Delta,
    asked: Option<&Asked>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("choice", choice)?;
    dict.set_item("ids", &delta.ids)?;
    dict.set_item("logprobs", logprobs(py, &delta.logprobs))?;
    if let Some(asked) = asked {
        dict.set_item("prompt", asked.dict(py)?)?;
    }
    match &delta.event {
        Event::Segment(Segment::Text(text)) => dict.set_item("text", text)?,
        Event::Segment(Segment::Reasoning(text)) => dict.set_item("reasoning", text)?,
        Event::Segment(Segment::ToolCall { index, name }) => {
            dict.set_item("call", (*index, name, ""))?;
        }
        Event::Segment(Segment::Arguments { index, delta }) => {
            dict.set_item("call", (*index, py.None(), delta))?;
        }
        Event::Segment(Segment::ToolCallEnd { .. }) | Event::Failed(_) => {}
        Event::Finished(end) => dict.set_item("finish", finish(py, end)?)?,
    }
    Ok(dict)
}
