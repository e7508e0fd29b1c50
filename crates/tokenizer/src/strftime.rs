//! `strftime` for the date that some templates put into the system message.
//!
//! Times are UTC; for local time a caller adds the offset to the time that it passes.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// Formats a time, in UTC, as C's `strftime` does.
///
/// # Errors
/// What is wrong with the format: it names the directive that is not known. And times outside the years -9999 to 9999.
pub fn strftime(time: SystemTime, format: &str) -> Result<String, String> {
    let formatted = Timestamp::try_from(time)
        .and_then(|time| strtime::format(format, &time.to_zoned(TimeZone::UTC)));
    formatted.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(seconds: u64, text: &str) -> String {
        strftime(UNIX_EPOCH + Duration::from_secs(seconds), text).unwrap()
    }

    #[test]
    fn known_days() {
        assert_eq!(at(0, "%A %d %b %Y %H:%M:%S %j"), "Thursday 01 Jan 1970 00:00:00 001");
        assert_eq!(at(951_827_696, "%F %T %p %I"), "2000-02-29 12:34:56 PM 12");
        assert_eq!(at(1_721_952_000, "%d %b %Y, %-d.%-m.%y %a"), "26 Jul 2024, 26.7.24 Fri");
        assert_eq!(at(4_107_542_399, "%d %B %Y %e %j"), "28 February 2100 28 059");
        assert_eq!(at(4_107_542_400, "%d %B %Y %e %j"), "01 March 2100  1 060");
        assert_eq!(at(0, "%h %R %Z %z %y 100%%"), "Jan 00:00 UTC +0000 70 100%");
    }

    #[test]
    fn before_the_epoch() {
        let time = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(strftime(time, "%F %T").unwrap(), "1969-12-31 23:59:59");
    }

    #[test]
    fn unknown_directives_are_named() {
        let error = |format| strftime(UNIX_EPOCH, format).unwrap_err();
        assert!(error("%Y %J").contains("`J`"), "{}", error("%Y %J"));
        assert!(error("100%").contains('%'), "{}", error("100%"));
    }
}
