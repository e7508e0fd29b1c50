//! Model architectures as builder programs with their weight maps
