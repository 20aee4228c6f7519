//! Lists all objects of a resource as trees that have the managers, which lists of a client lack.

use client::{Api, Error, Result};
use machinery::Gvr;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

/// The objects of a page, and of one if the page is too large for an answer.
const PAGE_LIMITS: [u64; 2] = [250, 10];
/// The most objects of one resource; more do not fit into the memory of a takeover.
const MAX_OBJECTS: usize = 500_000;

#[derive(Deserialize)]
struct ListPage {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    continue_token: String,
}

/// The objects of a resource in all namespaces, with `apiVersion` and `kind`; `None` if the
/// server does not serve it.
pub async fn list_resource(
    api: &dyn Api,
    resource: &Gvr,
    kind: &str,
) -> Result<Option<Vec<Value>>> {
    let mut objects = Vec::new();
    let mut continue_token = String::new();
    let (group, version) = (&resource.group, &resource.version);
    let root = match group.is_empty() {
        true => format!("/api/{version}"),
        false => format!("/apis/{group}/{version}"),
    };
    let path = format!("{root}/{}", resource.resource);
    loop {
        let page = match read_page(api, &path, &continue_token).await {
            Err(error) if error.is_not_found() && objects.is_empty() => return Ok(None),
            page => page?,
        };
        for mut object in page.items.unwrap_or_default() {
            if !object.is_object() {
                return Err(Error::Protocol(format!(
                    "{path} has an item that is no object"
                )));
            }
            object["apiVersion"] = resource.api_version().into();
            object["kind"] = kind.into();
            objects.push(object);
        }
        if objects.len() > MAX_OBJECTS {
            return Err(Error::Protocol(format!(
                "{path} has over {MAX_OBJECTS} objects"
            )));
        }
        continue_token = page.metadata.continue_token;
        if continue_token.is_empty() {
            return Ok(Some(objects));
        }
    }
}

async fn read_page(api: &dyn Api, path: &str, continue_token: &str) -> Result<ListPage> {
    let mut too_large = None;
    for limit in PAGE_LIMITS {
        let token = match continue_token {
            "" => String::new(),
            token => format!("&continue={}", utf8_percent_encode(token, NON_ALPHANUMERIC)),
        };
        match api.get_raw(&format!("{path}?limit={limit}{token}")).await {
            Ok(body) => {
                let page = machinery::json::from_slice(&body);
                return page.map_err(|e| Error::Protocol(format!("{path}: {e}")));
            }
            Err(error @ Error::Protocol(_)) => too_large = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(too_large.unwrap_or_else(|| Error::Protocol(format!("{path} has no answer"))))
}
