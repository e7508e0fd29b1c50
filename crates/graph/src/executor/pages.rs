//! KV pages of an executor: copied, taken out and filled between steps.

use super::Executor;
use crate::error::Error;
use crate::exec;
use crate::step::{PageCopy, PageId};

impl Executor {
    /// Copies the contents of KV pages to others, in the given order.
    ///
    /// # Errors
    /// When a page or class does not exist; nothing is copied then. When a worker panicked.
    pub fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<(), Error> {
        for &PageCopy { class, from, to } in copies {
            if !self.has_page(class, from) || !self.has_page(class, to) || from == to {
                let (from, to) = (from.0, to.0);
                return Err(Error::BadStep(format!(
                    "page {from} of class {class} cannot be copied to {to}"
                )));
            }
        }
        let replicas = &self.replicas;
        // Nobody is woken for it.
        Ok(self.pool.run_on(0, &|worker| exec::copy_pages(replicas, copies, worker))?)
    }

    fn has_page(&self, class: usize, page: PageId) -> bool {
        self.limits.pages.get(class).is_some_and(|pages| (page.0 as usize) < *pages)
    }

    /// Bytes of a KV page of a class on all nodes together: what [`read_page`](Executor::read_page) gives.
    pub fn page_bytes(&self, class: usize) -> usize {
        exec::page_bytes(&self.replicas[0], class)
    }

    /// What a KV page holds, for another time. The bytes mean something to an executor only whose graph, plan
    /// and type of keys and values are the same.
    ///
    /// # Errors
    /// When there is no such page.
    pub fn read_page(&mut self, class: usize, page: PageId) -> Result<Vec<u8>, Error> {
        if !self.has_page(class, page) {
            return Err(Error::BadStep(format!("there is no page {} of class {class}", page.0)));
        }
        Ok(exec::read_page(&self.replicas[0], class, page))
    }

    /// Fills a KV page with what [`read_page`](Executor::read_page) gave.
    ///
    /// # Errors
    /// When there is no such page, or it has another number of bytes.
    pub fn write_page(&mut self, class: usize, page: PageId, bytes: &[u8]) -> Result<(), Error> {
        if !self.has_page(class, page) || bytes.len() != self.page_bytes(class) {
            let (page, bytes) = (page.0, bytes.len());
            return Err(Error::BadStep(format!(
                "page {page} of class {class} cannot be filled with {bytes} bytes"
            )));
        }
        exec::write_page(&self.replicas[0], class, page, bytes);
        Ok(())
    }
}
