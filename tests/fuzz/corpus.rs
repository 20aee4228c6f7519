//! Valid inputs of the targets, which the tests edit.

pub(crate) const LABEL_SELECTORS: &[&[u8]] = &[
    b"a=b",
    b"a==b,c!=d",
    b"a in (b, c),!d",
    b"example.com/name notin (x),e",
    b"a>5,b<7",
];

pub(crate) const FIELD_SELECTORS: &[&[u8]] = &[
    b"metadata.name=a",
    b"metadata.namespace!=kube-system,status.phase==Running",
    br"spec.host=a\,b\=c",
];

pub(crate) const QUANTITIES: &[&[u8]] = &[b"1", b"1.5Gi", b"-3m", b"1e3", b"12E-6", b".5k", b"9Ei"];

/// A ConfigMap, a DeleteOptions and a Namespace in the envelope of Kubernetes' protobuf.
pub(crate) const PROTOBUF_BODIES: &[&[u8]] = &[
    b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v\x1a\0\"\0",
    b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x02\x08\x05\x1a\0\"\0",
    b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x05\x0a\x03\x0a\x01a\x1a\0\"\0",
];

pub(crate) const PATCHES: &[&[u8]] = &[
    b"{\"a\": {\"b\": [1, 2]}}\n[{\"op\": \"replace\", \"path\": \"/a/b/0\", \"value\": 3}]",
    b"{\"a\": [1]}\n[{\"op\": \"copy\", \"from\": \"/a\", \"path\": \"/c\"}, {\"op\": \"remove\", \"path\": \"/a/-1\"}]",
    b"{\"a~b\": 1}\n[{\"op\": \"test\", \"path\": \"/a~0b\", \"value\": 1}, {\"op\": \"move\", \"from\": \"/a~0b\", \"path\": \"/d\"}]",
    b"{\"a\": {\"b\": 1}, \"c\": [1]}\n{\"a\": {\"b\": null, \"d\": {\"e\": null}}, \"c\": [2]}",
];

pub(crate) const KUBECONFIGS: &[&[u8]] = &[
    b"apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: 'https://h:6443', certificate-authority-data: Y2E=, tls-server-name: n}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: x}}]
users: [{name: u, user: {token: hidden-token}}]
",
    b"{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: h}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}}]}",
];

pub(crate) const AUDIT_POLICIES: &[&[u8]] = &[
    b"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [a], verbs: [get], nonResourceURLs: ['/healthz*']}
- {level: Request, resources: [{group: apps, resources: ['deployments/*'], resourceNames: [a]}], namespaces: [b]}
- {level: Metadata}
",
];

pub(crate) const CEL_EXPRESSIONS: &[&[u8]] = &[
    b"self.a.all(x, x > 1) && self.b.startsWith('c')\n{\"a\": [2, 3], \"b\": \"cd\"}",
    b"has(self.a) ? self.a.map(x, x * 2).size() : 0\n{\"a\": [1]}",
    b"self.?a[?0].orValue('x').matches('^[a-z]+$')\n{\"a\": [\"b\"]}",
    b"duration('1h') + timestamp(self) > timestamp('2000-01-01T00:00:00Z')\n\"2001-01-01T00:00:00Z\"",
    b"quantity(self.q).isGreaterThan(quantity('1Gi')) || ip('::1').isLoopback()\n{\"q\": \"2Gi\"}",
    b"self.s.split(',').join('.').format([1, 'a', 2.5])\n{\"s\": \"%d,%s,%f\"}",
];

pub(crate) const MANAGED_FIELDS: &[&[u8]] = &[
    br#"[{"manager": "a", "operation": "Apply", "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {".": {}, "f:a": {}, "k:{\"n\":1}": {},
        "v:\"x\"": {}, "i:2": {}}}}]"#,
    br#"[{"manager": "b", "operation": "Update", "apiVersion": "apps/v1", "subresource": "status",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}]"#,
];

pub(crate) const APPLIED_CONFIGURATIONS: &[&[u8]] = &[
    b"{\"apiVersion\": \"v1\", \"kind\": \"Thing\", \"metadata\": {\"name\": \"a\"}, \"spec\": {\"x\": 1, \"l\": [1]}}
{\"apiVersion\": \"v1\", \"kind\": \"Thing\", \"metadata\": {\"name\": \"a\"}, \"spec\": {\"x\": {\"y\": null}, \"l\": [2, {}]}}",
    b"{\"apiVersion\": \"v1\", \"kind\": \"Thing\"}
{\"apiVersion\": \"v1\", \"kind\": \"Thing\", \"metadata\": {\"labels\": {\"a/b\": \"c\"}}, \"data\": {\"k\": \"v\"}}",
];
