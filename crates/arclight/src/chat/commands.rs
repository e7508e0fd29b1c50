//! What can be typed instead of a message.

use std::path::PathBuf;

/// A line that begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Clear,
    System(String),
    Image(PathBuf),
    Save(PathBuf),
    Stats,
    Regenerate,
    Quit,
}

/// All commands, for completion.
pub(crate) const NAMES: [&str; 8] =
    ["/help", "/clear", "/system ", "/image ", "/save ", "/stats", "/regenerate", "/quit"];

/// For `/help` and `--help`.
pub(crate) const HELP: &str = "\
In the conversation:
  /clear          begin a new conversation
  /system TEXT    begin a new one with this system message; without TEXT, with none
  /image FILE     show an image with the next message
  /regenerate     answer the last message again
  /stats          tokens in the context, and the speed of the last answer
  /save FILE      write the conversation to a file, as Markdown
  /help           this list
  /quit           end, as Ctrl-D does
  Ctrl-C          stop an answer
  \\ at the end    the message goes on in the next line
";

impl Command {
    /// `None` if the line is a message; an error if it names no command. A message can begin with
    /// a slash if there is a space before it.
    pub(crate) fn parse(line: &str) -> Option<Result<Command, String>> {
        let line = line.strip_prefix('/')?;
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let plain = |command| match rest {
            "" => Ok(command),
            _ => Err(format!("/{name} stands alone")),
        };
        Some(match name {
            "help" | "?" => plain(Command::Help),
            "clear" => plain(Command::Clear),
            "system" => Ok(Command::System(rest.to_owned())),
            "image" if rest.is_empty() => Err("name a file: /image FILE".to_owned()),
            "image" => Ok(Command::Image(rest.into())),
            "save" if rest.is_empty() => Err("name a file: /save FILE".to_owned()),
            "save" => Ok(Command::Save(rest.into())),
            "stats" => plain(Command::Stats),
            "regenerate" => plain(Command::Regenerate),
            "quit" | "exit" => plain(Command::Quit),
            _ => Err(format!(
                "there is no command /{name}: see /help, or put a space before the message"
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let ok = |line| Command::parse(line).unwrap().unwrap();
        assert_eq!(Command::parse("hello /help"), None);
        assert_eq!(Command::parse(" /etc/hosts is what?"), None);
        assert_eq!(ok("/quit"), Command::Quit);
        assert_eq!(ok("/system be  brief "), Command::System("be  brief".into()));
        assert_eq!(ok("/system"), Command::System(String::new()));
        assert_eq!(ok("/save a b.md"), Command::Save("a b.md".into()));
        for (line, part) in [("/save", "/save FILE"), ("/etc/x", "/etc/x"), ("/clear all", "alone")]
        {
            assert!(Command::parse(line).unwrap().unwrap_err().contains(part), "{line}");
        }
    }

    #[test]
    fn help_tells_of_every_command() {
        for name in NAMES {
            assert!(HELP.contains(name.trim()), "{name}");
        }
    }
}
