//! The templates that a request of `/api/generate` may bring: a small part of Go's `text/template`.
//!
//! Known are `{{ .System }}`, `{{ .Prompt }}`, `{{ .Suffix }}`, `{{ .Response }}`, `{{ if .Name }}` with
//! `{{ else }}` and `{{ end }}`, and the trimming dashes `{{-` and `-}}`. The prompt ends where the
//! response begins. Models' own templates are Jinja and are not rendered here.

use crate::fault::Fault;

/// Conditions within conditions.
const DEEPEST: usize = 16;

/// A template that has been read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prompt(Vec<Node>);

/// What a template is filled with.
pub(super) struct Values<'a> {
    pub(super) system: Option<&'a str>,
    pub(super) prompt: &'a str,
    pub(super) suffix: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Node {
    Text(String),
    Value(Name),
    If(Name, Vec<Node>, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    System,
    Prompt,
    Suffix,
    Response,
}

/// What ended a list of nodes.
#[derive(Debug, PartialEq, Eq)]
enum EndedBy {
    Template,
    Else,
    End,
}

impl Prompt {
    /// Reads a template.
    ///
    /// # Errors
    /// 400 that quotes the action that is not supported, or names what is missing.
    pub(super) fn parse(template: &str) -> Result<Prompt, Fault> {
        let mut reader = Reader { rest: template, trim: false };
        match reader.nodes(0)? {
            (nodes, EndedBy::Template) => Ok(Prompt(nodes)),
            (_, EndedBy::Else) => Err(fault("{{ else }} without {{ if }}")),
            (_, EndedBy::End) => Err(fault("{{ end }} without {{ if }}")),
        }
    }

    /// The prompt.
    pub(super) fn render(&self, values: &Values<'_>) -> String {
        let mut text = String::new();
        render(&self.0, values, &mut text);
        text
    }
}

/// Writes nodes; whether to go on after them.
fn render(nodes: &[Node], values: &Values<'_>, text: &mut String) -> bool {
    nodes.iter().all(|node| match node {
        Node::Text(piece) => {
            text.push_str(piece);
            true
        }
        Node::Value(Name::Response) => false,
        Node::Value(name) => {
            text.push_str(values.get(*name));
            true
        }
        Node::If(name, yes, no) => {
            render(if values.get(*name).is_empty() { no } else { yes }, values, text)
        }
    })
}

impl Values<'_> {
    fn get(&self, name: Name) -> &str {
        match name {
            Name::System => self.system.unwrap_or_default(),
            Name::Prompt => self.prompt,
            Name::Suffix => self.suffix.unwrap_or_default(),
            Name::Response => "",
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    /// The action before ended with a dash: white space that follows goes.
    trim: bool,
}

impl<'a> Reader<'a> {
    fn nodes(&mut self, depth: usize) -> Result<(Vec<Node>, EndedBy), Fault> {
        let mut nodes = Vec::new();
        loop {
            let (text, action) = self.step()?;
            if !text.is_empty() {
                nodes.push(Node::Text(text.to_owned()));
            }
            let Some(action) = action else { return Ok((nodes, EndedBy::Template)) };
            match action.split_whitespace().collect::<Vec<_>>()[..] {
                ["else"] => return Ok((nodes, EndedBy::Else)),
                ["end"] => return Ok((nodes, EndedBy::End)),
                ["if", name] if depth < DEEPEST => {
                    let name = self::name(name, action)?;
                    let (yes, end) = self.nodes(depth + 1)?;
                    let (no, end) = match end {
                        EndedBy::Else => self.nodes(depth + 1)?,
                        end => (Vec::new(), end),
                    };
                    if end != EndedBy::End {
                        return Err(fault("{{ if }} without {{ end }}"));
                    }
                    nodes.push(Node::If(name, yes, no));
                }
                [name] => nodes.push(Node::Value(self::name(name, action)?)),
                _ => return Err(unknown(action)),
            }
        }
    }

    /// The text up to the next action, and what that says.
    fn step(&mut self) -> Result<(&'a str, Option<&'a str>), Fault> {
        let (text, rest) = match self.rest.split_once("{{") {
            Some((text, rest)) => (text, Some(rest)),
            None => (self.rest, None),
        };
        let text = if self.trim { text.trim_start() } else { text };
        let Some(rest) = rest else {
            self.rest = "";
            return Ok((text, None));
        };
        let (action, rest) = rest.split_once("}}").ok_or_else(|| fault("{{ without }}"))?;
        self.rest = rest;
        let (text, action) = match action.strip_prefix('-') {
            Some(action) => (text.trim_end(), action),
            None => (text, action),
        };
        let (action, trim) = match action.strip_suffix('-') {
            Some(action) => (action, true),
            None => (action, false),
        };
        self.trim = trim;
        Ok((text, Some(action.trim())))
    }
}

fn name(name: &str, action: &str) -> Result<Name, Fault> {
    match name {
        ".System" => Ok(Name::System),
        ".Prompt" => Ok(Name::Prompt),
        ".Suffix" => Ok(Name::Suffix),
        ".Response" => Ok(Name::Response),
        _ => Err(unknown(action)),
    }
}

fn unknown(action: &str) -> Fault {
    fault(&format!(
        "{{{{ {action} }}}} is not supported: use .System, .Prompt, .Suffix, .Response and if"
    ))
}

fn fault(message: &str) -> Fault {
    Fault::unsupported("template", format!("the template: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, system: Option<&str>) -> String {
        let values = Values { system, prompt: "hi", suffix: None };
        Prompt::parse(template).unwrap().render(&values)
    }

    #[test]
    fn templates_are_filled_up_to_the_response() {
        let chatml = "{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}\
                      <|im_start|>user\n{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n\
                      {{ .Response }}<|im_end|>";
        let asked = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(render(chatml, None), asked);
        assert_eq!(
            render(chatml, Some("Be brief.")),
            format!("<|im_start|>system\nBe brief.<|im_end|>\n{asked}")
        );
    }

    #[test]
    fn dashes_trim_and_conditions_nest() {
        assert_eq!(render("a \n{{- .Prompt -}}\n b", None), "ahib");
        let nested = "{{if .System}}{{if .Suffix}}x{{else}}y{{end}}{{else}}z{{end}}!";
        assert_eq!(render(nested, Some("s")), "y!");
        assert_eq!(render(nested, None), "z!");
    }

    #[test]
    fn faults_quote_the_action() {
        let says = |template: &str| Prompt::parse(template).unwrap_err().message;
        assert!(says("{{ range .Messages }}{{ end }}").contains("{{ range .Messages }}"));
        assert!(says("{{ .Tools }}").contains("{{ .Tools }}"));
        assert!(says("{{ if .System }}").contains("without {{ end }}"));
        assert!(says("x {{ end }}").contains("without {{ if }}"));
        assert!(says("{{ .Prompt").contains("without }}"));
        assert!(says("{{ else }}").contains("without {{ if }}"));
        let deep = "{{ if .System }}".repeat(100_000);
        assert!(says(&deep).contains("not supported"));
    }
}
