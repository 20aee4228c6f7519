//! The query of a gate as a request to a member, and its answer. The member, the Service and its
//! pods are untrusted: an answer is bounded, and nothing of it is shown but one number.

use client::Error;
use karmada_api::rollout::QueryGate;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// How long Prometheus may evaluate the query; less than the request may take.
const EVALUATION_TIMEOUT: &str = "5s";
/// An answer with one number is far smaller.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The path of a query in a member: to a Service through the proxy of the member's API server, and
/// nowhere else.
pub(crate) fn query_path(gate: &QueryGate, namespace: &str) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let service = &gate.prometheus;
    format!(
        "/api/v1/namespaces/{}/services/{}:{}:{}/proxy/api/v1/query?query={}&timeout={EVALUATION_TIMEOUT}&limit=2",
        encoded(namespace),
        encoded(&service.scheme),
        encoded(&service.name),
        service.port,
        encoded(&gate.expression),
    )
}

#[derive(Deserialize)]
struct QueryAnswer {
    data: QueryData,
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
pub(crate) fn failure_text(error: &Error) -> String {
    match error {
        Error::Status(status) => format!("the Service answered with status code {}", status.code),
        Error::Transport { .. } => "the member does not answer".to_owned(),
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
            prometheus: PrometheusService {
                name: name.into(),
                port: 9090,
                scheme: "http".into(),
                ..PrometheusService::default()
            },
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
            let path = query_path(&gate(name, expression), "shop");
            let expected = format!("/api/v1/namespaces/shop/services/http:{expected}");
            assert_eq!(path, expected);
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
        let scalar = r#"{"data":{"resultType":"scalar","result":[1435781451.781,"2"]}}"#;
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
                r#"{"data":{"resultType":"matrix","result":[]}}"#.to_owned(),
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
            let text = failure_text(&error);
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
