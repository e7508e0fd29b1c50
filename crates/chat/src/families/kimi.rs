//! Kimi K2: marks around all calls and around each; a call's id is `functions.name:number`.

use crate::syntax::{Calls, Decoration, Named, Syntax, THINK};

pub(crate) const SYNTAX: Syntax = Syntax {
    think: Some(THINK),
    drop: &[],
    calls: Calls::Named(Named {
        section: Some(("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
        open: "<|tool_call_begin|>",
        before: "",
        name_end: "<|tool_call_argument_begin|>",
        fence: None,
        close: "<|tool_call_end|>",
        decoration: Decoration::Numbered,
        between: "",
    }),
};

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::testing::read;

    #[test]
    fn names_come_out_of_ids() {
        let answer = "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Graz\"}<|tool_call_end|><|tool_call_begin|>clock:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
        assert_eq!(read(Family::Kimi, answer), r#"weather{"city": "Graz"} clock{}"#);
    }
}
