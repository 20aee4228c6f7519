//! Pages of long lists.

use std::ops::Range;

use maud::{Markup, html};

use super::markup::{empty_state, grouped};
use crate::query::QueryParameters;

const ROWS_PER_PAGE: usize = 50;
const MAX_PAGE: usize = 1_000_000;

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSlice {
    /// From 1.
    number: usize,
}

impl Default for PageSlice {
    fn default() -> Self {
        Self { number: 1 }
    }
}

impl PageSlice {
    pub(super) fn parse(query: &QueryParameters) -> Self {
        let number = query.get("page").parse().unwrap_or(1);
        Self {
            number: number.clamp(1, MAX_PAGE),
        }
    }

    /// The rows of the page.
    pub(super) fn rows(self) -> Range<usize> {
        let skipped = (self.number - 1).saturating_mul(ROWS_PER_PAGE);
        skipped..skipped.saturating_add(ROWS_PER_PAGE)
    }
}

/// The parameter `page` of a link; empty for the first page.
pub(super) fn page_parameter(number: usize) -> String {
    match number {
        1 => String::new(),
        number => number.to_string(),
    }
}

pub(super) fn behind_the_last(first: &str) -> Markup {
    empty_state(
        "This page is behind the last one",
        &html! { a href=(first) { "To the first page" } },
    )
}

/// Links to the pages before and after one, if there are any.
pub(super) fn pager(
    slice: PageSlice,
    matching: usize,
    link_to: impl Fn(usize) -> String,
) -> Markup {
    let pages = matching.div_ceil(ROWS_PER_PAGE);
    let Range { start, end } = slice.rows();
    let text = |n: usize| grouped(i64::try_from(n).unwrap_or(i64::MAX));
    html! {
        @if pages > 1 {
            nav .pager aria-label="Pages of the list" {
                @if slice.number > 1 {
                    a rel="prev" href=(link_to((slice.number - 1).min(pages))) { "Previous" }
                }
                @if start < matching {
                    span { (text(start + 1)) "–" (text(end.min(matching))) " of " (text(matching)) }
                }
                @if slice.number < pages { a rel="next" href=(link_to(slice.number + 1)) { "Next" } }
            }
        }
    }
}
