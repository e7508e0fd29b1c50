//! The Python module `arclight._native`: a loaded model, and the command line.
//!
//! It has what only Rust can do, in few words; names and types for people are in `python/arclight`. Every call that
//! waits releases the interpreter's lock and looks for signals twenty times a second, so Ctrl-C ends it: what it
//! waited for is dropped, and so cancelled.
#![forbid(unsafe_code)]

mod answers;
mod engine;
mod faults;
mod values;
mod waiting;

use pyo3::prelude::*;

/// The module.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<answers::Answers>()?;
    module.add_class::<engine::Response>()?;
    module.add_function(wrap_pyfunction!(engine::main, module)?)?;
    module.add_function(wrap_pyfunction!(engine::log_warnings, module)?)?;
    Ok(())
}
