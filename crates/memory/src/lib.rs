//! Arenas bound to memory nodes, mapped files, page-placement queries, bandwidth probes
