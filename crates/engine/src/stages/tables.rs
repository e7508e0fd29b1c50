//! Page tables that both ends of a link know, so that only what is new has to be told: of a running answer a page every
//! 32 tokens, and not all pages of its text with each.

use graph::{PageId, PageTable};

/// What is new in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Which page of the sequence is the first.
    pub first: usize,
    /// How many pages from there on are as they were.
    pub kept: usize,
    /// Those behind them.
    pub pages: Vec<PageId>,
}

/// The last tables of every slot, by class.
#[derive(Debug, Default)]
pub(super) struct Tables(Vec<Vec<PageTable>>);

/// The pages of a table from the sequence's page `first` on.
fn from(table: &PageTable, first: usize) -> &[PageId] {
    // A sequence that begins before has nothing in common with it.
    let behind = first.checked_sub(table.first);
    behind.and_then(|behind| table.pages.get(behind..)).unwrap_or_default()
}

impl Tables {
    fn slot(&mut self, slot: usize, classes: usize) -> &mut [PageTable] {
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, Vec::new);
        }
        let tables = &mut self.0[slot];
        tables.resize_with(classes, PageTable::default);
        tables
    }

    /// What is new in the tables of a slot.
    pub(super) fn tell(&mut self, slot: usize, now: &[PageTable]) -> Vec<News> {
        let tables = self.slot(slot, now.len()).iter_mut().zip(now);
        let news = |(before, now): (&mut PageTable, &PageTable)| {
            let known = from(before, now.first).iter().zip(&now.pages);
            let kept = known.take_while(|(before, now)| before == now).count();
            before.clone_from(now);
            News { first: now.first, kept, pages: now.pages[kept..].to_vec() }
        };
        tables.map(news).collect()
    }

    /// The tables of a slot, of which that is new; each of at most `most` pages.
    pub(super) fn hear(
        &mut self,
        slot: usize,
        news: Vec<News>,
        most: usize,
    ) -> Result<Vec<PageTable>, &'static str> {
        let tables = self.slot(slot, news.len());
        for (table, News { first, kept, pages }) in tables.iter_mut().zip(news) {
            let known = from(table, first).get(..kept);
            let known = known.ok_or("pages are as they were that were never told")?;
            if known.len() + pages.len() > most {
                return Err("more pages than a sequence can have");
            }
            let pages = [known, &pages].concat();
            *table = PageTable { first, pages };
        }
        Ok(tables.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(first: usize, pages: impl IntoIterator<Item = u32>) -> PageTable {
        PageTable { first, pages: pages.into_iter().map(PageId).collect() }
    }

    #[test]
    fn both_ends_know_the_same() {
        let (mut front, mut stage) = (Tables::default(), Tables::default());
        // A text grows, shares a page, is taken back, and is another's; a window moves on.
        let texts = [
            [table(0, 0..4), table(0, 0..4)],
            [table(0, 0..5), table(1, 1..5)],
            [table(0, 0..5), table(3, 3..6)],
            [table(0, [0, 1, 2, 3, 9]), table(3, [3, 8, 5])],
            [table(0, 0..2), table(0, [])],
            [table(0, 20..30), table(7, 20..22)],
            [table(0, 20..31), table(0, 20..22)],
        ];
        let mut sent = 0;
        for slot in [0, 2, 0] {
            for tables in &texts {
                let news = front.tell(slot, tables);
                sent += news.iter().map(|news| news.pages.len()).sum::<usize>();
                assert_eq!(stage.hear(slot, news, 11).unwrap(), tables);
            }
        }
        assert!(sent < 110, "{sent} pages");
        let again = front.tell(0, &texts[6]);
        assert!(again.iter().all(|news| news.pages.is_empty()));
    }

    #[test]
    fn what_was_never_told_is_no_table() {
        let mut stage = Tables::default();
        let news = |first, kept| vec![News { first, kept, pages: vec![PageId(1)] }];
        assert!(stage.hear(0, news(0, 1), 9).is_err());
        assert!(stage.hear(0, news(4, 0), 2).is_ok());
        assert!(
            stage.hear(0, news(3, 1), 2).is_err() && stage.hear(0, news(usize::MAX, 1), 2).is_err()
        );
        assert!(stage.hear(0, news(4, usize::MAX), 2).is_err());
        assert!(stage.hear(0, news(4, 1), 2).is_ok());
        assert_eq!(stage.hear(0, news(4, 2), 2), Err("more pages than a sequence can have"));
    }
}
