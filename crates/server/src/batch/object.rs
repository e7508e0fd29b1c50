//! What is kept of files and batches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// A file whose bytes are beside this.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct KeptFile {
    pub(super) id: String,
    /// Whose it is.
    pub(super) owner: String,
    pub(super) bytes: u64,
    pub(super) created_at: u64,
    pub(super) expires_at: Option<u64>,
    pub(super) filename: String,
    pub(super) purpose: String,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Status {
    /// Its lines are checked.
    Validating,
    /// Its lines are wrong, or something went wrong with its files.
    Failed,
    InProgress,
    /// Its files are closed.
    Finalizing,
    Completed,
    /// Not all of its lines were answered in time.
    Expired,
    Cancelling,
    Cancelled,
}

impl Status {
    /// Whether nothing of it changes any more.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Status::Failed | Status::Completed | Status::Expired | Status::Cancelled)
    }
}

/// What is wrong with a batch.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BatchError")]
pub(crate) struct BatchError {
    pub(super) code: String,
    pub(super) message: String,
    /// The field of the line.
    pub(super) param: Option<String>,
    /// Which line, from 1.
    pub(super) line: Option<u64>,
}

/// Lines of a batch.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Counts {
    pub(super) total: u64,
    /// Answered.
    pub(super) completed: u64,
    /// Answered with an error.
    pub(super) failed: u64,
}

/// Tokens of all answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BatchUsage")]
pub(crate) struct Usage {
    pub(super) input_tokens: u64,
    pub(super) input_tokens_details: Cached,
    pub(super) output_tokens: u64,
    pub(super) output_tokens_details: Reasoning,
    pub(super) total_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Cached {
    pub(super) cached_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Reasoning {
    pub(super) reasoning_tokens: u64,
}

/// The part of an answer that says what it took.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answered {
    usage: Option<Json>,
}

impl Usage {
    /// Adds what an answer says of itself, in the words of any of the endpoints.
    pub(super) fn add(&mut self, body: &Answered) {
        let Some(usage) = &body.usage else { return };
        let number = |paths: &[&str]| {
            paths.iter().find_map(|path| usage.pointer(path)?.as_u64()).unwrap_or(0)
        };
        self.input_tokens += number(&["/prompt_tokens", "/input_tokens"]);
        self.input_tokens_details.cached_tokens += number(&[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
        ]);
        self.output_tokens += number(&["/completion_tokens", "/output_tokens"]);
        self.output_tokens_details.reasoning_tokens += number(&[
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
        ]);
        self.total_tokens += number(&["/total_tokens"]);
    }
}

/// When a batch came to its states.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Times {
    pub(super) created_at: u64,
    pub(super) expires_at: u64,
    pub(super) in_progress_at: Option<u64>,
    pub(super) finalizing_at: Option<u64>,
    pub(super) completed_at: Option<u64>,
    pub(super) failed_at: Option<u64>,
    pub(super) expired_at: Option<u64>,
    pub(super) cancelling_at: Option<u64>,
    pub(super) cancelled_at: Option<u64>,
}

/// A batch.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct KeptBatch {
    pub(super) id: String,
    /// Whose it is.
    pub(super) owner: String,
    pub(super) endpoint: String,
    /// The model of its first line.
    pub(super) model: Option<String>,
    pub(super) input_file_id: String,
    pub(super) completion_window: String,
    pub(super) status: Status,
    pub(super) errors: Vec<BatchError>,
    /// The ids that its files will have.
    pub(super) output: String,
    pub(super) error: String,
    /// Those of the files that there are, when it has ended.
    pub(super) output_file_id: Option<String>,
    pub(super) error_file_id: Option<String>,
    /// Seconds after which its files are deleted.
    pub(super) output_expires_after: Option<u64>,
    pub(super) times: Times,
    pub(super) counts: Counts,
    pub(super) usage: Usage,
    pub(super) metadata: Option<Map<String, Json>>,
}

impl KeptBatch {
    /// The ids of its answers have this in them, and the number of the line.
    pub(super) fn tag(&self) -> &str {
        self.id.strip_prefix("batch_").unwrap_or(&self.id)
    }
}
