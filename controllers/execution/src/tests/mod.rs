//! Tests of the workers of each cluster, and of what a write removes from a member's object.

mod cluster_executor;
mod member_merge;
