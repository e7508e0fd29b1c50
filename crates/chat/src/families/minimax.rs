//! MiniMax M2: `<invoke>` and `<parameter>` tags, all calls of an answer in one wrap.

use crate::syntax::{Calls, Syntax, THINK, Tagged};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Tagged(Tagged {
        wrap: ("<minimax:tool_call>", "</minimax:tool_call>"),
        name: ("<invoke name=\"", "\">"),
        key: ("<parameter name=\"", "\">"),
        value: ("", "</parameter>"),
        end: "</invoke>",
        lines: false,
        shared: true,
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn calls_share_a_wrap() {
        let answer = "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Lima</parameter>\n</invoke>\n<invoke name=\"clock\">\n</invoke>\n</minimax:tool_call>";
        assert_eq!(read(Family::MiniMax, answer), r#"weather{"city": "Lima"} clock{}"#);
    }
}
