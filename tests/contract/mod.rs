//! What every storage engine promises, and what the etcd engine does beyond it.

mod etcd;
mod store;
