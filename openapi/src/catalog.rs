//! The static [`KindCatalog`] of all kinds known at compile time, parsed from the embedded
//! schema files on first use (some milliseconds).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use machinery::{Gvk, Gvr};

use crate::model::{KindInfo, SchemaDefinition, SchemaDefinitionArena};
use crate::resource_names::ResourceNames;
use crate::schema::Schema;
use crate::schema_file_parser;

/// All files of `schemas/`; a test compares this list with the folder.
const SCHEMA_FILES: &[(&str, &str)] = &[
    (
        "builtin_access.api",
        include_str!("../schemas/builtin_access.api"),
    ),
    (
        "builtin_apps.api",
        include_str!("../schemas/builtin_apps.api"),
    ),
    (
        "builtin_cluster.api",
        include_str!("../schemas/builtin_cluster.api"),
    ),
    (
        "builtin_core.api",
        include_str!("../schemas/builtin_core.api"),
    ),
    (
        "builtin_flowcontrol.api",
        include_str!("../schemas/builtin_flowcontrol.api"),
    ),
    (
        "builtin_kinds.api",
        include_str!("../schemas/builtin_kinds.api"),
    ),
    (
        "builtin_meta.api",
        include_str!("../schemas/builtin_meta.api"),
    ),
    (
        "builtin_metrics.api",
        include_str!("../schemas/builtin_metrics.api"),
    ),
    (
        "builtin_network.api",
        include_str!("../schemas/builtin_network.api"),
    ),
    (
        "builtin_storage.api",
        include_str!("../schemas/builtin_storage.api"),
    ),
    (
        "builtin_policies.api",
        include_str!("../schemas/builtin_policies.api"),
    ),
    (
        "builtin_webhooks.api",
        include_str!("../schemas/builtin_webhooks.api"),
    ),
    (
        "federated_types.api",
        include_str!("../schemas/federated_types.api"),
    ),
    ("karmada.api", include_str!("../schemas/karmada.api")),
    ("kubefed.api", include_str!("../schemas/kubefed.api")),
    (
        "multicluster.api",
        include_str!("../schemas/multicluster.api"),
    ),
    ("networking.api", include_str!("../schemas/networking.api")),
    ("search.api", include_str!("../schemas/search.api")),
    ("rollout.api", include_str!("../schemas/rollout.api")),
    ("history.api", include_str!("../schemas/history.api")),
];

/// The kinds and definitions of the schema files.
#[derive(Debug)]
pub struct KindCatalog {
    definitions: Arc<SchemaDefinitionArena>,
    kinds: Vec<Arc<KindInfo>>,
    by_kind: HashMap<Gvk, usize>,
    by_resource: HashMap<Gvr, usize>,
}

/// The catalog of this process.
pub fn catalog() -> &'static KindCatalog {
    static CATALOG: OnceLock<KindCatalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        #[expect(
            clippy::expect_used,
            reason = "the files are compiled in, and a test parses them"
        )]
        KindCatalog::parse(SCHEMA_FILES).expect("the embedded schema files are well-formed")
    })
}

/// The resource of a kind of the catalog. It does not read the definitions: an agent, which
/// has no other use for the catalog, would keep more than a megabyte of them.
pub fn resource_of_kind(kind: &Gvk) -> Option<&'static Gvr> {
    static RESOURCES: OnceLock<HashMap<Gvk, Gvr>> = OnceLock::new();
    let resources = RESOURCES.get_or_init(|| {
        let files = SCHEMA_FILES.iter();
        let kinds = files.flat_map(|(_, text)| schema_file_parser::parse_kind_headers(text));
        // A test parses the files, so that none is malformed.
        kinds.flatten().map(|kind| (kind.gvk, kind.gvr)).collect()
    });
    resources.get(kind)
}

impl KindCatalog {
    fn parse(sources: &[(&str, &str)]) -> Result<Self, String> {
        let (definitions, kinds) = schema_file_parser::parse(sources)?;
        let mut by_kind = HashMap::with_capacity(kinds.len());
        let mut by_resource = HashMap::with_capacity(kinds.len());
        for (index, kind) in kinds.iter().enumerate() {
            if by_kind.insert(kind.gvk.clone(), index).is_some()
                || by_resource.insert(kind.gvr.clone(), index).is_some()
            {
                return Err(format!("{} is declared twice", kind.gvk));
            }
        }
        Ok(Self {
            definitions: Arc::new(definitions),
            kinds,
            by_kind,
            by_resource,
        })
    }

    /// All kinds, in the order of the files.
    pub fn kinds(&self) -> &[Arc<KindInfo>] {
        &self.kinds
    }

    pub fn kind(&self, gvk: &Gvk) -> Option<&Arc<KindInfo>> {
        self.kinds.get(*self.by_kind.get(gvk)?)
    }

    pub fn resource(&self, gvr: &Gvr) -> Option<&Arc<KindInfo>> {
        self.kinds.get(*self.by_resource.get(gvr)?)
    }

    /// The names of all kinds of a group.
    pub fn names_in_group(&self, group: &str) -> Vec<ResourceNames> {
        let kinds = self.kinds.iter().filter(|kind| kind.gvr.group == group);
        kinds.map(|kind| ResourceNames::from(&**kind)).collect()
    }

    pub fn definition(&self, name: &str) -> Option<&SchemaDefinition> {
        Some(self.definitions.get(self.definitions.id(name)?))
    }

    pub fn definitions(&self) -> &Arc<SchemaDefinitionArena> {
        &self.definitions
    }

    /// The schema of a kind of this catalog; for any other kind, one that preserves all
    /// fields.
    pub fn schema(&self, kind: &KindInfo) -> Schema {
        self.definition_schema(&kind.definition)
            .unwrap_or_else(Schema::preserving_unknown_fields)
    }

    /// The schema of the definition with this name.
    pub fn definition_schema(&self, definition: &str) -> Option<Schema> {
        let id = self.definitions.id(definition)?;
        Some(Schema::new(Arc::clone(&self.definitions), id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::model::{SchemaNode, SchemaType};

    #[test]
    fn every_schema_file_is_listed_and_loads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let listed: BTreeSet<String> = SCHEMA_FILES.iter().map(|(f, _)| (*f).to_owned()).collect();
        assert_eq!(files, listed);
        let catalog = KindCatalog::parse(SCHEMA_FILES).unwrap();
        assert!(!catalog.kinds().is_empty());
    }

    #[test]
    fn the_kind_of_the_manual_is_parsed() {
        let manual = include_str!("../../apiserver/README.md");
        let (_, section) = manual.split_once("## How to add a kind").unwrap();
        let example = section.split("```").nth(1).unwrap();
        let lines = example
            .lines()
            .map(|line| line.strip_prefix("   ").unwrap_or(line));
        let text = lines.collect::<Vec<_>>().join("\n");
        let files = [SCHEMA_FILES, &[("README.md", text.as_str())]].concat();
        let catalog = KindCatalog::parse(&files).unwrap();
        let widget = catalog.kind(&Gvk::new("example.flotilla.io", "v1", "Widget"));
        // The example of a controller patches its status.
        assert!(widget.unwrap().status);
    }

    #[test]
    fn resources_are_found_without_the_catalog() {
        for kind in catalog().kinds() {
            assert_eq!(resource_of_kind(&kind.gvk), Some(&kind.gvr));
        }
        assert_eq!(resource_of_kind(&Gvk::new("apps", "v1", "Pod")), None);
    }

    #[test]
    fn declarations_are_sound() {
        fn check(node: &SchemaNode, path: &str) {
            if let Some(pattern) = node.validation.as_ref().and_then(|r| r.pattern.as_ref()) {
                assert!(pattern.matches("").is_some(), "{path}: {}", pattern.source);
            }
            if let SchemaType::Array(item) | SchemaType::Map(item) = &node.ty {
                check(item, path);
            }
        }
        let catalog = catalog();
        for (_, definition) in catalog.definitions().iter() {
            for field in &definition.fields {
                let path = format!("{}.{}", definition.name, field.name);
                check(&field.node, &path);
                if let Some(default) = field.node.default.as_deref() {
                    let schema = Schema::from_node(catalog.definitions(), &field.node);
                    // A Go zero value stands for absence, valid or not.
                    let zero = [json!({}), json!("")].contains(default);
                    assert!(
                        zero || schema.validate(default).is_empty(),
                        "default of {path}"
                    );
                }
            }
            let mut numbers = BTreeSet::new();
            let numbered_fields = definition.fields.iter().filter(|f| f.number != 0);
            assert!(
                numbered_fields.map(|f| f.number).all(|n| numbers.insert(n)),
                "two fields of {} have one number",
                definition.name
            );
        }
    }
}
