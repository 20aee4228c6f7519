//! An object of a list as the cells of a row.

use std::sync::Arc;

use machinery::{Gvr, Object};

use super::cluster_row::ResourceShare;
use super::projection::ProjectFunc;

/// The lines of a cell that are kept; the last one counts the others.
const MAX_LINES: usize = 4;

/// A resource that a page lists.
#[derive(Debug)]
pub(crate) struct ListedResource {
    pub(crate) resource: &'static Gvr,
    pub(crate) kind: &'static str,
    /// The first segment of the paths of the objects' pages, if they have some.
    pub(crate) pages: Option<&'static str>,
    pub(super) project: ProjectFunc<ResourceRow>,
}

#[derive(Clone, Debug)]
pub(crate) enum RowCell {
    Lines(Vec<String>),
    Number(usize),
    /// Clusters, each with a number of things.
    Clusters(Vec<(Arc<str>, i64)>),
    /// Resources, each with the share that is used.
    Shares(Vec<(String, ResourceShare)>),
}

#[derive(Debug)]
pub(crate) struct ResourceRow {
    pub(crate) cells: Vec<RowCell>,
    /// The text in which a search looks, in lower case.
    pub(crate) search_text: Box<str>,
}

impl ResourceRow {
    pub(super) fn new(object: &Object, kind: &str, cells: Vec<RowCell>) -> Self {
        let mut search_text = format!("{}/{} {kind}", object.namespace(), object.name());
        for cell in &cells {
            if let RowCell::Lines(lines) = cell {
                search_text.extend(lines.iter().flat_map(|line| [" ", line]));
            }
        }
        Self {
            cells,
            search_text: search_text.to_lowercase().into(),
        }
    }
}

/// The first lines, and how many there are besides.
pub(super) fn abbreviated(mut lines: Vec<String>) -> RowCell {
    if lines.len() > MAX_LINES {
        let further = lines.len() - (MAX_LINES - 1);
        lines.truncate(MAX_LINES - 1);
        lines.push(format!("and {further} more"));
    }
    RowCell::Lines(lines)
}
