//! Sequences in files of their own: what a slot's last request has left, saved and restored by name.

use super::names::Name;
use super::store::Key;
use crate::engine::Engine;
use crate::error::Error;
use std::collections::HashMap;

/// Begins every file; the last byte counts forms of files.
const MAGIC: [u8; 8] = *b"ARCLSEQ\x01";
const HASH: usize = 32;

/// A sequence out of memory: tokens, and pages by name.
struct Saved<'a> {
    root: Name,
    tokens: Vec<u32>,
    pages: HashMap<Key, &'a [u8]>,
}

/// Takes parts off a file.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N).and_then(|part| part.try_into().ok())
    }

    fn number(&mut self) -> Option<usize> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }
}

impl<'a> Saved<'a> {
    fn write(&self) -> Vec<u8> {
        let mut body = self.root.0.to_vec();
        let number = |body: &mut Vec<u8>, n: usize| body.extend((n as u32).to_le_bytes());
        number(&mut body, self.tokens.len());
        self.tokens.iter().for_each(|token| body.extend(token.to_le_bytes()));
        for (key, page) in &self.pages {
            body.extend(key.name.0);
            body.push(key.class);
            number(&mut body, page.len());
            body.extend_from_slice(page);
        }
        let hash = blake3::hash(&body);
        [&MAGIC[..], hash.as_bytes(), &body].concat()
    }

    /// Nothing if the file is of another kind, torn or damaged.
    fn read(file: &'a [u8]) -> Option<Saved<'a>> {
        let mut file = Reader(file);
        let (magic, hash) = (file.array()?, file.array::<HASH>()?);
        if magic != MAGIC || blake3::hash(file.0).as_bytes() != &hash {
            return None;
        }
        let root = Name(file.array()?);
        let len = file.number()?;
        let tokens = file.bytes(len.checked_mul(4)?)?.as_chunks().0.iter();
        let tokens = tokens.map(|token| u32::from_le_bytes(*token)).collect();
        let mut pages = HashMap::new();
        while !file.0.is_empty() {
            let key = Key { name: Name(file.array()?), class: file.array::<1>()?[0] };
            let len = file.number()?;
            pages.insert(key, file.bytes(len)?);
        }
        Some(Saved { root, tokens, pages })
    }
}

impl Engine {
    /// What the prefix cache has of the last sequence of a slot, as a file, and how many tokens that is.
    pub(crate) fn save_slot(&mut self, slot: usize) -> Result<(Vec<u8>, usize), Error> {
        self.copy_pages()?;
        let root = self.kv.root_name().ok_or(Error::SavesOff)?;
        let (len, pages) = self.kv.pages_left(slot);
        let tokens = self.kv.left(slot)[..len].to_vec();
        let mut read = Vec::with_capacity(pages.len());
        for (key, page) in pages {
            read.push((key, self.executor.read_page(usize::from(key.class), page)?));
        }
        let pages = read.iter().map(|(key, page)| (*key, page.as_slice())).collect();
        Ok((Saved { root, tokens, pages }.write(), len))
    }

    /// Puts what [`save_slot`](Self::save_slot) gave into the prefix cache, and says that a slot has left it; how many
    /// tokens that is.
    pub(crate) fn restore_slot(&mut self, slot: usize, file: &[u8]) -> Result<usize, Error> {
        let root = self.kv.root_name().ok_or(Error::SavesOff)?;
        let Saved { root: of, mut tokens, pages } = Saved::read(file).ok_or(Error::BadSave)?;
        if of != root {
            return Err(Error::ForeignSave);
        }
        // One more than there is: of a prompt the last token is always computed.
        tokens.push(0);
        let (id, have) = self.kv.begin(&tokens, &[])?;
        let bytes = |key| pages.get(&key).map(|page: &&[u8]| page.len() as u64);
        let mut len = have;
        if let Some(found) = self.kv.find_on_disk(id, &tokens, have, &bytes) {
            let get = |key| pages.get(&key).map(|page| page.to_vec());
            if !self.restore(id, &tokens, &found, &get)? {
                self.kv.discard(id)?;
                return Err(Error::NoPages { pages: self.pages().total });
            }
            len = found.len;
        }
        self.kv.remove(id)?;
        tokens.truncate(len);
        self.kv.set_left(slot, tokens);
        Ok(len)
    }

    /// Forgets what the last sequence of a slot has left, as far as nobody else needs it; how many tokens that was.
    pub(crate) fn erase_slot(&mut self, slot: usize) -> usize {
        self.kv.erase_left(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let (a, b) = (Key { name: Name([3; 16]), class: 0 }, Key { name: Name([3; 16]), class: 2 });
        let pages = HashMap::from([(a, &[1_u8, 2, 3][..]), (b, &[9; 40][..])]);
        let saved = Saved { root: Name([7; 16]), tokens: vec![5, 70_000], pages };
        let file = saved.write();
        let read = Saved::read(&file).unwrap();
        assert_eq!(
            (read.root, &read.tokens, &read.pages),
            (saved.root, &saved.tokens, &saved.pages)
        );
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(Saved::read(&damaged).is_none() && Saved::read(&file[..at]).is_none(), "{at}");
        }
    }
}
