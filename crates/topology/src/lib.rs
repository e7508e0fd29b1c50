//! What the machine is: memory nodes, packages, caches, SMT siblings, distances, allowed CPUs
