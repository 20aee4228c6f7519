//! Reads the roles and bindings of a policy file. Its format is at the top of
//! `rbac_policy.txt`.

use client::ResourcePath;
use machinery::Gvr;
use serde_json::{Value, json};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// A role or binding to create or to complete.
#[derive(Debug)]
pub(super) struct BootstrapObject {
    pub(super) gvr: Gvr,
    pub(super) value: Value,
}

impl BootstrapObject {
    fn new(kind: &str, namespace: &str, name: &str) -> Self {
        let mut value = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": kind,
            "metadata": {
                "name": name,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            },
        });
        if !namespace.is_empty() {
            value["metadata"]["namespace"] = namespace.into();
        }
        let resource = format!("{}s", kind.to_ascii_lowercase());
        Self {
            gvr: Gvr::new(GROUP, "v1", &resource),
            value,
        }
    }

    pub(super) fn path(&self) -> ResourcePath<'_> {
        let text = |field: &str| self.value["metadata"][field].as_str().unwrap_or_default();
        ResourcePath::object(&self.gvr, text("namespace"), text("name"))
    }
}

/// The objects of a policy file, in its order; an error names the malformed line.
pub(super) fn parse(file: &str) -> Result<Vec<BootstrapObject>, String> {
    let mut objects: Vec<BootstrapObject> = Vec::new();
    for line in file.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let rule = policy_rule(&words).ok_or_else(|| format!("malformed rule: {line}"))?;
            let role = objects.last_mut();
            let rules = role.and_then(|role| role.value["rules"].as_array_mut());
            rules
                .ok_or_else(|| format!("rule without a role: {line}"))?
                .push(rule);
        } else if let ["controller", name] = words[..] {
            let (role, binding) = controller_role(name);
            // The rules that follow are those of the role.
            objects.push(binding);
            objects.push(role);
        } else {
            objects.push(role_or_binding(&words).ok_or_else(|| format!("malformed: {line}"))?);
        }
    }
    Ok(objects)
}

/// The role of a controller and its binding to the controller's account.
fn controller_role(name: &str) -> (BootstrapObject, BootstrapObject) {
    let full_name = format!("system:controller:{name}");
    let mut role = BootstrapObject::new("ClusterRole", "", &full_name);
    role.value["rules"] = json!([]);
    let mut binding = BootstrapObject::new("ClusterRoleBinding", "", &full_name);
    binding.value["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": full_name});
    binding.value["subjects"] =
        json!([{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}]);
    (role, binding)
}

fn policy_rule(words: &[&str]) -> Option<Value> {
    if let ["events"] = words {
        return policy_rule(&["create,patch,update", "core,events.k8s.io", "events"]);
    }
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let verbs: Vec<&str> = words
        .first()?
        .split(',')
        .flat_map(|verb| match verb {
            "read" => READ.to_vec(),
            "write" => WRITE.to_vec(),
            verb => vec![verb],
        })
        .collect();
    match words[1..] {
        ["url", paths] => Some(json!({"nonResourceURLs": list(paths), "verbs": verbs})),
        [group, resources, ref names @ ..] => {
            let groups = group.split(',').map(|group| match group {
                "core" => "",
                group => group,
            });
            let groups: Vec<&str> = groups.collect();
            let mut rule =
                json!({"apiGroups": groups, "resources": list(resources), "verbs": verbs});
            match names {
                [] => {}
                [names] => rule["resourceNames"] = list(names).into(),
                _ => return None,
            }
            Some(rule)
        }
        _ => None,
    }
}

fn role_or_binding(words: &[&str]) -> Option<BootstrapObject> {
    let role_ref = |kind: &str, name: &str| json!({"apiGroup": GROUP, "kind": kind, "name": name});
    let (object, role, subject_words) = match *words {
        ["clusterrole", name, ref options @ ..] => return cluster_role(name, options),
        ["role", namespace, name] => {
            let mut role = BootstrapObject::new("Role", namespace, name);
            role.value["rules"] = json!([]);
            return Some(role);
        }
        ["clusterrolebinding", name, role, ref subjects @ ..] => (
            BootstrapObject::new("ClusterRoleBinding", "", name),
            role_ref("ClusterRole", role),
            subjects,
        ),
        ["rolebinding", namespace, name, role, ref subjects @ ..] => {
            let (kind, role) = role.split_once('/')?;
            (
                BootstrapObject::new("RoleBinding", namespace, name),
                role_ref(kind, role),
                subjects,
            )
        }
        _ => return None,
    };
    let subjects: Option<Vec<Value>> = subject_words.iter().map(|word| subject(word)).collect();
    let mut object = object;
    object.value["roleRef"] = role;
    let subjects = subjects?;
    if !subjects.is_empty() {
        object.value["subjects"] = subjects.into();
    }
    Some(object)
}

fn cluster_role(name: &str, options: &[&str]) -> Option<BootstrapObject> {
    let mut role = BootstrapObject::new("ClusterRole", "", name);
    role.value["rules"] = json!([]);
    for option in options {
        let (key, other) = option.split_once(':')?;
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{other}");
        match key {
            "to" => role.value["metadata"]["labels"][label] = "true".into(),
            "of" => {
                role.value["rules"] = Value::Null;
                role.value["aggregationRule"] =
                    json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
            }
            _ => return None,
        }
    }
    Some(role)
}

fn subject(word: &str) -> Option<Value> {
    let (kind, name) = word.split_once(':')?;
    match kind {
        "u" => Some(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
        "g" => Some(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
        "s" => {
            let (namespace, name) = name.split_once('/')?;
            Some(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_refused() {
        for file in [
            "clusterrole",
            "clusterrole a about:b",
            "role a",
            "rolebinding n b role",
            "clusterrolebinding a b x:c",
            "  get core pods",
            "clusterrole a\n  get",
            "clusterrole a\n  get core pods a b",
            "clusterrolebinding a b u:c\n  get core pods",
            "namespace a",
            "controller",
            "controller a b",
        ] {
            assert!(parse(file).is_err(), "{file}");
        }
    }

    #[test]
    fn roles_and_bindings_are_read() {
        let file = "# A comment.\n\nclusterrole a to:b\n  get,write core pods,pods/log x\n  \
                    get url /a,/b/*\nclusterrole b of:b\nrole n c\n\
                    rolebinding n d Role/c u:e:f s:n/g\nclusterrolebinding h a g:i";
        let objects = parse(file).unwrap();
        let paths: Vec<(String, String)> = objects
            .iter()
            .map(|o| (o.path().namespace.to_owned(), o.path().name.to_owned()))
            .collect();
        let names = [("", "a"), ("", "b"), ("n", "c"), ("n", "d"), ("", "h")];
        assert_eq!(paths, names.map(|(n, o)| (n.to_owned(), o.to_owned())));
        let verbs = [
            "get",
            "create",
            "delete",
            "deletecollection",
            "patch",
            "update",
        ];
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods", "pods/log"], "resourceNames": ["x"],
             "verbs": verbs},
            {"nonResourceURLs": ["/a", "/b/*"], "verbs": ["get"]},
        ]);
        assert_eq!(objects[0].value["rules"], rules);
        let label = "rbac.authorization.k8s.io/aggregate-to-b";
        assert_eq!(objects[0].value["metadata"]["labels"][label], "true");
        let selectors = json!([{"matchLabels": {label: "true"}}]);
        assert_eq!(
            objects[1].value["aggregationRule"]["clusterRoleSelectors"],
            selectors
        );
        assert_eq!(&*objects[3].gvr.resource, "rolebindings");
        let subjects = json!([{"apiGroup": GROUP, "kind": "User", "name": "e:f"},
            {"kind": "ServiceAccount", "name": "g", "namespace": "n"}]);
        assert_eq!(objects[3].value["subjects"], subjects);
        let role_ref = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "a"});
        assert_eq!(objects[4].value["roleRef"], role_ref);
    }

    #[test]
    fn controllers_have_a_role_and_a_binding() {
        let objects = parse("controller c\n  get apps,core x\n  events").unwrap();
        let [binding, role] = &objects[..] else {
            panic!("{objects:?}");
        };
        for object in [role, binding] {
            assert_eq!(object.path().name, "system:controller:c");
        }
        let rules = json!([
            {"apiGroups": ["apps", ""], "resources": ["x"], "verbs": ["get"]},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"],
             "verbs": ["create", "patch", "update"]},
        ]);
        assert_eq!(role.value["rules"], rules);
        let subjects = json!([{"kind": "ServiceAccount", "name": "c", "namespace": "kube-system"}]);
        assert_eq!(binding.value["subjects"], subjects);
    }

    /// Whoever writes a Work in an execution space administers that member, and whoever reads it
    /// sees the Secrets in it.
    #[test]
    fn roles_that_others_aggregate_grant_no_works() {
        let objects = parse(include_str!("karmada_rbac_policy.txt")).unwrap();
        for object in objects {
            let labels = object.value["metadata"]["labels"].to_string();
            let rules = object.value["rules"].to_string();
            let is_aggregated = labels.contains("/aggregate-to-");
            assert!(!is_aggregated || !rules.contains("\"works"), "{rules}");
        }
    }

    // proves: HIS-rights
    #[test]
    fn histories_may_be_viewed_and_not_written() {
        let objects = parse(include_str!("karmada_rbac_policy.txt")).unwrap();
        let rules = objects.iter().flat_map(|object| {
            let rules = object.value["rules"].as_array().into_iter().flatten();
            rules.map(|rule| (object.path().name, rule))
        });
        let granted: Vec<(&str, &Value)> = rules
            .filter(|(_, rule)| rule["apiGroups"].to_string().contains("history."))
            .map(|(role, rule)| (role, &rule["verbs"]))
            .collect();
        assert_eq!(
            granted,
            [("karmada-view", &json!(["get", "list", "watch"]))]
        );
    }
}
