//! propagation
