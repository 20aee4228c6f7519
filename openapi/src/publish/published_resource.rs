//! A resource whose schema and paths are published.

use crate::model::KindInfo;
use crate::schema::Schema;

/// A served kind and its schema; custom kinds are not in the catalog.
#[derive(Clone, Copy, Debug)]
pub struct PublishedResource<'a> {
    pub kind: &'a KindInfo,
    pub schema: &'a Schema,
}
