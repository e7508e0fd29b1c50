//! Bodies of fields that the endpoints know, with values of all kinds, chosen by bytes.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

/// Names of fields, and words that are values of some.
const NAMES: &str = "\
    add_generation_prompt add_special additionalProperties allOf anyOf arguments assistant \
    audio background best_of call_id chat_template_kwargs choice const content context \
    continue_final_message description document echo effort enum format frequency_penalty \
    function function_call function_call_output functions grammar guided_choice guided_grammar \
    guided_json guided_regex id ignore_eos include include_usage input input_text instructions \
    item_reference items json json_object json_schema keep_alive length logit_bias logprobs lora \
    max_completion_tokens max_output_tokens max_tokens maxLength message messages metadata \
    min_p min_tokens minimum mode model n name none num_ctx num_predict object options output \
    output_config output_text parallel_tool_calls parameters pattern presence_penalty \
    previous_response_id priority prompt prompt_cache_key properties raw reasoning \
    reasoning_effort regex repeat_last_n repeat_penalty repetition_penalty required \
    response_format role scale schema seed stop stop_sequences stop_token_ids store stream \
    stream_options strict string structured_outputs suffix summary system temperature template \
    text think thinking token_strs tokens tool tool_call_id tool_calls tool_choice tool_name \
    tool_result tool_use tool_use_id tools top_k top_logprobs top_p truncation type user \
    input_schema developer namespace custom local_shell shell apply_patch tool_search execution \
    client defer_loading definition syntax lark custom_tool_call custom_tool_call_output \
    shell_call shell_call_output apply_patch_call operation action commands command reasoning_text \
    compaction encrypted_content web_search web_search_call auto truncate truncate_prompt_tokens \
    n_predict input_prefix input_suffix text_1 text_2 bash_20250124 tool_reference tool_name \
    server_tool_use context_management input_image image_url source data base64";

/// Numbers that few fields hold.
const NUMBERS: [&str; 5] =
    ["18446744073709551615", "-9223372036854775808", "1e300", "-0.0", "1e-300"];

/// Answers' tokens, where a request lets one choose.
const LIMIT: u64 = 8;

/// Bytes as choices.
struct Choices<'b> {
    bytes: &'b [u8],
}

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn name(&mut self) -> Option<&'static str> {
        static ALL: LazyLock<Vec<&str>> = LazyLock::new(|| NAMES.split_whitespace().collect());
        self.next().map(|at| ALL[usize::from(at) % ALL.len()])
    }

    fn text(&mut self) -> Option<String> {
        let len = self.next()? % 24;
        Some((0..len).map_while(|_| self.next().map(char::from)).collect())
    }

    /// A value; null where the bytes are at their end.
    fn value(&mut self, depth: usize) -> Value {
        self.some(depth).unwrap_or(Value::Null)
    }

    fn some(&mut self, depth: usize) -> Option<Value> {
        let kind = self.next()?;
        Some(match kind % 16 {
            0 => Value::Null,
            1 => true.into(),
            2 => false.into(),
            3 => self.next()?.into(),
            4 => (i64::from(self.next()?) - 200).into(),
            5 => (f64::from(self.next()?) / 64.0).into(),
            6 => serde_json::from_str(NUMBERS[usize::from(kind >> 4) % NUMBERS.len()]).unwrap(),
            7 | 8 => self.name()?.into(),
            9 => self.text()?.into(),
            // JSON within a text, as arguments are.
            10 if depth < 8 => self.value(depth + 1).to_string().into(),
            11 => (0..kind >> 4).map(|_| self.text().unwrap_or_default()).collect(),
            12 | 13 if depth < 8 => (0..kind >> 6).map(|_| self.value(depth + 1)).collect(),
            _ if depth < 8 => Value::Object(self.fields(kind >> 5, depth + 1)),
            _ => Value::Null,
        })
    }

    fn fields(&mut self, count: u8, depth: usize) -> Map<String, Value> {
        let field = |_| Some((self.name()?.to_owned(), self.value(depth)));
        (0..count).map_while(field).collect()
    }
}

/// What makes a request complete, unless the choices say otherwise.
fn complete(path: &str, mut body: Map<String, Value>) -> Value {
    let question = json!([{"role": "user", "content": "Hi"}]);
    let least = match path {
        "/v1/completions" => json!({"prompt": "Hi"}),
        "/v1/responses" | "/v1/responses/input_tokens" => {
            json!({"input": "Hi", "max_output_tokens": LIMIT})
        }
        "/api/generate" => {
            json!({"model": "default", "prompt": "Hi", "options": {"num_predict": LIMIT}})
        }
        "/api/chat" => {
            json!({"model": "default", "messages": question, "options": {"num_predict": LIMIT}})
        }
        "/api/show" => json!({"model": "default"}),
        "/tokenize" => json!({"prompt": "Hi"}),
        "/detokenize" => json!({"tokens": [1, 2]}),
        _ => json!({"model": "default", "messages": question, "max_tokens": LIMIT}),
    };
    for (name, value) in least.as_object().into_iter().flatten() {
        body.entry(name).or_insert_with(|| value.clone());
    }
    body.into()
}

/// A body for this endpoint: names, values, and how deep they go.
pub fn body(path: &str, bytes: &[u8]) -> String {
    let Some((count, rest)) = bytes.split_first() else { return String::new() };
    let mut choices = Choices { bytes: rest };
    complete(path, choices.fields(count % 16, 0)).to_string()
}
