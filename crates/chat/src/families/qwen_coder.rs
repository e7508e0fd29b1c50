//! Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5: a tag for the function and one for each parameter, the
//! values on lines of their own. `<tool_call>` is often forgotten.

use crate::syntax::{Calls, Syntax, THINK, Tagged};

pub(crate) const TAGGED: Tagged = Tagged {
    wrap: ("<tool_call>", "</tool_call>"),
    name: ("<function=", ">"),
    key: ("<parameter=", ">"),
    value: ("", "</parameter>"),
    end: "</function>",
    lines: true,
    shared: false,
};

pub(crate) const SYNTAX: Syntax =
    Syntax { think: Some(THINK), drop: &[], calls: Calls::Tagged(TAGGED) };

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    const F: Family = Family::QwenCoder;

    #[test]
    fn arguments_become_json_by_the_schema() {
        let answer = "I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nSão \"Paulo\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n<parameter=spots>\n[\"a\", \"b\"]\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(
            read(F, answer),
            r#""I look." weather{"city": "São \"Paulo\"", "days": 3, "hourly": true, "spots": ["a", "b"]}"#
        );
    }

    #[test]
    fn values_keep_their_lines_and_angle_brackets() {
        let answer = "<tool_call>\n<function=weather>\n<parameter=city>\n\na < b\n</para\n\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(read(F, answer), r#"weather{"city": "\na < b\n</para\n"}"#);
    }

    #[test]
    fn a_number_for_a_string_is_a_string_and_words_for_a_number_are_too() {
        let answer = "<function=weather><parameter=city>12</parameter><parameter=days>many</parameter></function>";
        assert_eq!(read(F, answer), r#"weather{"city": "12", "days": "many"}"#);
    }

    #[test]
    fn the_wrap_may_be_missing_and_calls_may_follow() {
        let answer = "<function=clock>\n</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>\nDone";
        assert_eq!(read(F, answer), r#"clock{} clock{} "Done""#);
    }

    #[test]
    fn cut_off_and_broken_calls() {
        assert_eq!(
            read(F, "<tool_call>\n<function=weather>\n<parameter=city>\nOs</par"),
            "weather{\"city\": \"Os</par!"
        );
        assert_eq!(read(F, "<tool_call>\n<function=weather>\n</func"), "weather!");
        assert_eq!(read(F, "<function=weather>\n<b>bold</b>"), "weather! \"\\n<b>bold</b>\"");
        for answer in ["<tool_call>\nno", "<function=a b>", "<tool_call></tool_call>"] {
            assert_eq!(read(F, answer), format!("{answer:?}"));
        }
    }
}
