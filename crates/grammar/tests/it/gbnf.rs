//! Grammars of llama.cpp's take what they say, and nothing else.

use arclight_grammar::Spec;

use crate::{TINY, takes};

fn gbnf(text: &str) -> Spec {
    Spec::Gbnf(text.to_owned())
}

#[test]
fn without_recursion_a_grammar_is_exact() {
    let spec = gbnf(
        "# a move, as in chess\n\
         root ::= (move \" \")* move \".\"? # and no more\n\
         move ::= piece? [a-h] [1-8] | \"O-O\"\n  | \"O-O-O\"\n\
         piece ::= [NBRQK]\n",
    );
    for text in ["e4", "Nf3 e4", "O-O-O.", "O-O O-O-O a1"] {
        assert!(takes(&spec, text), "{text}");
    }
    for text in ["", "e9", "e4 ", "Pe4", "O-"] {
        assert!(!takes(&spec, text), "{text}");
    }
    // What a greedy terminal would not find.
    let spec = gbnf("root ::= \"a\" \"bc\" | \"ab\" \"d\" | [a-z]* \"!\"");
    for text in ["abc", "abd", "abc!", "!"] {
        assert!(takes(&spec, text), "{text}");
    }
    assert!(!takes(&spec, "ab"));
}

#[test]
fn characters_and_counts() {
    let spec = gbnf(r#"root ::= "\"\\/\x41\u00e9\n" [^a-z\]\-] . {2} "x"{1,3} "y"{2,} [a-]+"#);
    assert!(takes(&spec, "\"\\/Aé\nÄ\n.xyya-"));
    assert!(takes(&spec, "\"\\/Aé\n:::xxxyyy-"));
    assert!(!takes(&spec, "\"\\/Aé\n]..xyya"));
    assert!(!takes(&spec, "\"\\/Aé\n:..xxxxyya"));
    assert!(!takes(&spec, "\"\\/Aé\n:..xya"));
}

#[test]
fn recursion_becomes_rules() {
    let json = gbnf(
        r#"root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"#,
    );
    for text in ["{}", r#"{"a": [1, -2.5, {"b\"": null}], "é": {"c": "d"}}"#, "{\n  \"a\": []\n}"]
    {
        assert!(takes(&json, text), "{text}");
    }
    for text in ["", "[]", r#"{"a"}"#, r#"{"a": 01}"#, r#"{"a": 1,}"#] {
        assert!(!takes(&json, text), "{text}");
    }
    let sums = gbnf("root ::= root \"+\" term | term\nterm ::= \"(\" root \")\" | [0-9]+");
    for text in ["1", "1+23", "(1+(2))+3"] {
        assert!(takes(&sums, text), "{text}");
    }
    assert!(!takes(&sums, "1+") && !takes(&sums, "(1"));
}

#[test]
fn faults_name_the_line() {
    let fault = |text: &str| TINY.compile(&gbnf(text)).unwrap_err().to_string();
    let cases = [
        ("root ::= \"a\"\nb ::= c", "line 2: there is no rule `c`"),
        ("a ::= \"b\"", "line 1: there is no rule `root`"),
        ("root ::= (\"a\"", "line 1: a `(` is not closed"),
        ("root ::= \"a\")", "line 1: a `)` closes nothing"),
        ("root ::= \"a", "line 1: a text is not closed"),
        ("root ::= [a", "line 1: a `[` is not closed"),
        ("root ::= [z-a]", "line 1: nothing is from 'z' to 'a'"),
        ("root ::= \"\\q\"", "line 1: \\q is no known escape"),
        ("root ::= a{3,1}\na ::= \"b\"", "line 1: the larger number comes first"),
        ("root ::= <think>", "line 1: tokens are not supported"),
        ("root ::=\n\n ; ", "line 3: ';' does not belong here"),
        ("root = \"a\"", "line 1: `root` must be followed by ::="),
    ];
    for (text, want) in cases {
        let fault = fault(text);
        assert!(fault.contains(want), "{text:?}: {fault}");
    }
    let deep = format!("root ::= {}", "(".repeat(100_000));
    assert!(fault(&deep).contains("levels deep"));
    // A few rules that double each other.
    let doubling: String = (0..40).map(|n| format!("r{n} ::= r{} r{}\n", n + 1, n + 1)).collect();
    assert!(fault(&format!("root ::= r0\n{doubling}r40 ::= \"a\"")).contains("at most"));
    // Many that use each other in a row, in the order in which they are found out last.
    let row: String = (0..50_000).map(|n| format!("r{n} ::= r{}\n", n + 1)).collect();
    assert!(fault(&format!("root ::= r0\n{row}r50000 ::= \"a\"")).contains("levels deep"));
    // A long rule that is used often, in a rule that is regular and in one that is not.
    let (long, often) = (format!("l ::= \"{}\"\n", "a".repeat(30_000)), "l ".repeat(300_000));
    assert!(fault(&format!("{long}root ::= {often}")).contains("at most"));
    let often = "l root ".repeat(100_000);
    assert!(fault(&format!("{long}root ::= \"b\" | {often}")).contains("at most"));
}
