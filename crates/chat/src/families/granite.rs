//! Granite 3: `<|tool_call|>` and a JSON list of calls. Thinks between `<think>` tags and answers
//! between `<response>` tags when asked to.

use crate::syntax::{Calls, Json, Syntax, THINK};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &["<response>", "</response>"],
    calls: Calls::Json(Json {
        open: &["<|tool_call|>", "<tool_call>"],
        close: "",
        name: &["name"],
        arguments: &["arguments"],
        list: true,
        writes_list: true,
        bare: false,
        inner: "",
        between: ", ",
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn a_list_of_calls() {
        let answer = r#"<|tool_call|>[{"name": "weather", "arguments": {"city": "Bonn"}}, {"name": "clock", "arguments": {}}]"#;
        assert_eq!(read(Family::Granite3, answer), r#"weather{"city": "Bonn"} clock{}"#);
    }

    #[test]
    fn the_marks_around_an_answer_are_no_part_of_it() {
        let answer = "<think>First.</think>\n<response>\nThen. </response>";
        assert_eq!(read(Family::Granite3, answer), "(First.) \"Then.\"");
    }
}
