//! What Ollama's answers have in common: heads, durations, times, errors.

use crate::fault::Fault;
use crate::normal::{Finish, Reason, TokenLogprob, TokenText};
use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};
use std::time::{Duration, Instant, SystemTime};

/// What every object of an answer begins with.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// As the request has it.
    pub(super) model: String,
    /// When the request came.
    pub(super) start: Instant,
    /// From then until it was submitted.
    pub(super) load: Duration,
}

impl Head {
    pub(super) fn new(model: String) -> Head {
        Head { model, start: Instant::now(), load: Duration::ZERO }
    }

    /// When the request was submitted.
    pub(super) fn submitted(&mut self, at: Instant) {
        self.load = at.saturating_duration_since(self.start);
    }

    /// An object that says something before the answer is over, or at its end.
    pub(super) fn object(&self, done: bool) -> Map<String, Json> {
        let mut object = Map::new();
        object.insert("model".into(), self.model.as_str().into());
        object.insert("created_at".into(), rfc3339(SystemTime::now()).into());
        object.insert("done".into(), done.into());
        object
    }

    /// The object that ends an answer.
    pub(super) fn done(&self, finish: &Finish) -> Map<String, Json> {
        let nanos = |time: Duration| Json::from(time.as_nanos() as u64);
        let mut object = self.object(true);
        let reason = match finish.reason {
            Reason::Stop | Reason::ToolCalls => "stop",
            Reason::Length => "length",
        };
        object.insert("done_reason".into(), reason.into());
        object.insert("total_duration".into(), nanos(self.start.elapsed()));
        object.insert("load_duration".into(), nanos(self.load));
        object.insert("prompt_eval_count".into(), finish.prompt_tokens.into());
        object.insert("prompt_eval_duration".into(), nanos(finish.first));
        object.insert("eval_count".into(), finish.tokens.into());
        object.insert("eval_duration".into(), nanos(finish.rest));
        object
    }

    /// The answer to a request that only loads the model, which is loaded.
    pub(super) fn loaded(&self) -> Map<String, Json> {
        let mut object = self.object(true);
        object.insert("done_reason".into(), "load".into());
        object
    }
}

/// A call of a tool, or nothing if its arguments were cut off and so are no object.
pub(super) fn call(index: usize, name: &str, arguments: &str) -> Option<Json> {
    let arguments: Json = serde_json::from_str(arguments).ok().filter(Json::is_object)?;
    let function = json!({"index": index, "name": name, "arguments": arguments});
    Some(json!({"id": crate::stamp::id("call_"), "function": function}))
}

/// Log-probabilities of tokens.
pub(super) fn logprobs(tokens: &[TokenLogprob]) -> Json {
    let entry = |token: &TokenText, logprob: f32| {
        let mut entry = Map::new();
        entry.insert("token".into(), String::from_utf8_lossy(&token.bytes).into());
        entry.insert("logprob".into(), f64::from(logprob.max(-9999.0)).into());
        entry.insert("bytes".into(), token.bytes.as_slice().into());
        entry
    };
    let told = tokens.iter().filter_map(|of| {
        let mut one = entry(&of.token, of.logprob?);
        let top = of.top.iter().map(|(token, l)| Json::Object(entry(token, *l)));
        one.insert("top_logprobs".into(), top.collect());
        Some(Json::Object(one))
    });
    told.collect()
}

/// A fault in Ollama's form.
pub(crate) fn fault(fault: &Fault) -> Json {
    json!({"error": fault.message})
}

/// A time as RFC 3339 has it, in UTC.
pub(super) fn rfc3339(time: SystemTime) -> String {
    // Of a file whose time has no date in four digits, the epoch.
    format!("{:.9}", Timestamp::try_from(time).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_date_says() {
        let at = |seconds, nanos| rfc3339(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
        // date -u -d @N +%FT%T
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_827_696, 5), "2000-02-29T12:34:56.000000005Z");
        assert_eq!(at(1_709_251_199, 0), "2024-02-29T23:59:59.000000000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000000Z");
    }

    #[test]
    fn calls_without_complete_arguments_are_none() {
        assert_eq!(call(0, "f", "{\"a\": 1").map(|c| c.to_string()), None);
        assert_eq!(call(1, "f", "{\"a\": 1}").unwrap()["function"]["arguments"]["a"], 1);
    }
}
