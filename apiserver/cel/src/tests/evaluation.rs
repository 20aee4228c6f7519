//! The results of expressions that cel-go alone cannot evaluate: Kubernetes' libraries and
//! the types of a schema.

use serde_json::{Value as Json, json};

use super::{evaluate, sample};
use crate::environment::Environment;
use crate::program::Program;

fn check(rows: &[(&str, Json)]) {
    for (expression, expected) in rows {
        let result = evaluate(expression, &sample());
        assert_eq!(result.as_ref(), Ok(expected), "{expression}");
    }
}

#[test]
fn libraries_of_kubernetes_are_evaluated() {
    let yes = || json!(true);
    check(&[
        ("[1, 2, 2].isSorted() && ![2, 1].isSorted()", yes()),
        ("[1, 2, 3].sum() == 6 && [0.5].sum() == 0.5", yes()),
        (
            "[duration('1m'), duration('1s')].sum() == duration('61s')",
            yes(),
        ),
        ("[3, 1, 2].max() == 3 && [3, 1, 2].min() == 1", yes()),
        (
            "['b', 'c'].indexOf('c') == 1 && [1].lastIndexOf(5) == -1",
            yes(),
        ),
        ("x.tags.isSorted() && x.numbers.sum() == 6", yes()),
        ("'abc 123'.find('[0-9]+') == '123'", yes()),
        ("'1a2b'.findAll('[0-9]') == ['1', '2']", yes()),
        ("'1a2b'.findAll('[0-9]', 1) == ['1']", yes()),
        ("isURL('https://a.b:80/p?q=1') && !isURL('a b')", yes()),
        (
            "url('https://user@a.b:80/p a?q=1&q=2').getHost() == 'a.b:80'",
            yes(),
        ),
        ("url('https://[::1]:80/').getHostname() == '::1'", yes()),
        (
            "url('https://a.b/p?k=1&k=2').getQuery() == {'k': ['1', '2']}",
            yes(),
        ),
        (
            "url('/path only').getEscapedPath() == '/path%20only'",
            yes(),
        ),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", yes()),
        (
            "quantity('50k').add(20).compareTo(quantity('50020')) == 0",
            yes(),
        ),
        ("quantity('200M').asInteger() == 200000000", yes()),
        (
            "!quantity('0.5').isInteger() && isQuantity('1.5e3') && !isQuantity('1x')",
            yes(),
        ),
        ("quantity('1500m').asApproximateFloat() == 1.5", yes()),
        (
            "ip('10.0.0.1').family() == 4 && ip('::1').isLoopback()",
            yes(),
        ),
        ("!isIP('::ffff:1.2.3.4') && isIP('fe80::1')", yes()),
        (
            "ip.isCanonical('::1') && !ip.isCanonical('0:0:0:0:0:0:0:1')",
            yes(),
        ),
        ("cidr('10.0.0.0/8').containsIP('10.2.3.4')", yes()),
        (
            "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))",
            yes(),
        ),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", yes()),
        (
            "!isCIDR('10.0.0.0/33') && cidr('::/0').prefixLength() == 0",
            yes(),
        ),
        ("!format.dns1123Label().validate('a-b').hasValue()", yes()),
        (
            "format.named('dns1123Label').value().validate('A').value().size() == 1",
            yes(),
        ),
        ("!format.named('unknown').hasValue()", yes()),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", yes()),
        (
            "semver('1.0.0-rc.1').compareTo(semver('1.0.0')) == -1",
            yes(),
        ),
        (
            "isSemver('1.2.3+b') && !isSemver('v1.2') && isSemver('v1.2', true)",
            yes(),
        ),
        ("semver('v01.2', true).minor() == 2", yes()),
        ("jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'", yes()),
        ("[[1, 2], [3]].flatten() == [1, 2, 3]", yes()),
        (
            "[3, 1, 2].sort() == [1, 2, 3] && [1, 1, 2].distinct() == [1, 2]",
            yes(),
        ),
        (
            "[{'n': 2}, {'n': 1}].sortBy(e, e.n) == [{'n': 1}, {'n': 2}]",
            yes(),
        ),
        (
            "lists.range(3) == [0, 1, 2] && [1, 2, 3].slice(1, 3) == [2, 3]",
            yes(),
        ),
        (
            "[1, 2].reverse() == [2, 1] && [1, 2].first().value() == 1",
            yes(),
        ),
        ("[1, 2].all(i, v, i < v)", yes()),
        (
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10) == {'b': 20}",
            yes(),
        ),
        ("[5, 6].transformList(i, v, i + v) == [5, 7]", yes()),
        (
            "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
            yes(),
        ),
    ]);
}

#[test]
fn evaluation_errors_have_kubernetes_texts() {
    for (expression, error) in [
        ("x.missing", "no such key: missing"),
        ("[1][1]", "index out of bounds: 1"),
        ("1 / (x.replicas - 3)", "division by zero"),
        ("9223372036854775807 + x.replicas", "integer overflow"),
        ("x.name + 1", "no such overload"),
        (
            "quantity(x.name)",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("[1].filter(i, i > 5).max()", "max called on empty list"),
    ] {
        let result = evaluate(expression, &sample());
        assert_eq!(result, Err(error.to_owned()), "{expression}");
    }
}

#[test]
fn values_have_the_types_of_their_schema() {
    let schema = json!({"type": "object", "properties": {
        "count": {"type": "integer"}, "ratio": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "for": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"},
        "port": {"x-kubernetes-int-or-string": true},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {
                "k": {"type": "string"}, "v": {"type": "integer"}}}},
        "namespace": {"type": "string"}, "a-b": {"type": "string"},
        "optional": {"type": "object", "properties": {"x": {"type": "integer"}}},
    }});
    let object = json!({
        "count": 2, "ratio": 2, "at": "2026-01-02T03:04:05Z", "for": "90s", "raw": "aGk=",
        "port": "50%", "set": ["a", "b"], "keyed": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "namespace": "ns", "a-b": "dash",
    });
    let environment = Environment::new().with_schema("self", &schema);
    for expression in [
        "self.ratio == 2.0 && self.count == 2",
        "self.at.getFullYear() == 2026 && self.at < timestamp('2027-01-01T00:00:00Z')",
        "self.for == duration('1m30s')",
        "self.raw == b'hi'",
        "type(self.port) == string && self.port.endsWith('%')",
        "type(self.port) == int ? self.port < 5 : self.port == '50%'",
        "self.set == ['b', 'a'] && self.set + ['a', 'c'] == ['c', 'b', 'a']",
        "dyn(self.keyed) == dyn([{'k': dyn('y'), 'v': dyn(2)}, {'k': dyn('x'), 'v': dyn(1)}])",
        "self.__namespace__ == 'ns' && self.a__dash__b == 'dash'",
        "self.namespace == 'ns'",
        "!has(self.optional) && self.?optional.?x.orValue(7) == 7",
        "self.?count.optMap(c, c + 1).value() == 3",
    ] {
        let program = Program::compile(expression, &environment).unwrap();
        let result = program.evaluate_json(&environment, &[Some(&object)]).result;
        assert_eq!(result, Ok(json!(true)), "{expression}");
    }
}

#[test]
fn wrong_expressions_are_refused_with_their_position() {
    let schema = json!({"type": "object", "properties": {
        "count": {"type": "integer"}, "name": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}}}});
    let environment = Environment::new().with_schema("self", &schema);
    for (expression, error) in [
        (
            "self.missing",
            "ERROR: <input>:1:5: undefined field 'missing'\n | self.missing\n | ....^",
        ),
        (
            "self.count > 'a'",
            "ERROR: <input>:1:12: found no matching overload for '_>_' applied to '(int, string)'\n | self.count > 'a'\n | ...........^",
        ),
        (
            "other == 1",
            "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
        ),
        (
            "self.name.frobnicate()",
            "ERROR: <input>:1:21: undeclared reference to 'frobnicate' (in container '')\n | self.name.frobnicate()\n | ....................^",
        ),
        (
            "self.count.all(x, true)",
            "ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.count.all(x, true)\n | ....^",
        ),
        (
            "self.count.foo",
            "ERROR: <input>:1:11: type 'int' does not support field selection\n | self.count.foo\n | ..........^",
        ),
        (
            "[1, 'a'] == []",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a'] == []\n | ....^",
        ),
        (
            "self.name.matches('(')",
            "ERROR: <input>:1:19: invalid matches argument\n | self.name.matches('(')\n | ..................^",
        ),
        (
            "duration('1d') > duration('1h')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('1d') > duration('1h')\n | .........^",
        ),
        (
            "self.list.exists(x, x == 1)",
            "ERROR: <input>:1:23: found no matching overload for '_==_' applied to '(string, int)'\n | self.list.exists(x, x == 1)\n | ......................^",
        ),
        (
            "has(self)",
            "ERROR: <input>:1:4: invalid argument to has() macro\n | has(self)\n | ...^",
        ),
    ] {
        let result = Program::compile(expression, &environment).map(|_| ());
        assert_eq!(result, Err(error.to_owned()), "{expression}");
    }
    for expression in [
        "",
        "1 +",
        "(1",
        "'a",
        "a.b.",
        "for",
        "1 ? 2",
        "[1",
        "{1}",
        "a{b: 1}",
        "1 2",
        "0x",
        "1..2",
        "'\\q'",
        "b'\\u0041'",
        "a?.b",
        "@result",
        "self.list.map(1, 2)",
        "Foo{a: 1}",
        "cel.bind(a, 1, a)",
    ] {
        assert!(
            Program::compile(expression, &environment).is_err(),
            "{expression}"
        );
    }
}
