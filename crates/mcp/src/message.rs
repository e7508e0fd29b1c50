//! JSON-RPC 2.0, of which both transports are made.

use serde_json::{Value as Json, json};

/// A request that wants an answer.
pub(crate) fn request(id: u64, method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// What wants none.
pub(crate) fn notification(method: &str) -> Json {
    json!({"jsonrpc": "2.0", "method": method})
}

/// The answer to a request: a result, or a number and what was wrong.
pub(crate) type Answered = Result<Json, (i64, String)>;

/// What a server says.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// The answer to the request of this number.
    Answer(u64, Answered),
    /// It asks for something, which gets this answer.
    Asks(Json),
    /// Nothing that concerns us.
    Other,
}

/// Reads a message.
pub(crate) fn read(message: &Json) -> Said {
    match (message["method"].as_str(), &message["id"]) {
        (Some(_), Json::Null) => Said::Other,
        (Some("ping"), id) => Said::Asks(json!({"jsonrpc": "2.0", "id": id, "result": {}})),
        (Some(method), id) => {
            let error = json!({"code": -32601, "message": format!("{method} is not supported")});
            Said::Asks(json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        (None, id) => match id.as_u64() {
            None => Said::Other,
            Some(id) => match &message["error"] {
                Json::Null => Said::Answer(id, Ok(message["result"].clone())),
                error => {
                    let text = error["message"].as_str().unwrap_or("an error without a message");
                    Said::Answer(id, Err((error["code"].as_i64().unwrap_or(0), text.to_owned())))
                }
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let said = |text: &str| read(&serde_json::from_str(text).unwrap());
        assert_eq!(said(r#"{"id": 3, "result": {"a": 1}}"#), Said::Answer(3, Ok(json!({"a": 1}))));
        let refused = said(r#"{"id": 3, "error": {"code": -1, "message": "no"}}"#);
        assert_eq!(refused, Said::Answer(3, Err((-1, "no".into()))));
        assert_eq!(said(r#"{"method": "notifications/message"}"#), Said::Other);
        let Said::Asks(pong) = said(r#"{"id": "x", "method": "ping"}"#) else { panic!() };
        assert_eq!((&pong["id"], &pong["result"]), (&json!("x"), &json!({})));
        let Said::Asks(no) = said(r#"{"id": 0, "method": "roots/list"}"#) else { panic!() };
        assert_eq!(no["error"]["code"], -32601);
    }
}
