//! Mistral. Until 2024: `[TOOL_CALLS]` and a JSON list. Since: `[TOOL_CALLS]name[ARGS]{…}` for each
//! call, for a time with `[CALL_ID]` and an id between. Whichever the template shows, both are read.

use crate::syntax::{Calls, Decoration, Json, Named, Syntax};

const THINK: (&str, &str) = ("[THINK]", "[/THINK]");

/// The older way.
pub(crate) const LIST: Json = Json {
    open: &["[TOOL_CALLS]"],
    close: "",
    name: &["name"],
    arguments: &["arguments"],
    list: true,
    writes_list: true,
    bare: false,
    inner: "",
    between: ", ",
};

pub(crate) const OLD: Syntax = Syntax { think: Some(THINK), drop: &[], calls: Calls::Json(LIST) };

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Named(Named {
        section: None,
        open: "[TOOL_CALLS]",
        before: "",
        name_end: "[ARGS]",
        fence: None,
        close: "",
        decoration: Decoration::Id,
        between: "",
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn both_ways_are_read_whatever_the_template_shows() {
        let list = r#"[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Nice"}, "id": "abcdef123"}, {"name": "clock", "arguments": {}}]"#;
        let named = r#"Well. [TOOL_CALLS]weather[ARGS]{"city": "Nice"}[TOOL_CALLS]clock[CALL_ID]x1[ARGS]{}"#;
        assert_eq!(read(Family::MistralOld, list), r#"weather{"city": "Nice"} clock{}"#);
        assert_eq!(read(Family::Mistral, list), r#"weather{"city": "Nice"} clock{}"#);
        assert_eq!(read(Family::Mistral, named), r#""Well." weather{"city": "Nice"} clock{}"#);
    }

    #[test]
    fn thinks_in_brackets() {
        assert_eq!(read(Family::Mistral, "[THINK]So.[/THINK]Yes."), "(So.) \"Yes.\"");
    }

    #[test]
    fn what_is_no_call_is_text() {
        for answer in
            ["[TOOL_CALLS]weather {}", "[TOOL_CALLS]a b[ARGS]{}", "[TOOL_CALLS][]", "[TOOL"]
        {
            assert_eq!(read(Family::Mistral, answer), format!("{answer:?}"));
        }
    }
}
