//! Says how a module is linked whose symbols the interpreter has (macOS wants to be told).

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
