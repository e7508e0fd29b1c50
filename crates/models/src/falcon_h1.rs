//! Falcon-H1 (arXiv:2507.22448): in every layer attention and Mamba-2 side by side, both of one norm; its
//! factors are in the weights of files. The norm behind the recurrence may be missing. Files call the norm
//! before the feed-forward layer a tensor without an ending.

use crate::page::*;
use crate::recurrent::{Kind, Recurrent};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let recurrent = Recurrent::read(f, Kind::StateSpace, false)?;
    let style = Style { mixer: Mixer::Both(recurrent), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
