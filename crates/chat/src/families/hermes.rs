//! Hermes 2 and 3, Qwen 2.5, QwQ, Qwen 3, Granite 4: JSON between `<tool_call>` tags, a pair for each
//! call.

use crate::syntax::{Calls, Json, Syntax, THINK};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Json(Json {
        open: &["<tool_call>"],
        close: "</tool_call>",
        name: &["name"],
        arguments: &["arguments", "parameters"],
        list: true,
        writes_list: false,
        bare: false,
        inner: "\n",
        between: "\n",
    }),
};

#[cfg(test)]
mod tests {
    use crate::testing::{format, options, read, read_with};
    use crate::{Family, Parser, ParserOptions, Segment};

    const F: Family = Family::Hermes;

    #[test]
    fn calls_and_what_is_around_them() {
        let answer = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
        assert_eq!(read(F, answer), r#""Let me see." weather{"city": "Oslo"} clock{}"#);
    }

    #[test]
    fn reasoning_comes_first() {
        let answer = "<think>\nHm, {\"name\"}?\n</think>\n\nIt is noon.\n";
        assert_eq!(read(F, answer), r#"(Hm, {"name"}?) "It is noon.\n""#);
        let opened = ParserOptions { prompt_opens_reasoning: true, ..options() };
        let rest = "It rains.\n</think>\n\nYes.";
        assert_eq!(read_with(F, opened.clone(), rest), "(It rains.) \"Yes.\"");
        assert_eq!(read_with(F, opened, "cut off "), "(cut off)");
        let whole = ParserOptions { reasoning: false, ..options() };
        assert_eq!(read_with(F, whole, answer), format!("{answer:?}"));
        assert_eq!(read(F, "<think>\n\n</think>\n\nNo."), "\"No.\"");
    }

    #[test]
    fn the_order_of_keys_and_other_keys_do_not_matter() {
        let answer = r#"<tool_call>{"id": 7, "arguments": {"city": "Rome, {IT}"}, "x": [1, {}], "name": "weather"}</tool_call>"#;
        assert_eq!(read(F, answer), r#"weather{"city": "Rome, {IT}"}"#);
        let text =
            r#"<tool_call>{"name": "weather", "arguments": "{\"city\": \"Rome\"}"}</tool_call>"#;
        assert_eq!(read(F, text), r#"weather{"city": "Rome"}"#);
        assert_eq!(
            read(F, r#"<tool_call>{"name": "clock", "arguments": null}</tool_call>"#),
            "clock{}"
        );
        assert_eq!(
            read(F, r#"<tool_call>{"name": "clock"}</tool_call> Done"#),
            r#"clock{} "Done""#
        );
    }

    #[test]
    fn what_is_no_call_is_text() {
        for answer in [
            "Write <tool_call> before it.",
            "<tool_call>{\"name\": 3}</tool_call>",
            "<tool_call>{\"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>",
            "<tool_call>{\"name\": \"two words\", \"arguments\": {}}",
            "<tool_call>{\"name\": \"wea",
            "a <tool_ca",
            "<tool_call>",
        ] {
            assert_eq!(read(F, answer), format!("{answer:?}"));
        }
        assert_eq!(
            read(F, "<tool_call>no <tool_call>{\"name\": \"clock\"}</tool_call>"),
            "\"<tool_call>no\" clock{}"
        );
    }

    #[test]
    fn a_fault_within_arguments_leaves_the_call_open() {
        assert_eq!(
            read(F, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": oops}}"),
            "weather{\"city\": ! \"oops}}\""
        );
        assert_eq!(
            read(F, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Os"),
            "weather{\"city\": \"Os!"
        );
    }

    #[test]
    fn what_a_limit_cuts_off_does_not_show_its_marks() {
        let cut = |answer: &str| {
            let mut parser = Parser::new(&format(F), options());
            let mut found = parser.push(answer);
            found.extend(parser.cut());
            crate::testing::brief(&Segment::join(found))
        };
        for answer in
            ["<tool_", "<thi", "<tool_call>", "<tool_call>\n{\"name\": \"wea", "<tool_call>{"]
        {
            assert_eq!(cut(answer), "", "{answer}");
        }
        assert_eq!(cut("Well. <tool"), "\"Well. \"");
        assert_eq!(cut("<think>So</thi"), "(So)");
        assert_eq!(cut("<tool_call>{\"name\": \"weather\", \"arguments\": {\"ci"), "weather{\"ci!");
        assert_eq!(cut("1 < 2 and {3"), "\"1 < 2 and {3\"");
    }

    #[test]
    fn without_tools_everything_is_text() {
        let none = ParserOptions { reasoning: true, ..ParserOptions::default() };
        let answer = "<tool_call>{\"name\": \"clock\"}</tool_call> ";
        assert_eq!(read_with(F, none, answer), format!("{answer:?}"));
    }

    #[test]
    fn what_never_ends_is_handed_out() {
        let long = format!("<tool_call>{{\"arguments\": {{\"a\": \"{}", "x".repeat(100_000));
        let mut parser = Parser::new(&format(F), options());
        let told: usize = long
            .as_bytes()
            .chunks(100)
            .flat_map(|c| parser.push(str::from_utf8(c).unwrap()))
            .map(|e| if let Segment::Text(t) = e { t.len() } else { 0 })
            .sum();
        assert!(long.len() - told < 100, "{told} of {}", long.len());
    }
}
