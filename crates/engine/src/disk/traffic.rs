//! An engine and its prefix cache on disk: what is written when, and what is read instead of computed.

use super::names::Name;
use super::rates::Disk;
use super::store::{Key, Store};
use crate::engine::Engine;
use crate::error::Error;
use crate::kv::disk::Found;
use crate::sequence::SeqId;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

impl Engine {
    /// Gives pages names, the first of which tells of the model as it is loaded ([`super::fingerprint`]): sequences
    /// can be saved, and pages kept on disk.
    pub(crate) fn name_pages(&mut self, root: Name) {
        let hashes = self.adapters.iter().map(|one| one.adapter.hash()).collect();
        self.kv.name_pages(root, hashes);
    }

    /// Has the prefix cache, whose pages have names, kept on disk, too.
    pub(crate) fn keep_on_disk(&mut self, store: Arc<Store>) {
        self.kv.write_pages();
        self.disk = Some(Disk::new(store));
    }

    /// Begins a sequence anew with more than memory has of its tokens, if the disk has it and it is worth it.
    pub(crate) fn begin_from_disk(
        &mut self,
        (id, have): (SeqId, usize),
        tokens: &[u32],
    ) -> Result<(SeqId, usize), Error> {
        let Some(disk) = &self.disk else { return Ok((id, have)) };
        let store = disk.store.clone();
        let Some(found) = self.kv.find_on_disk(id, tokens, have, &|key| store.len(key)) else {
            return Ok((id, have));
        };
        if !disk.is_faster(&found, found.len - have) {
            return Ok((id, have));
        }
        if self.restore(id, tokens, &found, &|key| store.get(key))? {
            if let Some(disk) = &mut self.disk {
                disk.restored += (found.len - have) as u64;
            }
            return Ok((id, found.len));
        }
        // A file was damaged, or there is no room: as much as memory has by now.
        let set = self.kv.adapters(id)?.to_vec();
        self.kv.discard(id)?;
        self.kv.begin(tokens, &set)
    }

    /// Fills a sequence up with what was found, from pages that `get` gives; false if one was not to be had after
    /// all.
    pub(super) fn restore(
        &mut self,
        id: SeqId,
        tokens: &[u32],
        found: &Found,
        get: &dyn Fn(Key) -> Option<Vec<u8>>,
    ) -> Result<bool, Error> {
        let mut firsts = vec![0; self.executor.graph().classes().len()];
        loop {
            let piece = match self.kv.next_piece(id, tokens, found) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(Error::NoPages { .. }) => return Ok(false),
                Err(error) => return Err(error),
            };
            self.copy_pages()?;
            for (key, page) in &piece.reads {
                let Some(bytes) = get(*key) else { return Ok(false) };
                // Names tell of sizes.
                self.executor.write_page(usize::from(key.class), *page, &bytes)?;
            }
            self.kv.take_piece(id, tokens, &piece, &mut firsts)?;
        }
        self.kv.restored(id, &firsts)?;
        Ok(true)
    }

    /// Has pages written that ended sequences have left, for about so long. Whether there are more.
    pub(crate) fn spill(&mut self, time: Duration) -> Result<bool, Error> {
        let Some(disk) = &self.disk else { return Ok(false) };
        let store = disk.store.clone();
        self.copy_pages()?;
        let begin = Instant::now();
        loop {
            if !store.has_room() {
                return Ok(true);
            }
            let Some(pages) = self.kv.outgoing() else { return Ok(false) };
            for (key, page) in pages {
                if !store.refresh(key) {
                    store.put(key, self.executor.read_page(usize::from(key.class), page)?);
                }
            }
            if begin.elapsed() >= time {
                return Ok(true);
            }
        }
    }

    /// Has all of them written.
    pub(crate) fn spill_all(&mut self) -> Result<(), Error> {
        while self.spill(Duration::MAX)? {
            // The disk is slower.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Tokens that were read from disk since this was asked.
    pub(crate) fn take_restored(&mut self) -> u64 {
        self.disk.as_mut().map_or(0, |disk| std::mem::take(&mut disk.restored))
    }
}
