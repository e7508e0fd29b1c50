//! `chat`, with its lines from a pipe.

use crate::support::{FILES, run_with, text};

const ARGS: &[&str] = &["chat", "--greedy", "-n", "40"];

#[test]
fn turns_commands_and_the_end() {
    let path = text(&FILES.path().join("talk.md"));
    let input = format!("Tell me a story.\nAnd then?\n/stats\n/save {path}\n/nonsense\n/quit\nno");
    let ran = run_with(ARGS, &input);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("tokens/s") && ran.err.contains("/nonsense"), "{}", ran.err);
    let saved = std::fs::read_to_string(&path).unwrap();
    assert_eq!(saved.matches("## user").count(), 2, "{saved}");
    assert_eq!(saved.matches("## assistant").count(), 2, "{saved}");
    for answer in saved.split("## assistant").skip(1) {
        let answer = answer.split("## user").next().unwrap().trim();
        assert!(!answer.is_empty() && ran.out.contains(answer), "{answer:?} of {}", ran.out);
    }
}

#[test]
fn a_cached_conversation_gives_the_answers_of_a_new_one() {
    // The last answer again: all but one token of its prompt is in the cache.
    let again = run_with(ARGS, "Tell me a story.\nAnd then?\n/regenerate\n");
    let once = run_with(ARGS, "Tell me a story.\nAnd then?\n").out;
    let alone = run_with(ARGS, "Tell me a story.\n").out;
    let second = once.strip_prefix(&alone).expect("greedy answers repeat");
    assert_eq!(again.out, format!("{once}{second}"));
}

#[test]
fn clear_forgets_and_system_messages_count() {
    let alone = run_with(ARGS, "Tell me a story.\n").out;
    let cleared = run_with(ARGS, "And then?\n/clear\nTell me a story.\n").out;
    assert!(cleared.ends_with(&alone) && cleared.len() > alone.len(), "{cleared}");
}

#[test]
fn a_conversation_that_is_too_long_is_told_and_goes_on() {
    let long = "word ".repeat(200);
    let ran = run_with(&["chat", "--ctx", "128", "-n", "8"], &format!("{long}\nHello!\n"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("context holds 128") && ran.err.contains("/clear"), "{}", ran.err);
    assert!(!ran.out.trim().is_empty(), "the second message was answered");
}

#[test]
fn a_line_with_a_backslash_goes_on() {
    let path = text(&FILES.path().join("lines.md"));
    let ran = run_with(ARGS, &format!("one\\\ntwo\n/save {path}\n"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let saved = std::fs::read_to_string(&path).unwrap();
    assert!(saved.contains("one\ntwo\n"), "{saved}");
}
