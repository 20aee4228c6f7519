//! Reads the case files and the list of known differences.
//!
//! ```yaml
//! managedFields: true       # compared; by default metadata.managedFields is left out
//! crds:                     # created before the cases; see `crd` for the short form
//!   things: {kind: Thing, schema: {type: object}}
//! policies:                 # put in force before the cases; see `policies` for the short form
//!   p: {validations: [{expression: "object.spec.n > 0"}]}
//! cases:
//!   name-of-the-case:       # also its namespace
//!   - POST v1/things: {metadata: {name: a}}
//!   - GET v1/things/a: null
//!     accept: application/json;as=Table;v=v1;g=meta.k8s.io
//! ```
//!
//! A step is a request and its options; [`crate::differential::request`] has the form of both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One file of `cases`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseTheme {
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(default, rename = "managedFields")]
    pub(crate) managed_fields: bool,
    #[serde(default)]
    pub(crate) crds: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) policies: BTreeMap<String, Value>,
    pub(crate) cases: BTreeMap<String, Vec<CaseStep>>,
}

/// A request, such as `POST v1/things`, with its body, and options.
pub(crate) type CaseStep = BTreeMap<String, Value>;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/differential")
}

impl CaseTheme {
    pub(crate) fn read(name: &str) -> Self {
        let path = folder().join("cases").join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap();
        // Without this `n` and `y` would be booleans.
        let options = serde_saphyr::options! { strict_booleans: true };
        let read: Result<Self, _> = serde_saphyr::from_str_with_options(&text, options);
        let theme = read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self {
            name: name.to_owned(),
            ..theme
        }
    }
}

/// The names of the cases in `differences.txt`; the rest of a line says why.
pub(crate) fn known_differences() -> BTreeSet<String> {
    let text = std::fs::read_to_string(folder().join("differences.txt")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The names of the files of `cases`, in order.
pub(crate) fn theme_names() -> Vec<String> {
    let files = std::fs::read_dir(folder().join("cases")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut names: Vec<String> = paths
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
