//! Tests of the crate, with the cases of `structured-merge-diff` and `managedfields`.
