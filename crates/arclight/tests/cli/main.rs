//! The program from outside: what people type, and what they get.

mod bad_input;
mod chat;
mod memory;
mod run;
mod support;
mod tools;
