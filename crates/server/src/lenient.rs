//! Numbers as clients write them: a whole one may be 5.0, which languages without integers send.

use crate::fault::Fault;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// A whole number, for `deserialize_with`.
pub(crate) fn whole<'de, D: Deserializer<'de>, T: TryFrom<i128>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let exact = |x: &f64| x.fract() == 0.0 && x.abs() <= 2f64.powi(53);
    let whole = number.as_i128().or_else(|| number.as_f64().filter(exact).map(|x| x as i128));
    let fits = whole.and_then(|whole| T::try_from(whole).ok());
    let message = || D::Error::custom(format_args!("{number} is no whole number that can be here"));
    fits.map(Some).ok_or_else(message)
}

/// A limit on tokens: -1 is none.
///
/// # Errors
/// 400 for other negative numbers.
pub(crate) fn limit(field: &str, value: Option<i64>) -> Result<Option<usize>, Fault> {
    match value {
        None | Some(-1) => Ok(None),
        Some(value) => usize::try_from(value).map(Some).map_err(|_| {
            Fault::field(field, format!("{field} must be a number of tokens, or -1 for no limit"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Read {
        #[serde(default, deserialize_with = "whole")]
        n: Option<u32>,
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        let read = |text: &str| serde_json::from_str::<Read>(text).map(|read| read.n);
        assert_eq!(read("{\"n\": 5.0}").unwrap(), Some(5));
        assert_eq!(read("{\"n\": 5}").unwrap(), Some(5));
        assert_eq!(read("{\"n\": null}").unwrap(), None);
        assert_eq!(read("{}").unwrap(), None);
        for wrong in ["5.5", "-1", "1e300", "4294967296", "\"5\"", "true"] {
            assert!(read(&format!("{{\"n\": {wrong}}}")).is_err(), "{wrong}");
        }
    }
}
