//! What cores share below a memory node: a way to memory that few of them fill.

use crate::Error;
use crate::error::positive;
use std::fmt;
use std::str::FromStr;

/// Cores that share a way to memory, such as those of an L3 cache or a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// Cores that share it.
    pub cores: usize,
    /// How far they stand apart among the cores of their common parent.
    pub stride: usize,
    /// What it lets through.
    pub fill: Fill,
    /// How cores beyond those that fill it crowd each other: `n` of them divide what it lets through by
    /// 1 + `n` × `crowd`.
    pub crowd: f64,
}

/// What a shared way lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// As much as so many cores read.
    Cores(f64),
    /// Bytes a second.
    Bytes(f64),
}

impl Sharing {
    /// Bytes a second, where a core alone reads so many.
    pub fn read(&self, core: f64) -> f64 {
        match self.fill {
            Fill::Cores(cores) => cores * core,
            Fill::Bytes(bytes) => bytes,
        }
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sharing { cores, stride, fill, crowd } = self;
        write!(f, "cores:{cores} stride:{stride} ")?;
        match fill {
            Fill::Cores(cores) => write!(f, "fill:{cores}")?,
            Fill::Bytes(bytes) => write!(f, "read:{}", bytes / 1e9)?,
        }
        write!(f, " crowd:{crowd}")
    }
}

/// Words such as `cores:4 fill:2 crowd:0.2`: clusters of four cores, of which two fill what they share; the
/// third divides it by 1.2, the fourth by 1.4. `stride:N` for cores that do not stand side by side (1),
/// `read:GB/s` in place of `fill:N`. Without `crowd` it is 0.
impl FromStr for Sharing {
    type Err = Error;

    fn from_str(text: &str) -> Result<Sharing, Error> {
        let fault = |reason: String| Error::BadSharing { reason };
        let (mut cores, mut stride, mut crowd, mut fill) = (None, 1, 0.0, None);
        for word in text.split_whitespace() {
            let (name, value) =
                word.split_once(':').ok_or_else(|| fault(format!("{word:?} is no name:number")))?;
            let whole = || match value.parse::<usize>() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(fault(format!("{name} is {value:?}, not a number from 1 on"))),
            };
            let number = || match value.parse::<f64>() {
                Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
                _ => Err(fault(format!("{name} is {value:?}, not a number"))),
            };
            match name {
                "cores" => cores = Some(whole()?),
                "stride" => stride = whole()?,
                "crowd" => crowd = number()?,
                "fill" | "read" if fill.is_some() => {
                    return Err(fault("fill and read say the same: give one".into()));
                }
                "fill" => fill = Some(Fill::Cores(positive("fill", number()?)?)),
                "read" => fill = Some(Fill::Bytes(positive("read", number()?)? * 1e9)),
                _ => {
                    let known = "cores, stride, fill, read and crowd are known";
                    return Err(fault(format!("{name:?}: {known}")));
                }
            }
        }
        match (cores, fill) {
            (Some(cores), Some(fill)) => Ok(Sharing { cores, stride, fill, crowd }),
            (None, _) => Err(fault("it needs cores:N".into())),
            (_, None) => Err(fault("it needs fill:N, or read:GB/s".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        let of = |text: &str| text.parse::<Sharing>();
        let sharing = of("cores:4 fill:2 crowd:0.2").unwrap();
        assert_eq!((sharing.cores, sharing.stride, sharing.crowd), (4, 1, 0.2));
        assert_eq!(sharing.read(3e9), 6e9);
        let read = of("cores:8 stride:2 read:25.6").unwrap();
        assert_eq!((read.read(3e9), read.crowd), (25.6e9, 0.0));
        for sharing in [sharing, read] {
            assert_eq!(of(&sharing.to_string()).unwrap(), sharing);
        }
        for (bad, word) in [
            ("", "cores:N"),
            ("cores:4", "fill:N"),
            ("cores:0 fill:1", "cores is \"0\""),
            ("cores:4 fill:0", "fill is 0"),
            ("cores:4 fill:nan", "\"nan\""),
            ("cores:4 fill:1 read:2", "give one"),
            ("cores 4", "\"cores\""),
            ("cores:4 fill:1 size:3", "\"size\""),
            ("cores:4 fill:1 crowd:-1", "\"-1\""),
        ] {
            let message = of(bad).unwrap_err().to_string();
            assert!(message.contains(word), "{bad}: {message}");
        }
    }
}
