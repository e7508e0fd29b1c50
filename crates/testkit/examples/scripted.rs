//! Writes a model that says what a script has: `scripted DEMO.gguf SCRIPT.json OUT.gguf`, where the script is
//! `{"context": 65536, "rules": [["bash", "<tool_call>…"]], "words": [["weather", "Rain."]], "otherwise": "Done."}`.

use arclight_testkit::{Script, scripted};
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [demo, script, out] = &args[..] else {
        return Err("usage: scripted DEMO.gguf SCRIPT.json OUT.gguf".into());
    };
    let script: Value = serde_json::from_slice(&std::fs::read(script)?)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = |key: &str| {
        let rules = script[key].as_array().into_iter().flatten();
        rules.map(|rule| (text(&rule[0]), text(&rule[1]))).collect()
    };
    let script = Script {
        context: script["context"].as_u64().unwrap_or(65_536) as u32,
        rules: pairs("rules"),
        words: pairs("words"),
        otherwise: text(&script["otherwise"]),
    };
    std::fs::write(out, scripted(&script, &std::fs::read(demo)?))?;
    Ok(())
}
