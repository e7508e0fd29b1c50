//! Shares of a limit in tables, and the sentences for what has none.

use why::NoShare;

/// Stands where work beats its limit.
pub(super) const NO_SHARE: &str = "no share";

/// A share in whole percent, as a cell of a table.
pub(crate) fn of_limit(share: Option<f64>) -> String {
    share.map_or_else(|| NO_SHARE.to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

/// One sentence for each reason, with the names of the tests or rows that have it: `tg8, tg8 b2: faster than …`.
pub(crate) fn no_shares<'n>(reasons: impl IntoIterator<Item = (NoShare, &'n str)>) -> Vec<String> {
    let mut found: Vec<(NoShare, Vec<&str>)> = Vec::new();
    for (why, name) in reasons {
        match found.iter_mut().find(|(other, _)| *other == why) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => found.push((why, vec![name])),
        }
    }
    found.iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_share_is_named_once_for_each_reason() {
        assert_eq!([Some(0.994), Some(1.0), None].map(of_limit), ["99 %", "100 %", "no share"]);
        let lines = no_shares([
            (NoShare::Memory, "qkv"),
            (NoShare::Cores, "down"),
            (NoShare::Memory, "qkv"),
            (NoShare::Memory, "all"),
        ]);
        assert_eq!(
            lines,
            [
                "qkv, all: faster than the probe of the memory, which was disturbed: no share",
                "down: faster than the probe of the multiplications, which was disturbed: no share",
            ]
        );
        assert_eq!(no_shares([]), [""; 0]);
    }
}
