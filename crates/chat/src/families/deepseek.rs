//! DeepSeek R1, V3 and V3.1: marks of their own around all calls and around each. V3 and R1 write the
//! word `function` before the name and fence the arguments as Markdown does; V3.1 does neither.

use crate::syntax::{Calls, Decoration, Named, Syntax, THINK};

const NAMED: Named = Named {
    section: Some(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    open: "<｜tool▁call▁begin｜>",
    before: "",
    name_end: "<｜tool▁sep｜>",
    fence: None,
    close: "<｜tool▁call▁end｜>",
    decoration: Decoration::None,
    between: "",
};

/// V3.1 and later.
pub(crate) const SYNTAX: Syntax =
    Syntax { think: Some(THINK), drop: &[], calls: Calls::Named(NAMED) };

/// R1 and V3.
pub(crate) const FENCED: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Named(Named {
        before: "function<｜tool▁sep｜>",
        name_end: "\n",
        fence: Some(("```json\n", "\n```")),
        between: "\n",
        ..NAMED
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn fenced_calls() {
        let answer = "<think>\nHm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Xi'an\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
        assert_eq!(read(Family::DeepSeekV3, answer), r#"(Hm.) weather{"city": "Xi'an"} clock{}"#);
    }

    #[test]
    fn calls_without_fence() {
        let answer = "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Xi'an\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
        assert_eq!(read(Family::DeepSeekV31, answer), r#""Sure." weather{"city": "Xi'an"}"#);
        // Without the marks around all.
        let inner = "<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜>";
        assert_eq!(read(Family::DeepSeekV31, inner), "clock{}");
    }

    #[test]
    fn what_is_no_call_is_text() {
        for answer in [
            "<｜tool▁calls▁begin｜>none",
            "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>[]",
        ] {
            assert_eq!(read(Family::DeepSeekV31, answer), format!("{answer:?}"));
        }
    }
}
