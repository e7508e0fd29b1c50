//! SIMD kernels with scalar twins, chosen at run time
