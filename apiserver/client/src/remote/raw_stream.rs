//! Reads large responses outside the API as they arrive, such as backups.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;

use super::RemoteApi;
use super::pool::{self, ResponseBody};
use super::request::ApiRequest;
use crate::api::{Error, Result};

/// How long the server may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A response body that is read as it arrives.
pub struct RawResponseStream {
    body: Pin<Box<ResponseBody>>,
    host: String,
}

impl RemoteApi {
    /// GET of a path whose response may be of any size.
    pub async fn get_raw_stream(&self, path: &str) -> Result<RawResponseStream> {
        let ask = ApiRequest::new(Method::GET, path.to_owned());
        Ok(RawResponseStream {
            body: Box::pin(self.open_body(&ask).await?),
            host: self.host.clone(),
        })
    }
}

impl RawResponseStream {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let transport_error = |message| Error::Transport {
            host: self.host.clone(),
            message,
        };
        loop {
            let Ok(frame) = tokio::time::timeout(IDLE_TIMEOUT, self.body.frame()).await else {
                let seconds = IDLE_TIMEOUT.as_secs();
                return Err(transport_error(format!("no data within {seconds} s")));
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(transport_error(pool::error_chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}
