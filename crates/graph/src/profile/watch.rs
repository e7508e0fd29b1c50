//! The interface between a thread that walks a program and its observer.

use crate::squares::Squares;

/// Hears of a thread's way through a job. `()` hears nothing and costs nothing.
pub(crate) trait Watch {
    /// The program of a part begins.
    fn part(&mut self, at: usize);
    /// The next event of the program is over: an instruction, or the wait after a stage.
    fn done(&mut self);
    /// A wait that stands in no program is over.
    fn met(&mut self);

    /// Where the squares of what is multiplied are summed, if they are.
    #[inline(always)]
    fn squares(&self) -> Option<&Squares> {
        None
    }
}

/// Sums squares, and times nothing.
impl Watch for &Squares {
    fn part(&mut self, _: usize) {}

    fn done(&mut self) {}

    fn met(&mut self) {}

    fn squares(&self) -> Option<&Squares> {
        Some(self)
    }
}

impl Watch for () {
    #[inline(always)]
    fn part(&mut self, _: usize) {}

    #[inline(always)]
    fn done(&mut self) {}

    #[inline(always)]
    fn met(&mut self) {}
}
