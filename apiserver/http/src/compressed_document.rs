//! A document that is kept compressed, its making and its responses.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http::{HeaderMap, Response, StatusCode};
use machinery::Status;
use sha2::{Digest, Sha512};

use crate::negotiation;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// The digest by which documents are told apart.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    let digest = Sha512::digest(bytes);
    digest.iter().map(|b| format!("{b:02X}")).collect()
}

/// A gzipped document and its ETag.
pub(crate) struct CompressedDocument {
    gzip: Bytes,
    pub(crate) etag: String,
}

impl CompressedDocument {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self::with_etag(bytes, hex_digest(bytes))
    }

    pub(crate) fn with_etag(bytes: &[u8], etag: String) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to a vector cannot fail.
        let _ = encoder.write_all(bytes);
        Self {
            gzip: encoder.finish().unwrap_or_default().into(),
            etag,
        }
    }

    pub(crate) fn response(
        &self,
        headers: &HeaderMap,
        content_type: &'static str,
    ) -> Response<ServerResponseBody> {
        if negotiation::accepts_gzip(headers) {
            let mut response =
                response_writers::write_document(headers, content_type, &self.etag, &self.gzip);
            if response.status() == StatusCode::OK {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(CONTENT_ENCODING, gzip);
            }
            let vary = HeaderValue::from_static("Accept, Accept-Encoding");
            response.headers_mut().insert(VARY, vary);
            return response;
        }
        let mut uncompressed = Vec::new();
        let _ = GzDecoder::new(&self.gzip[..]).read_to_end(&mut uncompressed);
        response_writers::write_document(headers, content_type, &self.etag, &uncompressed.into())
    }
}

/// Runs long CPU-bound work on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Status::internal("building the document panicked"))
}
