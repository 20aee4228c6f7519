//! Serves `/flotilla/backup`, which streams a backup of the store to users with the right to get
//! that path.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use machinery::Status;

use crate::response_body::ServerResponseBody;

/// The path of the backup.
pub const BACKUP_PATH: &str = "/flotilla/backup";

/// Begins a backup of the store; the stream has its bytes.
pub type BackupOpener =
    Arc<dyn Fn() -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> + Send + Sync>;

/// Begins a backup and responds with its stream, which ends when its client goes away.
pub(crate) async fn serve(open: &BackupOpener) -> Result<Response<ServerResponseBody>, Status> {
    let chunks = open().await?;
    let mut response = Response::new(ServerResponseBody::events(chunks));
    let headers = response.headers_mut();
    let format = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, format);
    let file = HeaderValue::from_static("attachment; filename=\"flotilla.backup\"");
    headers.insert(CONTENT_DISPOSITION, file);
    Ok(response)
}
