//! hollow
