//! watchcache
