//! The promises of every storage engine, and those of the etcd engine beyond them.

mod etcd;
mod store;
