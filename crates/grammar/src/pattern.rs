//! A look at a regular expression before it is compiled: syntax, what is not supported, what it costs.
//!
//! Counted repetitions within counted repetitions multiply the states of the automaton, and only
//! while it runs; `(a{1,1000}){1,1000}` compiles in a millisecond and fails a hundred tokens later.
//! So their product is bounded here.

use regex_syntax::hir::{Hir, HirKind, Look};

use crate::limits::{PATTERN_BYTES, PATTERN_COUNT};

/// Why the pattern cannot be used, in words.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES {
        return Err(format!("{} bytes; at most {PATTERN_BYTES} are allowed", pattern.len()));
    }
    // The parser bounds how deep groups nest.
    let hir = regex_syntax::Parser::new().parse(pattern).map_err(|error| match error {
        regex_syntax::Error::Parse(e) => {
            format!("{} (at byte {})", e.kind(), e.span().start.offset)
        }
        regex_syntax::Error::Translate(e) => {
            format!("{} (at byte {})", e.kind(), e.span().start.offset)
        }
        other => other.to_string(),
    })?;
    let count = counted(&hir)?;
    if count > PATTERN_COUNT {
        return Err(format!(
            "its repetitions multiply to {count}; at most {PATTERN_COUNT} are allowed"
        ));
    }
    Ok(())
}

/// The product of nested counts, at its largest.
fn counted(hir: &Hir) -> Result<u64, String> {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => Ok(1),
        HirKind::Look(Look::Start | Look::End | Look::StartLF | Look::EndLF) => Ok(1),
        HirKind::Look(_) => Err(r"`\b` and its kin are not supported".into()),
        HirKind::Repetition(r) => {
            let times = u64::from(r.max.unwrap_or(r.min)).max(1);
            Ok(counted(&r.sub)?.saturating_mul(times))
        }
        HirKind::Capture(c) => counted(&c.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(counted).try_fold(1, |most, part| Ok(most.max(part?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_multiply_through_groups_and_not_side_by_side() {
        let of = |p| counted(&regex_syntax::parse(p).unwrap()).unwrap();
        assert_eq!(of("(a{1,1000}){1,1000}"), 1_000_000);
        assert_eq!(of("(?:a{3}|b{7,}){2}c{9}"), 14);
        assert_eq!(of("(a+)+"), 1);
    }

    #[test]
    fn faults_say_what_and_where() {
        assert!(check("(ab").unwrap_err().contains("unclosed group (at byte 0)"));
        assert!(check("a(?=b)").unwrap_err().contains("look-around"));
        assert!(check(r"\bword\b").unwrap_err().contains(r"`\b`"));
        assert!(check("(a{1,1000}){1,1000}").unwrap_err().contains("1000000"));
        assert!(check(&"(".repeat(20_000)).is_err());
        assert!(check(&"a".repeat(PATTERN_BYTES + 1)).unwrap_err().contains("at most"));
        assert_eq!(check(r"^[a-z]+@\w{1,20}\.(com|org)$"), Ok(()));
    }
}
