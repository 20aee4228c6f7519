//! The RBAC rules of the manifests: each rule with a wildcard is explained by a comment above it.

use serde_json::Value;

use crate::manifests::manifest_path;

/// The beginning of a comment that explains a rule with a wildcard.
const EXPLANATION: &str = "# Wide: ";

/// Returns the rules with a wildcard that no comment explains.
fn unexplained_wildcard_rules(text: &str) -> Vec<String> {
    let mut unexplained = Vec::new();
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        if !["Role", "ClusterRole"].contains(&object["kind"].as_str().unwrap_or_default()) {
            continue;
        }
        let Some((_, rules)) = document.split_once("\nrules:\n") else {
            assert_eq!(object["rules"], Value::Array(vec![]), "{document}");
            continue;
        };
        let (mut comment, mut blocks) = (String::new(), Vec::<(String, String)>::new());
        for line in rules.lines() {
            if line.starts_with('#') {
                comment.push_str(line);
            } else if line.starts_with("- ") {
                blocks.push((std::mem::take(&mut comment), line.to_owned()));
            } else if let Some((_, rule)) = blocks.last_mut() {
                rule.push_str(line);
            }
        }
        let count = object["rules"].as_array().unwrap().len();
        assert_eq!(blocks.len(), count, "rules are not parsed: {document}");
        let wide = blocks
            .into_iter()
            .filter(|(comment, rule)| rule.contains('*') && !comment.starts_with(EXPLANATION));
        unexplained.extend(wide.map(|(_, rule)| rule));
    }
    unexplained
}

#[test]
fn every_wildcard_rule_is_explained_in_place() {
    for directory in ["install", "monitoring"] {
        for entry in std::fs::read_dir(manifest_path(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            if text.contains("\nrules:\n") && text.contains("rbac.authorization.k8s.io") {
                assert_eq!(
                    unexplained_wildcard_rules(&text),
                    Vec::<String>::new(),
                    "{}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn a_wildcard_rule_without_an_explanation_is_found() {
    let role = |comment: &str| {
        format!(
            "kind: ClusterRole\nrules:\n# Events.\n- apiGroups: [\"\"]\n  resources: [events]\n  \
             verbs: [create]\n{comment}- apiGroups: [\"*\"]\n  resources: [things]\n  verbs: [get]\n"
        )
    };
    assert_eq!(
        unexplained_wildcard_rules(&role("# Wide: things are of any group.\n")).len(),
        0
    );
    assert_eq!(unexplained_wildcard_rules(&role("# Things.\n")).len(), 1);
    assert_eq!(unexplained_wildcard_rules(&role("")).len(), 1);
}

/// The wildcard rule allows to list, watch and patch any resource. It does not allow `get`, which
/// would allow `pods/exec` and `nodes/proxy`, nor create, update or delete.
#[test]
fn the_wildcard_rule_has_no_verb_that_enters_pods_and_nodes() {
    let text = std::fs::read_to_string(manifest_path("install/flotilla.yaml")).unwrap();
    let documents = text
        .split("\n---\n")
        .map(|d| -> Value { serde_saphyr::from_str(d).unwrap() });
    let roles =
        documents.filter(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "flotilla");
    let rules: Vec<Value> = roles
        .flat_map(|r| r["rules"].as_array().unwrap().clone())
        .collect();
    assert!(rules.len() > 3);
    let wide = rules.iter().filter(|r| r.to_string().contains('*'));
    let verbs: Vec<&Value> = wide.map(|r| &r["verbs"]).collect();
    assert_eq!(verbs, [&serde_json::json!(["list", "watch", "patch"])]);
}
