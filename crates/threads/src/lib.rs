//! A pinned worker pool with groups and hierarchical barriers
