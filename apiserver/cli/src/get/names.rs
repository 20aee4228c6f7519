//! Lists the names of objects, for the completion of command lines.

use client::remote::RemoteApi;
use client::{ListOptions, ResourcePath};

use super::server_table::Table;

/// Objects in a page of names.
const NAME_CHUNK_SIZE: u64 = 1000;

/// The names of a collection, read as Tables, whose rows have metadata only.
pub(crate) async fn list_names(
    api: &RemoteApi,
    at: ResourcePath<'_>,
) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut options = ListOptions {
        limit: NAME_CHUNK_SIZE,
        ..ListOptions::default()
    };
    loop {
        let table = Table::decode(&api.get_table(at, &options, false).await?, None)?;
        names.extend(table.rows.into_iter().map(|row| row.object.metadata.name));
        options.continue_token = table.metadata.continue_token;
        if options.continue_token.is_empty() {
            return Ok(names);
        }
    }
}
