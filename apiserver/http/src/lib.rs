//! flotilla-http
