//! Tests of the console over a fake API server, without sockets.

mod actions;
mod attacks;
mod fixture;
mod live_pages;
mod policies;
mod rendering;
