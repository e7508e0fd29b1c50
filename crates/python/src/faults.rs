//! What goes wrong, as Python's exceptions.

use arclight::{Failure, FailureKind};
use arclight_server::Fault;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileNotFoundError, PyMemoryError, PyPermissionError, PyRuntimeError, PyTimeoutError,
    PyValueError,
};

/// Of loading.
pub(crate) fn failed(failure: Failure) -> PyErr {
    let Failure { kind, message } = failure;
    match kind {
        FailureKind::Usage => PyValueError::new_err(message),
        FailureKind::NotFound => PyFileNotFoundError::new_err(message),
        FailureKind::Permission => PyPermissionError::new_err(message),
        FailureKind::Memory => PyMemoryError::new_err(message),
        FailureKind::Other => PyRuntimeError::new_err(message),
    }
}

/// Of a request.
pub(crate) fn refused(fault: Fault) -> PyErr {
    let Fault { status, message, .. } = fault;
    match status.as_u16() {
        408 | 504 => PyTimeoutError::new_err(message),
        429 | 500.. => PyRuntimeError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}
