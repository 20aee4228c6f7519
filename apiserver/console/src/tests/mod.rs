//! Tests of the console over a fake API server, without sockets.

mod actions;
mod attacks;
mod clusters;
mod connections;
mod events;
mod fixture;
mod live_pages;
mod logins;
mod moves;
mod other_policies;
mod pods;
mod policies;
mod rendering;
mod resource_lists;
mod users;
