//! Folders made for the tests, and what becomes of them.

mod adapters;
mod bert;
mod damage;
mod decoders;
mod encoders;
mod families;
mod faults;
mod folder;
mod keys;
mod quantised;
mod rankers;
mod t5;
mod vocabularies;
