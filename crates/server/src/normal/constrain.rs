//! Which grammar an answer is under: what its text must look like, which tools it must call, or both.

use super::request::{Constraint, ToolChoice};
use crate::fault::Fault;
use crate::model::Model;
use chat::{Tool, answer_grammar, tool_grammar};
use grammar::{Matcher, Spec};

/// A grammar, and the mark after which it begins if the answer begins with thoughts.
pub(super) type Begins = (Option<Matcher>, Option<&'static str>);

/// The grammar of an answer to the conversation that has become `prompt`. `thinking` says that the
/// prompt has opened reasoning.
///
/// # Errors
/// When it cannot be compiled.
pub(super) fn chat(
    model: &Model,
    prompt: &str,
    tools: &[Tool],
    choice: &ToolChoice,
    parallel: bool,
    constraint: Option<&Constraint>,
    thinking: bool,
) -> Result<Begins, Fault> {
    let forced = match choice {
        ToolChoice::Required => Some(chat::ToolChoice::Required),
        ToolChoice::Named(name) => Some(chat::ToolChoice::Named(name)),
        ToolChoice::Auto | ToolChoice::None => None,
    };
    if let Some(choice) = forced {
        // There is no text to constrain, and the grammar itself says where thoughts end.
        let calls = tool_grammar(&model.format, tools, choice, parallel, thinking);
        let spec = Spec::Lark(calls.ok_or_else(no_tools)?);
        return Ok((Some(compile(model, "tools", &spec)?), None));
    }
    let Some(Constraint { field, spec }) = constraint else { return Ok((None, None)) };
    let mut matcher = compile(model, field, spec)?;
    let framed = model.format.frames_answer(prompt);
    if let Some(around) = answer_grammar(&model.format, tools, parallel, framed) {
        // The form itself is in order.
        let field = if tools.is_empty() { field } else { "tools" };
        let within = model.vocabulary.compile_within(&around, spec);
        matcher = within.map_err(|e| fault(field, &e))?;
    }
    Ok((Some(matcher), model.format.reasoning_close().filter(|_| thinking)))
}

/// Compiles what `field` of a request asks for.
///
/// # Errors
/// 400 that says what is wrong with it, or not supported.
pub(super) fn compile(model: &Model, field: &str, spec: &Spec) -> Result<Matcher, Fault> {
    model.vocabulary.compile(spec).map_err(|e| fault(field, &e))
}

fn fault(field: &str, error: &grammar::Error) -> Fault {
    Fault::field(field, error.to_string()).code("invalid_grammar")
}

/// The fault of tools where the model has none.
pub(super) fn no_tools() -> Fault {
    let message = "how this model calls tools is not known: its chat template shows no known way; start \
                   the server with --chat-format, or with another --chat-template";
    Fault::unsupported("tools", message)
}
