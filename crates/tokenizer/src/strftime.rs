//! `strftime` for the date that some templates put into the system message.
//!
//! Times are UTC; a caller who wants local time adds the offset to the time it passes. Only the
//! directives that make sense for a date or a time of day are known.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Formats a time, in UTC, as C's `strftime` does.
///
/// # Errors
/// The directive that is not known.
pub fn strftime(time: SystemTime, format: &str) -> Result<String, String> {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs() as i64,
        Err(before) => -((before.duration() + Duration::from_nanos(999_999_999)).as_secs() as i64),
    };
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[(days + 4).rem_euclid(7) as usize];
    let hour12 = (hour + 11) % 12 + 1;

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        // `-` takes the padding away.
        let mut directive = chars.next();
        let pad = directive != Some('-');
        if !pad {
            directive = chars.next();
        }
        let two = |n: i64| if pad { format!("{n:02}") } else { n.to_string() };
        out += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('H') => two(hour),
            Some('I') => two(hour12),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('j') => format!("{:03}", days - days_before(year) + 1),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('z') => "+0000".to_owned(),
            Some('%') => "%".to_owned(),
            Some(other) => return Err(format!("%{other}")),
            None => return Err("%".to_owned()),
        };
    }
    Ok(out)
}

/// Days from 1970-01-01 to the first of January of `year`.
fn days_before(year: i64) -> i64 {
    let y = year - 1;
    y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) - 719_162
}

/// Year, month (1 to 12) and day (1 to 31) of the day `days` after 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    // 146,097 days make 400 years; the guess is off by one at most.
    let mut year = 1970 + days * 400 / 146_097;
    while days < days_before(year) {
        year -= 1;
    }
    while days >= days_before(year + 1) {
        year += 1;
    }
    let leap = days_before(year + 1) - days_before(year) == 366;
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut day = days - days_before(year);
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn before_the_epoch() {
        let time = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(strftime(time, "%F %T").unwrap(), "1969-12-31 23:59:59");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil(-200_000);
        for days in -199_999..200_000 {
            let now = civil(days);
            let next_month =
                if last.1 == 12 { (last.0 + 1, 1, 1) } else { (last.0, last.1 + 1, 1) };
            assert!(now == (last.0, last.1, last.2 + 1) || (now == next_month && last.2 >= 28));
            last = now;
        }
    }

    #[test]
    fn unknown_directives_are_named() {
        assert_eq!(strftime(UNIX_EPOCH, "%Y %Q").unwrap_err(), "%Q");
        assert_eq!(strftime(UNIX_EPOCH, "100%").unwrap_err(), "%");
    }
}
