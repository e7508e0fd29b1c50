//! `--load`: ways to read a model's file.

use crate::support::{complains, fails, run, succeeds, tiny};

#[test]
fn a_file_is_read_past_the_page_cache_or_refused() {
    let prompt = ["run", tiny(), "--untuned", "--greedy", "-n", "8", "-p", "a"];
    let mapped = run(&prompt);
    assert!(mapped.err.contains("GB/s, mapped"), "{}", mapped.err);
    let direct = run(&[&prompt[..], &["--load", "direct"]].concat());
    if direct.code == Some(0) {
        assert_eq!(direct.out, mapped.out);
        assert!(direct.err.contains("GB/s, past the page cache"), "{}", direct.err);
    } else {
        // Where temporary files are in memory, an older kernel has no such reads.
        let line = complains(1, &direct);
        assert!(line.contains("tiny-q4_0.gguf") && line.contains("--load mapped"), "{line}");
    }
}

#[test]
fn every_command_that_loads_a_model_has_the_option() {
    for command in ["run", "chat", "serve", "bench", "perplexity", "tune"] {
        let help = succeeds(&[command, "--help"]);
        assert!(help.contains("--load <WAY>") && help.contains("O_DIRECT"), "{command}: {help}");
        let line = run(&[command, "--load", "fast"]).err;
        assert!(line.contains("[possible values: mapped, direct]"), "{line}");
    }
    // A model in memory is read already.
    assert_eq!(run(&["run", "-q", "-n", "1", "--load", "direct"]).code, Some(0));
    let line = fails(1, &["run", "no-such-file.gguf", "-p", "a", "--load", "direct"]);
    assert!(line.contains("no-such-file.gguf"), "{line}");
}
