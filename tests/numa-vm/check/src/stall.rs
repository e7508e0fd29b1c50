//! `stall`: a load that stands still half-way, to be killed there.

use crate::error::Error;
use crate::load::LoadArgs;
use std::thread;
use std::time::Duration;

/// Loads until half of the weights are packed, says so, and waits.
pub(crate) fn run(load: &LoadArgs) -> Result<(), Error> {
    load.load_telling(None, false, &mut |p| {
        if p.done * 2 >= p.total {
            println!("half: {} of {} bytes packed", p.done, p.total);
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
    })?;
    Err(Error::Unmet("the load was over before half of it was told of".to_owned()))
}
