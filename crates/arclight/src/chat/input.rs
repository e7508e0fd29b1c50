//! The line editor of the conversation: history, completion of commands, lines that go on.

use super::commands;
use crate::error::Error;
use crate::home;
use crate::term;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::borrow::Cow;
use std::path::PathBuf;

const PROMPT: &str = "> ";
const HISTORY_LINES: usize = 1000;

/// What was typed.
pub(crate) enum Line {
    Text(String),
    /// Nothing, or a line given up with Ctrl-C.
    Empty,
    /// Ctrl-D.
    End,
}

/// A line editor with a history on disk.
pub(crate) struct Input {
    editor: Editor<Assistant, FileHistory>,
    history: Option<PathBuf>,
}

impl Input {
    pub(crate) fn new() -> Result<Input, Error> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .history_ignore_space(false)
            .auto_add_history(true)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Assistant));
        let history = history_file();
        if let Some(path) = &history
            && let Err(e) = editor.load_history(path)
        {
            tracing::debug!("no history from {}: {e}", path.display());
        }
        Ok(Input { editor, history })
    }

    /// The next message or command.
    pub(crate) fn read(&mut self) -> Result<Line, Error> {
        match self.editor.readline(PROMPT) {
            Ok(line) => {
                let text = join(&line);
                Ok(if text.trim().is_empty() { Line::Empty } else { Line::Text(text) })
            }
            Err(ReadlineError::Interrupted) => {
                term::note!("[Ctrl-D or /quit ends the conversation]");
                Ok(Line::Empty)
            }
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(e) => Err(e.into()),
        }
    }

    /// Keeps the history for the next time, if that can be.
    pub(crate) fn save(&mut self) {
        let Some(path) = &self.history else { return };
        let saved = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved = saved.map_err(ReadlineError::from);
        if let Err(e) = saved.and_then(|()| self.editor.save_history(path)) {
            tracing::debug!("no history to {}: {e}", path.display());
        }
    }
}

/// `arclight/history` in the XDG state directory; `None` without a home.
fn history_file() -> Option<PathBuf> {
    Some(home::state()?.join("arclight").join("history"))
}

/// Takes out the backslashes that made a message go on.
fn join(line: &str) -> String {
    line.replace("\\\n", "\n")
}

/// What the editor asks while a line is typed.
struct Assistant;

impl Helper for Assistant {}
impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(
        &'s self,
        prompt: &'p str,
        _default: bool,
    ) -> Cow<'b, str> {
        let bold = term::BOLD;
        Cow::Owned(format!("{bold}{prompt}{bold:#}"))
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match context.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = &line[..at];
        let fits = |name: &&&str| begun.starts_with('/') && name.starts_with(begun);
        Ok((0, commands::NAMES.iter().filter(fits).map(|name| (*name).to_owned()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_joins_lines() {
        assert_eq!(join("a\\\nb\\n"), "a\nb\\n");
    }
}
