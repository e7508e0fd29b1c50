//! Command R7B and Command A: reasoning, calls and the answer each between marks of their own; calls are a JSON list.

use crate::syntax::{Calls, Json, Syntax};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
    drop: &["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
    calls: Calls::Json(Json {
        open: &["<|START_ACTION|>"],
        close: "<|END_ACTION|>",
        name: &["tool_name"],
        arguments: &["parameters"],
        list: true,
        writes_list: true,
        bare: false,
        inner: "\n",
        between: ", ",
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn a_plan_and_a_list_of_calls() {
        let answer = r#"<|START_THINKING|>Ask both.<|END_THINKING|><|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Bonn"}},
    {"tool_call_id": "1", "tool_name": "clock", "parameters": {}}
]<|END_ACTION|>"#;
        assert_eq!(read(Family::Cohere, answer), r#"(Ask both.) weather{"city": "Bonn"} clock{}"#);
    }

    #[test]
    fn the_marks_around_an_answer_are_no_part_of_it() {
        let answer =
            "<|START_THINKING|>First.<|END_THINKING|><|START_RESPONSE|>Then.<|END_RESPONSE|>";
        assert_eq!(read(Family::Cohere, answer), "(First.) \"Then.\"");
    }
}
