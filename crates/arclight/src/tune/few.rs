//! Fewer threads for steps of few tokens, as an engine has found them on its own steps: kept for the next start.
//!
//! A file beside the profile that the model would have on this machine, with a section for each number of threads that
//! it was loaded with. It is no profile: whoever tunes knows more, and a profile takes its place. What cannot be read
//! or kept is found again.

use super::stored::{self, For};
use crate::error::Error;
use crate::term;
use arclight_engine::{FewThreads, Phase};
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Another version of the file is not read.
const VERSION: u32 = 1;

/// Where it is kept, and for which program.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    path: PathBuf,
    words: String,
    program: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    program: String,
    #[serde(default)]
    found: Vec<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    threads: Vec<usize>,
    steps: Vec<Steps>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steps {
    up_to: usize,
    threads: Vec<usize>,
}

impl Section {
    /// `None` where it makes no sense: the file may have been changed by hand.
    fn value(self) -> Option<FewThreads> {
        let Section { threads: of, steps } = self;
        let fits = |few: &Vec<usize>| {
            few.len() == of.len() && few.iter().zip(&of).all(|(few, of)| (1..=*of).contains(few))
        };
        let ascends = |pair: &[Steps]| {
            let more = pair[0].threads.iter().zip(&pair[1].threads).all(|(a, b)| a <= b);
            pair[0].up_to < pair[1].up_to && more
        };
        let good = steps.iter().all(|steps| steps.up_to > 0 && fits(&steps.threads))
            && steps.windows(2).all(ascends);
        let phase = |Steps { up_to, threads }| Phase { tokens: up_to, threads };
        good.then(|| FewThreads { phases: steps.into_iter().map(phase).collect(), of })
    }
}

impl Kept {
    /// That of the model whose profile would be `profile`.
    pub(super) fn beside(profile: &Path, owner: &For) -> Kept {
        let name = profile.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let name = format!("threads-{}", name.strip_prefix("tune-").unwrap_or(&name));
        Kept {
            path: profile.with_file_name(name),
            words: format!("{} on {}", owner.model.words, owner.machine.words),
            program: owner.program.digest.clone(),
        }
    }

    /// What was found earlier by this program.
    pub(super) fn read(&self) -> Vec<FewThreads> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        match toml::from_str::<Text>(&text) {
            Ok(text) if text.version == VERSION && text.program == self.program => {
                text.found.into_iter().filter_map(Section::value).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Keeps what was found, in place of what was found for as many threads.
    pub(super) fn keep(&self, found: &FewThreads) -> Result<(), Error> {
        let mut all = self.read();
        all.retain(|other| other.of != found.of);
        all.push(found.clone());
        stored::keep(&self.path, &self.text(&all))
    }

    fn text(&self, all: &[FewThreads]) -> String {
        let Kept { words, program, .. } = self;
        let comment = words.replace(|c: char| c.is_control(), " ");
        // Strings of JSON are strings of TOML.
        let program = serde_json::Value::from(program.as_str());
        let mut text = format!(
            "# Threads that take steps of few tokens, found while decoding: {comment}.\n\
             # Threads are those of each group. They are tried again at every start.\n\
             version = {VERSION}\nprogram = {program}\n"
        );
        for FewThreads { of, phases } in all {
            let _ = write!(text, "\n[[found]]\nthreads = {of:?}\nsteps = [\n");
            for Phase { tokens, threads } in phases {
                let _ = writeln!(text, "  {{ up_to = {tokens}, threads = {threads:?} }},");
            }
            text += "]\n";
        }
        text
    }

    /// What was found, in a sentence; `None` where all threads are best.
    pub(super) fn sentence(&self, found: &FewThreads) -> Option<String> {
        let all = found.of.iter().sum::<usize>();
        let words = words(&found.phases, all)?;
        Some(format!(
            "fewer threads read as fast as all {all}: {words}, prompts all; kept in {}",
            self.path.display()
        ))
    }
}

/// Which steps not all threads take, in words; `None` if all take all.
pub(crate) fn words(phases: &[Phase], all: usize) -> Option<String> {
    let threads = |phase: &Phase| phase.threads.iter().sum::<usize>();
    let few: Vec<String> = phases
        .iter()
        .filter(|phase| threads(phase) < all)
        .map(|phase| {
            let up_to = if phase.tokens > 1 { "up to " } else { "" };
            let tokens = term::plural(phase.tokens, "token");
            format!("steps of {up_to}{tokens} have {}", threads(phase))
        })
        .collect();
    (!few.is_empty()).then(|| few.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> Kept {
        let path = folder.join("threads-x.toml");
        Kept { path, words: "a \"model\"\non a machine".to_owned(), program: "1".to_owned() }
    }

    fn found(of: &[usize], phases: &[(usize, &[usize])]) -> FewThreads {
        let phase = |(tokens, threads): &(usize, &[usize])| Phase {
            tokens: *tokens,
            threads: threads.to_vec(),
        };
        FewThreads { of: of.to_vec(), phases: phases.iter().map(phase).collect() }
    }

    #[test]
    fn what_was_found_is_there_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        assert_eq!(kept.read(), []);
        let one = found(&[16, 16], &[(1, &[6, 6]), (8, &[12, 12])]);
        let other = found(&[15], &[(1, &[15])]);
        kept.keep(&one).unwrap();
        kept.keep(&other).unwrap();
        assert_eq!(kept.read(), [one.clone(), other.clone()]);
        let again = found(&[16, 16], &[(1, &[7, 7])]);
        kept.keep(&again).unwrap();
        assert_eq!(kept.read(), [other, again]);
        // Another program multiplies in another way.
        let new = Kept { program: "2".to_owned(), ..kept };
        assert_eq!(new.read(), []);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        let of = |found: &str| format!("version = 1\nprogram = \"1\"\n{found}");
        let good = "[[found]]\nthreads = [4]\nsteps = [{ up_to = 1, threads = [2] }]";
        std::fs::write(&kept.path, of(good)).unwrap();
        assert_eq!(kept.read().len(), 1);
        let bad = [
            good.replace("[2]", "[5]"),
            good.replace("[2]", "[0]"),
            good.replace("[2]", "[2, 2]"),
            good.replace("up_to = 1", "up_to = 0"),
            good.replace("}]", "}, { up_to = 8, threads = [1] }]"),
            good.replace("steps", "step"),
            "nonsense".to_owned(),
        ];
        for bad in bad {
            std::fs::write(&kept.path, of(&bad)).unwrap();
            assert_eq!(kept.read(), [], "{bad}");
        }
    }

    #[test]
    fn a_sentence_tells_who_takes_what() {
        let kept = kept(Path::new("/cache"));
        let of = |phases| kept.sentence(&found(&[16, 16], phases));
        assert_eq!(of(&[(1, &[16, 16])]), None);
        assert_eq!(
            of(&[(1, &[6, 6]), (8, &[12, 12]), (16, &[16, 16])]).unwrap(),
            "fewer threads read as fast as all 32: steps of 1 token have 12, steps of up to 8 tokens have 24, \
             prompts all; kept in /cache/threads-x.toml"
        );
    }
}
