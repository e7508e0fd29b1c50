//! Phi-4-mini: a JSON list between `<|tool_call|>` and `<|/tool_call|>`. Firefunction and older Phi:
//! `functools` and a JSON list.

use crate::syntax::{Calls, Json, Syntax};

const LIST: Json = Json {
    open: &["<|tool_call|>", "functools"],
    close: "<|/tool_call|>",
    name: &["name"],
    arguments: &["arguments", "parameters"],
    list: true,
    writes_list: true,
    bare: false,
    inner: "",
    between: ", ",
};

pub(crate) const SYNTAX: Syntax = Syntax { think: None, drop: &[], calls: Calls::Json(LIST) };

pub(crate) const FUNCTOOLS: Syntax = Syntax {
    think: None,
    drop: &[],
    calls: Calls::Json(Json { open: &["functools"], close: "", ..LIST }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn lists_of_calls() {
        let list = r#"[{"name": "weather", "arguments": {"city": "Bath"}}, {"name": "clock"}]"#;
        let answer = format!("<|tool_call|>{list}<|/tool_call|>");
        assert_eq!(read(Family::Phi4, &answer), r#"weather{"city": "Bath"} clock{}"#);
        assert_eq!(
            read(Family::Functools, &format!("functools{list}")),
            r#"weather{"city": "Bath"} clock{}"#
        );
        assert_eq!(read(Family::Functools, "import functools\n"), r#""import functools\n""#);
    }
}
