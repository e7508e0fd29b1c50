//! GLM 4.5 to 4.7: the name behind `<tool_call>`, then pairs of `<arg_key>` and `<arg_value>`.

use crate::syntax::{Calls, Syntax, THINK, Tagged};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Tagged(Tagged {
        wrap: ("<tool_call>", "</tool_call>"),
        name: ("", ""),
        key: ("<arg_key>", "</arg_key>"),
        value: ("<arg_value>", "</arg_value>"),
        end: "",
        lines: false,
        shared: false,
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    const F: Family = Family::Glm;

    #[test]
    fn calls_with_and_without_arguments() {
        let answer = "\n<think>Both.</think>\nWait.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>5</arg_value>\n</tool_call>\n<tool_call>clock\n</tool_call>";
        assert_eq!(
            read(F, answer),
            r#"(Both.) "Wait." weather{"city": "Bern", "days": 5} clock{}"#
        );
        assert_eq!(
            read(
                F,
                "<tool_call>weather<arg_key>city</arg_key><arg_value>1</arg_value></tool_call>"
            ),
            r#"weather{"city": "1"}"#
        );
        assert_eq!(read(F, "<tool_call>clock</tool_call>"), "clock{}");
    }

    #[test]
    fn what_is_no_call_is_text() {
        for answer in ["<tool_call>what is this\n", "<tool_call><b>", "<tool_call>{\"name\": 1}\n"]
        {
            assert_eq!(read(F, answer), format!("{answer:?}"));
        }
    }
}
