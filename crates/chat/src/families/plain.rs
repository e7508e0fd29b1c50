//! Everything else: an answer is text, perhaps with reasoning before it. Gemma 2 and 3 are here: they
//! know no calls.

use crate::syntax::{Calls, Syntax, THINK};

pub(crate) const SYNTAX: Syntax = Syntax { think: Some(THINK), drop: &[], calls: Calls::None };

/// gpt-oss; [`crate::harmony`] reads it.
pub(crate) const HARMONY: Syntax = Syntax { think: None, drop: &[], calls: Calls::Harmony };

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn text_is_text() {
        let answer = " <tool_call>{\"name\": \"clock\"}</tool_call>\n\n";
        assert_eq!(read(Family::Plain, answer), format!("{answer:?}"));
        assert_eq!(read(Family::Plain, "<think>a</think>b"), "(a) \"b\"");
    }
}
