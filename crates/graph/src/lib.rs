//! Bundles, placements, the static list, compilation to stages, the executor
