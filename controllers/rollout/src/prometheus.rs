//! The query of a gate as a request, and its answer. The member, the Service and its pods are
//! untrusted: an answer is bounded, and nothing of it is shown but one number.

use client::Error;
use karmada_api::rollout::QueryGate;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// How long Prometheus may evaluate the query; less than the request may take.
const EVALUATION_TIMEOUT: &str = "5s";
/// An answer with one number is far smaller.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The variable in an expression that stands for the name of the cluster.
const CLUSTER_VARIABLE: &str = "$cluster";

/// The server that answers a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuerySource {
    /// A Service in the member.
    Member,
    /// The Prometheus of the control plane.
    ControlPlane,
}

/// A GET that asks a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryRequest {
    pub(crate) source: QuerySource,
    pub(crate) path: String,
}

impl QueryRequest {
    /// The query of a gate about a cluster. It goes to a Service through the proxy of the member's API
    /// server, or to the Prometheus of the control plane, and nowhere else. `namespace`: that of the
    /// template; `is_confined`: whether the policy may name Services of no other one.
    pub(crate) fn new(gate: &QueryGate, cluster: &str, namespace: &str, is_confined: bool) -> Self {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let expression = gate.expression.replace(CLUSTER_VARIABLE, cluster);
        let parameters = format!(
            "query={}&timeout={EVALUATION_TIMEOUT}&limit=2",
            encoded(&expression)
        );
        let Some(service) = &gate.prometheus else {
            // Prometheus ignores the parameter; a proxy in front may confine the query by it.
            let tenant = match is_confined {
                true => format!("&namespace={}", encoded(namespace)),
                false => String::new(),
            };
            return Self {
                source: QuerySource::ControlPlane,
                path: format!("/api/v1/query?{parameters}{tenant}"),
            };
        };
        let namespace = match &*service.namespace {
            named if !is_confined && !named.is_empty() => named,
            _ => namespace,
        };
        Self {
            source: QuerySource::Member,
            path: format!(
                "/api/v1/namespaces/{}/services/{}:{}:{}/proxy/api/v1/query?{parameters}",
                encoded(namespace),
                encoded(&service.scheme),
                encoded(&service.name),
                service.port,
            ),
        }
    }
}

#[derive(Deserialize)]
struct QueryAnswer {
    status: AnswerStatus,
    /// Such as that of Thanos about stores that are down: the value is that of a part.
    #[serde(default)]
    warnings: Vec<IgnoredAny>,
    data: QueryData,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum AnswerStatus {
    Success,
    Error,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum QueryData {
    Scalar(TimedValue),
    Vector(Vec<Sample>),
}

#[derive(Deserialize)]
struct Sample {
    value: TimedValue,
}

/// A time and the value as a text.
type TimedValue = (IgnoredAny, String);

/// The number in the answer to a query.
pub(crate) fn read_answer(body: &[u8]) -> Result<f64, String> {
    let answer = machinery::json::from_slice::<QueryAnswer>(body)
        .map_err(|_| "the answer is no scalar and no instant vector of Prometheus".to_owned())?;
    if answer.status == AnswerStatus::Error {
        return Err("the answer says that it is an error".to_owned());
    }
    if !answer.warnings.is_empty() {
        return Err("the answer has warnings, so that its value may be that of a part".to_owned());
    }
    let text = match answer.data {
        QueryData::Scalar((_, text)) => text,
        QueryData::Vector(samples) => match <[Sample; 1]>::try_from(samples) {
            Ok([Sample { value }]) => value.1,
            Err(samples) if samples.is_empty() => return Err("no series matches".to_owned()),
            Err(_) => return Err("more than one series matches".to_owned()),
        },
    };
    let value = text.parse::<f64>().ok().filter(|value| !value.is_nan());
    value.ok_or_else(|| "the value is not a number".to_owned())
}

/// Says why there is no answer, without the words of the Service: it may be any server.
pub(crate) fn failure_text(source: QuerySource, error: &Error) -> String {
    let (service, server) = match source {
        QuerySource::Member => ("the Service", "the member"),
        QuerySource::ControlPlane => ("Prometheus", "the Prometheus of the control plane"),
    };
    match error {
        Error::Status(status) => format!("{service} answered with status code {}", status.code),
        Error::Transport { .. } => format!("{server} does not answer"),
        Error::Protocol(_) => {
            format!("the answer cannot be read, or has more than {MAX_ANSWER_BYTES} bytes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::rollout::PrometheusService;

    // proves: ROL-query-service
    #[test]
    fn a_query_goes_to_a_service_through_the_api_server_of_the_member() {
        let gate = |name: &str, expression: &str| QueryGate {
            prometheus: Some(PrometheusService {
                name: name.into(),
                port: 9090,
                scheme: "http".into(),
                ..PrometheusService::default()
            }),
            expression: expression.into(),
            ..QueryGate::default()
        };
        for (name, expression, expected) in [
            (
                "prometheus",
                "up",
                "prometheus:9090/proxy/api/v1/query?query=up&timeout=5s&limit=2",
            ),
            // Nothing of the policy leaves its place in the path.
            (
                "../x",
                "a&b=#?/",
                "%2E%2E%2Fx:9090/proxy/api/v1/query?query=a%26b%3D%23%3F%2F&timeout=5s&limit=2",
            ),
        ] {
            let request = QueryRequest::new(&gate(name, expression), "m1", "shop", true);
            let expected = format!("/api/v1/namespaces/shop/services/http:{expected}");
            assert_eq!(request.path, expected);
            assert_eq!(request.source, QuerySource::Member);
        }
    }

    // proves: ROL-query-control-plane
    #[test]
    fn a_query_without_a_service_names_the_cluster_and_the_namespace_of_the_policy() {
        let gate = QueryGate {
            expression: "up{c=\"$cluster\"}".into(),
            ..QueryGate::default()
        };
        let expected = "/api/v1/query?query=up%7Bc%3D%22m1%22%7D&timeout=5s&limit=2";
        for (is_confined, tenant) in [(true, "&namespace=shop"), (false, "")] {
            let request = QueryRequest::new(&gate, "m1", "shop", is_confined);
            assert_eq!(request.source, QuerySource::ControlPlane);
            assert_eq!(request.path, format!("{expected}{tenant}"));
        }
    }

    // proves: ROL-query-answer
    #[test]
    fn an_answer_is_one_number() {
        let vector = |samples: &str| {
            format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}}}}"#
            )
        };
        let sample = |value: &str| format!(r#"{{"metric":{{"a":"b"}},"value":[1.5,"{value}"]}}"#);
        let scalar =
            r#"{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"2"]}}"#;
        for (body, expected) in [
            (scalar.to_owned(), Ok(2.0)),
            (vector(&sample("0.25")), Ok(0.25)),
            (vector(&sample("+Inf")), Ok(f64::INFINITY)),
            (vector(&sample("NaN")), Err("the value is not a number")),
            (vector(&sample("many")), Err("the value is not a number")),
            (vector(""), Err("no series matches")),
            (
                vector(&[sample("1"), sample("1")].join(",")),
                Err("more than one series matches"),
            ),
            (
                r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.to_owned(),
                Err("the answer is no scalar and no instant vector of Prometheus"),
            ),
            (
                scalar.replace("success", "error"),
                Err("the answer says that it is an error"),
            ),
            (
                scalar.replace(r#""data""#, r#""warnings":["a store is down"],"data""#),
                Err("the answer has warnings, so that its value may be that of a part"),
            ),
            (
                scalar.replace(r#""status":"success","#, ""),
                Err("the answer is no scalar and no instant vector of Prometheus"),
            ),
            (
                "<html>".to_owned(),
                Err("the answer is no scalar and no instant vector of Prometheus"),
            ),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(read_answer(body.as_bytes()), expected, "{body}");
        }
    }

    // proves: ROL-query-answer
    #[test]
    fn no_text_of_the_service_is_shown() {
        let status = machinery::Status::not_found(&karmada_api::rollout::ROLLOUTS, "secret");
        for error in [
            Error::from(status),
            Error::Protocol("secret".into()),
            Error::Transport {
                host: "secret".into(),
                message: "secret".into(),
            },
        ] {
            for source in [QuerySource::Member, QuerySource::ControlPlane] {
                let text = failure_text(source, &error);
                assert!(!text.contains("secret"), "{text}");
            }
        }
    }
}
