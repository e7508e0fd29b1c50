//! Checksums: SHA-256 of files in Git LFS, and Git's own SHA-1 of the others.

use crate::api::is_hex;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// What a file's bytes must amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    kind: Kind,
    /// Hexadecimal digits; a blob's name in the cache, as the Hub's `etag` is the same.
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sha256,
    Git,
}

impl Checksum {
    pub(crate) fn sha256(hex: &str) -> Option<Checksum> {
        let hex = hex.to_ascii_lowercase();
        is_hex(&hex, 64).then_some(Checksum { kind: Kind::Sha256, hex })
    }

    pub(crate) fn git(hex: &str) -> Option<Checksum> {
        let hex = hex.to_ascii_lowercase();
        is_hex(&hex, 40).then_some(Checksum { kind: Kind::Git, hex })
    }

    pub(crate) fn hex(&self) -> &str {
        &self.hex
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Sha256 => "sha256",
            Kind::Git => "git hash",
        }
    }

    /// Begins to sum up a file of this many bytes.
    pub(crate) fn begin(&self, size: u64) -> Sum {
        match self.kind {
            Kind::Sha256 => Sum(Context::new(&SHA256)),
            Kind::Git => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                Sum(context)
            }
        }
    }
}

/// A checksum in the making.
pub(crate) struct Sum(Context);

impl Sum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_sha256sum_and_git() {
        let sum = |checksum: Checksum| {
            let mut sum = checksum.begin(5);
            sum.update(b"he");
            sum.update(b"llo");
            sum.finish() == checksum.hex
        };
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert!(sum(Checksum::sha256(sha256).unwrap()));
        // `printf hello | git hash-object --stdin`
        assert!(sum(Checksum::git("b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0").unwrap()));
        assert_eq!(Checksum::sha256("../../etc/passwd"), None);
    }
}
