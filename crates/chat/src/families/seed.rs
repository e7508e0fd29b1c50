//! Seed-OSS: tags as Qwen3-Coder's in a wrap of its own, values without lines of their own.

use crate::syntax::{Calls, Syntax, Tagged};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(("<seed:think>", "</seed:think>")),
    drop: &[],
    calls: Calls::Tagged(Tagged {
        wrap: ("<seed:tool_call>", "</seed:tool_call>"),
        lines: false,
        ..super::qwen_coder::TAGGED
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn calls_and_reasoning() {
        let answer = "<seed:think>Where?</seed:think>\n<seed:tool_call>\n<function=weather>\n<parameter=city>Kyoto\n</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>";
        assert_eq!(read(Family::Seed, answer), r#"(Where?) weather{"city": "Kyoto\n", "days": 2}"#);
    }
}
