//! Llama 3.1, 3.2 and 3.3: an answer that is a JSON object with `name` and `parameters`, or that begins
//! with `<|python_tag|>` and then is. One call an answer is what they are taught; several come with
//! semicolons between.

use crate::syntax::{Calls, Json, Syntax};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: None,
    drop: &[],
    calls: Calls::Json(Json {
        open: &["<|python_tag|>"],
        close: "",
        name: &["name"],
        arguments: &["parameters", "arguments"],
        list: false,
        writes_list: false,
        bare: true,
        inner: "",
        between: "; ",
    }),
};

#[cfg(test)]
mod tests {
    use crate::testing::{format, options, read};
    use crate::{Family, Parser, Segment};

    const F: Family = Family::Llama3;

    #[test]
    fn an_answer_that_is_a_call() {
        let call = r#"{"name": "weather", "parameters": {"city": "Quito"}}"#;
        assert_eq!(read(F, call), r#"weather{"city": "Quito"}"#);
        assert_eq!(read(F, &format!("<|python_tag|>{call}")), r#"weather{"city": "Quito"}"#);
        assert_eq!(
            read(F, &format!("\n{call}; {call}\n")),
            r#"weather{"city": "Quito"} weather{"city": "Quito"}"#
        );
    }

    #[test]
    fn json_that_is_no_call_is_text() {
        for answer in [
            r#"{"city": "Quito", "name": "weather"}"#,
            r#"{"name": "unknown", "parameters": {}}"#,
            r#"See {"name": "weather", "parameters": {}}"#,
            r#"{"type": "function"}"#,
            "<|python_tag|>print(1)",
        ] {
            assert_eq!(read(F, answer), format!("{answer:?}"));
        }
    }

    #[test]
    fn an_answer_in_json_does_not_wait_for_its_end() {
        let mut parser = Parser::new(&format(F), options());
        assert_eq!(parser.push("{\"city\":"), [Segment::Text("{\"city\":".into())]);
    }
}
