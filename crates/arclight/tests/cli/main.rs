//! The program from outside: what people type, and what they get.

mod adapters;
mod bad_input;
mod bench_serve;
mod chat;
mod convert;
mod docs;
mod embed;
mod hub;
mod images;
mod imatrix;
mod loading;
mod memory;
mod plan;
mod profile;
mod quantize;
mod report;
mod run;
mod serve;
mod snapshots;
mod speculate;
mod support;
mod sync;
mod tools;
mod topo;
mod tune;
