//! Recording what the threads do, operator by operator.

use crate::engine::Engine;
use crate::error::Error;
use graph::Profile;

impl Engine {
    /// Begins to record what every thread does in every step, or begins anew. Each thread has room
    /// for `room` events of 16 bytes until [`Engine::take_profile`]; memory is taken as they come.
    /// A model that is not recorded pays nothing; one that is, some 20 ns for each event.
    ///
    /// # Errors
    /// When the threads' logs cannot be made.
    pub fn begin_profile(&mut self, room: usize) -> Result<(), Error> {
        Ok(self.executor.begin_profile(room)?)
    }

    /// What was recorded since [`Engine::begin_profile`] or the last call; recording goes on. `None`
    /// if it never began.
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.executor.take_profile()
    }

    /// As [`Engine::take_profile`], but ends the recording.
    pub fn end_profile(&mut self) -> Option<Profile> {
        self.executor.end_profile()
    }
}
