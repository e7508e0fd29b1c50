//! What is asked: a list of prompts and answer lengths, made before anything is measured.

use crate::error::Error;
use crate::lengths::Lengths;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// What a request says.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// So many tokens of random words.
    Tokens(usize),
    /// This text.
    Text(String),
    /// This conversation, as the chat interface takes it.
    Messages(Value),
}

/// One request before it is put into words.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What it says.
    pub prompt: Prompt,
    /// Tokens of the answer.
    pub output: usize,
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Lengths by distribution.
    Drawn {
        /// Tokens of prompts.
        input: Lengths,
        /// Tokens of answers.
        output: Lengths,
        /// Longest prompt.
        most_input: Option<usize>,
        /// Longest answer.
        most_output: Option<usize>,
    },
    /// A user's requests, in their order, and from the beginning again when there are too few.
    Listed(Vec<Ask>),
}

impl Workload {
    /// The first `n` requests.
    ///
    /// # Errors
    /// When no length fits the bounds.
    pub fn asks(&self, n: usize, seed: u64) -> Result<Vec<Ask>, Error> {
        match self {
            Workload::Drawn { input, output, most_input, most_output } => {
                let inputs = input.draw("input", n, *most_input, seed)?;
                let outputs = output.draw("output", n, *most_output, seed)?;
                let ask = |(input, output)| Ask { prompt: Prompt::Tokens(input), output };
                Ok(inputs.into_iter().zip(outputs).map(ask).collect())
            }
            Workload::Listed(all) => Ok(all.iter().cycle().take(n).cloned().collect()),
        }
    }

    /// Reads a user's file: JSON, one request per line, with one of `prompt` (a text), `messages`
    /// (a conversation) and `input_len` (tokens), and with `output_len` unless `output` is given.
    ///
    /// # Errors
    /// When the file cannot be read, has no line, or one that cannot be sent; `chat` says whether
    /// conversations can.
    pub fn read(path: &Path, output: Option<usize>, chat: bool) -> Result<Workload, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let fault = |line, reason: String| Error::Line { path: path.to_owned(), line, reason };
        let mut all = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let entry: Entry = serde_json::from_str(text)
                // Every line is a document of its own: its "line 1" would mislead.
                .map_err(|e| fault(line, e.to_string().replace(" at line 1 column", ", column")))?;
            all.push(entry.ask(output, chat).map_err(|reason| fault(line, reason.to_owned()))?);
        }
        match all.is_empty() {
            true => Err(fault(1, "the file has no requests".to_owned())),
            false => Ok(Workload::Listed(all)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    prompt: Option<String>,
    messages: Option<Value>,
    input_len: Option<usize>,
    output_len: Option<usize>,
}

impl Entry {
    fn ask(self, output: Option<usize>, chat: bool) -> Result<Ask, &'static str> {
        let prompt = match (self.prompt, self.messages, self.input_len) {
            (None, None, Some(0)) => return Err("input_len must be at least 1"),
            (None, None, Some(n)) => Prompt::Tokens(n),
            (Some(text), None, None) if text.is_empty() => return Err("prompt is empty"),
            (Some(text), None, None) => Prompt::Text(text),
            (None, Some(_), None) if !chat => return Err("messages need --endpoint chat"),
            (None, Some(messages), None) if messages.is_array() => Prompt::Messages(messages),
            (None, Some(_), None) => return Err("messages must be a list"),
            _ => return Err("a request has one of prompt, messages and input_len"),
        };
        match self.output_len.or(output) {
            None => Err("output_len is missing; give it here or with --output-len"),
            Some(0) => Err("output_len must be at least 1"),
            Some(output) => Ok(Ask { prompt, output }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::Trace;

    fn read(text: &str, output: Option<usize>, chat: bool) -> Result<Workload, Error> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("arclight-loadgen-{}-{count}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let result = Workload::read(&path, output, chat);
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn a_file_is_taken_in_order_and_round() {
        let text = "{\"prompt\": \"a b\", \"output_len\": 3}\n\n{\"input_len\": 5}\n\
                    {\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\n";
        let workload = read(text, Some(7), true).unwrap();
        let asks = workload.asks(4, 0).unwrap();
        assert_eq!(asks[0], Ask { prompt: Prompt::Text("a b".into()), output: 3 });
        assert_eq!(asks[1], Ask { prompt: Prompt::Tokens(5), output: 7 });
        assert!(matches!(&asks[2].prompt, Prompt::Messages(m) if m[0]["content"] == "c"));
        assert_eq!(asks[3], asks[0]);
    }

    #[test]
    fn lines_that_cannot_be_sent_are_named() {
        for (text, line, part) in [
            ("", 1, "no requests"),
            ("\n{", 2, "EOF"),
            ("{\"prompt\": \"\", \"output_len\": 1}", 1, "prompt is empty"),
            ("{\"prompt\": \"a\"}", 1, "--output-len"),
            ("{\"input_len\": 4, \"output_len\": 0}", 1, "output_len must"),
            ("{\"input_len\": 0, \"output_len\": 1}", 1, "input_len must"),
            ("{\"output_len\": 1}", 1, "one of prompt"),
            ("{\"prompt\": \"a\", \"input_len\": 2, \"output_len\": 1}", 1, "one of prompt"),
            ("{\"messages\": [], \"output_len\": 1}", 1, "--endpoint chat"),
            ("{\"prompt\": \"a\", \"output\": 1}", 1, "unknown field `output`"),
        ] {
            let e = read(text, None, false).unwrap_err();
            let text = e.to_string();
            assert!(text.contains(&format!("line {line}: ")) && text.contains(part), "{text}");
            assert!(!e.is_usage());
        }
        let e = Workload::read(Path::new("/nonexistent/x.jsonl"), None, false).unwrap_err();
        assert!(e.to_string().contains("/nonexistent/x.jsonl"));
    }

    #[test]
    fn drawn_requests_keep_to_their_bounds() {
        let workload = Workload::Drawn {
            input: Lengths::Inputs(Trace::ShareGpt),
            output: Lengths::Fixed(9),
            most_input: Some(100),
            most_output: None,
        };
        let asks = workload.asks(500, 1).unwrap();
        assert!(asks.iter().all(|a| a.output == 9));
        assert!(asks.iter().all(|a| matches!(a.prompt, Prompt::Tokens(1..=100))));
    }
}
