//! The built-in rules: those of third-party kinds, then the native ones.

use jiff::Timestamp;
use machinery::{Gvk, Object};
use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use serde_json::{Value, json};

use crate::native::{ClusterStatus, Error, Native, Replicas};
use crate::pods::tree;
use crate::wellknown::WellKnown;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuiltIn;

/// Applies a rule to the JSON of an object, if its kind is a third-party kind with rules.
fn ask<T>(
    kind: &Gvk,
    object: &Object,
    what: &'static str,
    rule: impl FnOnce(&Value) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    if !WellKnown.knows(kind) {
        return Ok(None);
    }
    rule(&tree(object, what)?)
}

impl BuiltIn {
    pub(crate) fn replicas(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Replicas>, Error> {
        match ask(kind, template, "replicas", |t| WellKnown.replicas(kind, t))? {
            None => Native.replicas(kind, template),
            found => Ok(found),
        }
    }

    /// No native kind has components.
    pub(crate) fn components(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Component>>, Error> {
        ask(kind, template, "components", |t| {
            WellKnown.components(kind, t)
        })
    }

    pub(crate) fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Dependency>>, Error> {
        let rule = |t: &Value| WellKnown.dependencies(kind, t);
        match ask(kind, template, "dependencies", rule)? {
            None => Native.dependencies(kind, template),
            found => Ok(found),
        }
    }

    pub(crate) fn priority_class(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<String>, Error> {
        Native.priority_class(kind, template)
    }

    pub(crate) fn revise(
        &self,
        kind: &Gvk,
        mut copy: Value,
        replicas: i64,
    ) -> Result<Value, Error> {
        if let Some(revised) = WellKnown.revise(kind, &copy, replicas)? {
            return Ok(revised);
        }
        Native.revise(kind, &mut copy, replicas)?;
        Ok(copy)
    }

    pub(crate) fn retain(
        &self,
        kind: &Gvk,
        mut desired: Value,
        observed: &Value,
    ) -> Result<Value, Error> {
        if let Some(retained) = WellKnown.retain(kind, &desired, observed)? {
            return Ok(retained);
        }
        Native.retain(kind, &mut desired, observed)?;
        Ok(desired)
    }

    /// Whether a kind has a health rule.
    pub(crate) fn tells_health(&self, kind: &Gvk) -> bool {
        WellKnown.tells_health(kind) || Native.tells_health(kind)
    }

    pub(crate) fn healthy(&self, kind: &Gvk, observed: &Object) -> Result<Option<bool>, Error> {
        match ask(kind, observed, "health", |o| WellKnown.healthy(kind, o))? {
            None => Native.healthy(kind, observed),
            found => Ok(found),
        }
    }

    pub(crate) fn reflect(&self, kind: &Gvk, observed: &Object) -> Result<Option<Value>, Error> {
        match ask(kind, observed, "status", |o| Ok(WellKnown.reflect(kind, o)))? {
            None => Native.reflect(kind, observed),
            found => Ok(found),
        }
    }

    /// The aggregated status of a template.
    pub(crate) fn aggregate(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[ClusterStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        match summed(kind, template, Some(items), now)? {
            None => Native.aggregate(kind, template, items, now),
            Some(mut result) => {
                let status = result.get_mut("status").map(Value::take);
                Ok(Some(status.unwrap_or_else(|| json!({}))))
            }
        }
    }

    /// The template with its aggregated status.
    pub(crate) fn aggregated(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[ClusterStatus<'_>]>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(result) = summed(kind, template, items, now)? {
            return Ok(Some(result));
        }
        let items = items.unwrap_or_default();
        let Some(status) = Native.aggregate(kind, template, items, now)? else {
            return Ok(None);
        };
        let mut result = tree(template, "template")?;
        if let Some(fields) = result.as_object_mut() {
            fields.insert("status".to_owned(), status);
        }
        Ok(Some(result))
    }
}

fn summed(
    kind: &Gvk,
    template: &Object,
    items: Option<&[ClusterStatus<'_>]>,
    now: Timestamp,
) -> Result<Option<Value>, Error> {
    ask(kind, template, "status", |t| {
        WellKnown.aggregate(kind, t, items, now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::tests::object;

    // proves: CRD-before-native
    #[test]
    fn third_party_kind_without_a_rule_falls_back_to_native() {
        let (cron, deployment) = (
            Gvk::constant("apps.kruise.io", "v1alpha1", "AdvancedCronJob"),
            Gvk::constant("apps", "v1", "Deployment"),
        );
        let status = json!({"type": "Job", "odd": 1});
        let copy =
            object(json!({"metadata": {"name": "x"}, "spec": {"replicas": 2}, "status": status}));
        assert_eq!(BuiltIn.reflect(&cron, &copy).unwrap(), Some(status.clone()));
        assert_eq!(BuiltIn.healthy(&cron, &copy).unwrap(), None);
        assert_eq!(BuiltIn.replicas(&cron, &copy).unwrap(), None);
        assert_eq!(
            BuiltIn.replicas(&deployment, &copy).unwrap().unwrap().count,
            2
        );
        let items = [ClusterStatus {
            cluster: "a",
            status: Some(&status),
        }];
        let now = Timestamp::UNIX_EPOCH;
        let result = BuiltIn.aggregate(&cron, &copy, &items, now).unwrap();
        assert_eq!(result, Some(json!({"type": "Job", "odd": 1})));
        let result = BuiltIn.aggregated(&cron, &copy, Some(&items), now).unwrap();
        assert_eq!(result.unwrap()["spec"], json!({"replicas": 2}));
        let empty = BuiltIn.aggregated(&cron, &copy, Some(&[]), now).unwrap();
        assert_eq!(empty.unwrap()["status"]["type"], "");
        let none = BuiltIn.aggregated(&cron, &copy, None, now).unwrap();
        assert_eq!(none.unwrap()["status"]["type"], "Job");
    }

    // proves: CRD-before-native
    #[test]
    fn third_party_kind_uses_its_own_rules() {
        let set = Gvk::constant("apps.kruise.io", "v1alpha1", "CloneSet");
        let revised = BuiltIn.revise(&set, json!({"spec": {}}), 3).unwrap();
        assert_eq!(revised, json!({"spec": {"replicas": 3}}));
        let release = Gvk::constant("helm.toolkit.fluxcd.io", "v2beta1", "HelmRelease");
        let observed = json!({"spec": {"suspend": true}});
        let retained = BuiltIn.retain(&release, json!({"spec": {"a": 1}}), &observed);
        assert_eq!(
            retained.unwrap(),
            json!({"spec": {"a": 1, "suspend": true}})
        );
        let broken = object(json!({"metadata": {"name": "x"}, "spec": {}}));
        let error = BuiltIn.replicas(&set, &broken).unwrap_err().to_string();
        assert_eq!(error, "spec.replicas: a number is needed");
        let job = Gvk::constant("ray.io", "v1", "RayJob");
        assert_eq!(BuiltIn.components(&job, &broken).unwrap(), Some(Vec::new()));
    }
}
