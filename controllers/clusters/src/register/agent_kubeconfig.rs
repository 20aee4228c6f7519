//! Finds the kubeconfig with which the agent in a member reaches its control plane.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, ResourcePath};
use serde_json::Value;

use super::member_objects::DEPLOYMENTS;
use crate::join::objects::SECRETS;

/// The kubeconfig of an agent.
pub struct AgentKubeconfig {
    pub text: String,
    /// The context that the agent uses; the current one by default.
    pub context: Option<String>,
}

/// Where the Deployment of an agent has its kubeconfig from.
#[derive(Debug, PartialEq, Eq)]
struct KubeconfigSource {
    secret: String,
    key: String,
    context: Option<String>,
}

/// Reads the kubeconfig of an agent from the Secret that its Deployment mounts.
pub async fn agent_kubeconfig(
    member: &dyn Api,
    namespace: &str,
    agent: &str,
) -> Result<AgentKubeconfig, Error> {
    let at = ResourcePath::object(&DEPLOYMENTS, namespace, agent);
    let deployment = member.get(at).await?.value()?;
    let source = kubeconfig_source(&deployment).ok_or_else(|| {
        Error::Protocol("failed to get secret name of karmada agent config".to_owned())
    })?;
    let at = ResourcePath::object(&SECRETS, namespace, &source.secret);
    let secret = member.get(at).await?.value()?;
    let data = secret["data"][&source.key].as_str();
    let text = data.and_then(|text| STANDARD.decode(text).ok());
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.filter(|text| !text.is_empty()).ok_or_else(|| {
        Error::Protocol(format!(
            "empty data, secretName: {}, keyName: {}",
            source.secret, source.key
        ))
    })?;
    Ok(AgentKubeconfig {
        text,
        context: source.context,
    })
}

/// Follows the flag `--karmada-kubeconfig` of the first container to the Secret behind its file.
fn kubeconfig_source(deployment: &Value) -> Option<KubeconfigSource> {
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let flag = |name: &str| {
        let words = container["command"].as_array().into_iter().flatten();
        let arguments = container["args"].as_array().into_iter().flatten();
        let mut values = words
            .chain(arguments)
            .filter_map(|word| word.as_str()?.strip_prefix(name));
        values.next_back().map(str::to_owned)
    };
    let file = flag("--karmada-kubeconfig=")?;
    let (directory, key) = file.rsplit_once('/')?;
    let mut mounts = container["volumeMounts"].as_array()?.iter();
    let mount = mounts.find(|mount| {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        path.trim_end_matches('/') == directory
    })?;
    let mut volumes = pod["volumes"].as_array()?.iter();
    let volume = volumes.find(|volume| volume["name"] == mount["name"])?;
    Some(KubeconfigSource {
        secret: volume["secret"]["secretName"].as_str()?.to_owned(),
        key: key.to_owned(),
        context: flag("--karmada-context="),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_secret_is_found_behind_the_flag() {
        let deployment = json!({"spec": {"template": {"spec": {
            "containers": [{
                "command": ["/bin/karmada-agent", "--karmada-kubeconfig=/etc/kubeconfig/plane", "--karmada-context=c"],
                "volumeMounts": [{"name": "other", "mountPath": "/etc"}, {"name": "k", "mountPath": "/etc/kubeconfig/"}],
            }],
            "volumes": [{"name": "other", "emptyDir": {}}, {"name": "k", "secret": {"secretName": "s"}}],
        }}}});
        let source = kubeconfig_source(&deployment).unwrap();
        assert_eq!((&*source.secret, &*source.key), ("s", "plane"));
        assert_eq!(source.context.as_deref(), Some("c"));
        let mut unmounted = deployment;
        unmounted["spec"]["template"]["spec"]["volumes"] = json!([]);
        assert_eq!(kubeconfig_source(&unmounted), None);
    }
}
