//! Warns of files in one volume that hide each other, because two files have the same path or a
//! file's path is a directory of another.

use serde_json::Value;

use crate::unstructured::{get, has, items, non_empty_or, text};

/// A file of a volume, and the source of a projected volume that provides it.
#[derive(PartialEq, Eq)]
struct VirtualFile {
    path: String,
    source: String,
}

impl VirtualFile {
    fn describe(&self) -> String {
        match self.source.as_str() {
            "" => format!("{:?}", self.path),
            source => format!("{:?} ({source})", self.path),
        }
    }
}

/// Warns of the files of a volume.
pub(super) fn overlapping_paths(volume: &Value, out: &mut Vec<String>) {
    let name = text(volume, "/name");
    let mut warn = |source_name: &str, files: Vec<VirtualFile>| {
        for overlap in overlaps(&files) {
            out.push(format!(
                "volume {name:?} ({source_name}): overlapping paths: {overlap}"
            ));
        }
    };
    let map = get(volume, "/configMap");
    warn(
        &format!("ConfigMap {:?}", text(map, "/name")),
        files(map, ""),
    );
    let secret = get(volume, "/secret");
    let source_name = format!("Secret {:?}", text(secret, "/secretName"));
    warn(&source_name, files(secret, ""));
    warn("DownwardAPI", files(get(volume, "/downwardAPI"), ""));
    let sources = items(volume, "/projected/sources");
    warn("Projected", sources.iter().flat_map(source_files).collect());
    let is_empty = |source: &Value| {
        source
            .as_object()
            .is_none_or(|s| s.values().all(Value::is_null))
    };
    for _ in sources.iter().filter(|source| is_empty(source)) {
        out.push(format!(
            "volume {name:?} (Projected) has no sources provided"
        ));
    }
}

/// The files of the `items` of a source.
fn files(source: &Value, name: &str) -> Vec<VirtualFile> {
    let items = items(source, "/items").iter();
    items.map(|item| file(text(item, "/path"), name)).collect()
}

fn file(path: &str, source: &str) -> VirtualFile {
    VirtualFile {
        path: path.trim_end_matches('/').to_owned(),
        source: source.to_owned(),
    }
}

/// The files of one source of a projected volume.
fn source_files(source: &Value) -> Vec<VirtualFile> {
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let source = get(source, &format!("/{field}"));
        if has(source, "/items") {
            return files(source, &format!("{kind} {:?}", text(source, "/name")));
        }
    }
    if has(source, "/downwardAPI/items") {
        return files(get(source, "/downwardAPI"), "DownwardAPI");
    }
    let token = get(source, "/serviceAccountToken");
    if !token.is_null() {
        return vec![file(text(token, "/path"), "ServiceAccountToken")];
    }
    let bundle = get(source, "/clusterTrustBundle");
    if !bundle.is_null() {
        let name = non_empty_or(text(bundle, "/name"), text(bundle, "/signerName"));
        let source_name = format!("ClusterTrustBundle {name:?}");
        return vec![file(text(bundle, "/path"), &source_name)];
    }
    let certificate = get(source, "/podCertificate");
    let parts = [
        ("/certificateChainPath", "PodCertificate chain"),
        ("/keyPath", "PodCertificate key"),
        ("/credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let certificate_files =
        parts.map(|(path, source_name)| file(text(certificate, path), source_name));
    certificate_files
        .into_iter()
        .filter(|f| !f.path.is_empty())
        .collect()
}

fn overlaps(files: &[VirtualFile]) -> Vec<String> {
    let is_below =
        |path: &str, ancestor: &str| format!("{path}/").starts_with(&format!("{ancestor}/"));
    let mut all = Vec::new();
    for (i, file) in files.iter().enumerate().filter(|(_, f)| !f.path.is_empty()) {
        for other in files[..i].iter().filter(|f| !f.path.is_empty()) {
            if is_below(&file.path, &other.path) || is_below(&other.path, &file.path) {
                all.push(format!("{} with {}", file.describe(), other.describe()));
            }
        }
    }
    all
}
