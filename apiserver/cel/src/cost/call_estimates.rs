//! Estimates of the calls of functions.

use crate::cost::estimated_path::{EstimatedPath, PathStep, extend};
use crate::cost::range::{Range, scale};
use crate::cost::{
    AUTHORIZATION_CHECK, CREATE_LIST, FORMAT_PATTERN_CHARS, MAX_FORMAT_CHARS, PER_CHAR,
    PER_PATTERN_CHAR,
};
use crate::node::{Node, NodeKind};
use crate::syntax::Literal;
use crate::types::Type;

/// An argument of a call, with what is known of its size.
pub(super) struct Argument<'e> {
    pub(super) node: &'e Node,
    pub(super) path: Option<&'e EstimatedPath>,
    pub(super) size: Option<Range>,
}

/// The declared size of the value at a path.
type Declared<'e> = &'e dyn Fn(&EstimatedPath) -> Option<Range>;
/// The cost of a call without its arguments, and the size of its result.
type CallEstimate = (Range, Option<Range>);

impl Argument<'_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    fn literal_int(&self) -> Option<u64> {
        match self.node.kind {
            NodeKind::Literal(Literal::Int(n)) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    /// The type and size of the elements of a list.
    fn element(&self, declared: Declared<'_>) -> Option<(&Type, Range)> {
        let element = match &self.node.ty {
            Type::List(element) | Type::Map(element, _) | Type::Optional(element) => element,
            _ => return None,
        };
        let path = self.path.map(|path| extend(Some(path), PathStep::Items));
        let size = path.and_then(|path| declared(&path));
        Some((element, size.unwrap_or(Range::UNKNOWN)))
    }
}

pub(super) fn estimate_call(
    function: &str,
    id: &str,
    target: Option<&Argument<'_>>,
    arguments: &[Argument<'_>],
    declared: Declared<'_>,
) -> CallEstimate {
    list_extension(id, target, arguments)
        .or_else(|| kubernetes(function, id, target, arguments, declared))
        .or_else(|| standard(id, target, arguments))
        .unwrap_or((Range::ONE, None))
}

/// The sets and lists extensions of cel-go.
fn list_extension(
    id: &str,
    target: Option<&Argument<'_>>,
    arguments: &[Argument<'_>],
) -> Option<CallEstimate> {
    let allocating = |factor: f64, size: Range| {
        let cost = size.scaled(factor).plus(Range::fixed(1 + CREATE_LIST));
        Some((cost, Some(size)))
    };
    let sort = |list: &Argument<'_>, keys: &Argument<'_>| {
        let text =
            matches!(&keys.node.ty, Type::List(t) if matches!(**t, Type::String | Type::Bytes));
        let size = list.size();
        allocating(if text { 2.0 + PER_CHAR } else { 2.0 }, size.times(size))
    };
    match (id, target, arguments) {
        ("list_sets_contains_list" | "list_sets_intersects_list", None, [a, b]) => {
            Some((a.size().times(b.size()).plus(Range::ONE), None))
        }
        ("list_sets_equivalent_list", None, [a, b]) => {
            let cost = a.size().times(b.size()).scaled(2.0);
            Some((cost.plus(Range::ONE), None))
        }
        ("list_slice", Some(list), [begin, end]) => {
            let end = end.literal_int().unwrap_or(list.size().max);
            let length = end.saturating_sub(begin.literal_int().unwrap_or(0));
            allocating(1.0, Range::fixed(length))
        }
        ("lists_range", None, [end]) => {
            allocating(1.0, Range::fixed(end.literal_int().unwrap_or(u64::MAX)))
        }
        ("list_reverse", Some(list), []) => allocating(1.0, list.size()),
        ("list_flatten", Some(list), []) => allocating(1.0, list.size()),
        ("list_flatten_int", Some(list), [depth]) => {
            let depth = depth.literal_int().unwrap_or(u64::MAX);
            allocating(depth as f64, list.size())
        }
        ("list_distinct", Some(list), []) => allocating(2.0, list.size().times(list.size())),
        (id, Some(list), []) if id.ends_with("_sort") => sort(list, list),
        (id, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => sort(keys, keys),
        _ => None,
    }
}

/// Whether a function costs the same for all arguments.
fn is_nominal(function: &str) -> bool {
    matches!(
        function,
        "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
    )
}

/// The cost of reading all elements of a list.
fn element_traversal(list: &Argument<'_>, declared: Declared<'_>) -> Range {
    let Some((element, size)) = list.element(declared) else {
        return list.size().scaled(PER_CHAR);
    };
    let mut element_cost = Range::ONE;
    if matches!(element, Type::String | Type::Bytes) {
        element_cost = element_cost.plus(size.scaled(PER_CHAR));
    }
    list.size().times(element_cost)
}

/// The functions of Kubernetes' libraries, and the functions of cel-go whose cost Kubernetes sets.
fn kubernetes(
    function: &str,
    id: &str,
    target: Option<&Argument<'_>>,
    arguments: &[Argument<'_>],
    declared: Declared<'_>,
) -> Option<CallEstimate> {
    let traversal = |size: Range| size.scaled(PER_CHAR);
    let first = arguments.first().map(Argument::size);
    if is_nominal(function) {
        return Some((Range::ONE, None));
    }
    match function {
        "check" => Some((Range::fixed(AUTHORIZATION_CHECK), None)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            Some((element_traversal(target?, declared), None))
        }
        "url" | "jsonpatch.escapeKey" => Some((traversal(first?), first)),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            let size = target?.size();
            Some((traversal(size), Some(size)))
        }
        "replace" => match arguments {
            [old, new, ..] => {
                let size = target?.size();
                let result = replaced_size(size, old.size(), new.size());
                Some((size.scaled(2.0 * PER_CHAR), Some(result)))
            }
            _ => None,
        },
        "split" => {
            let size = target?.size();
            let max = arguments.get(1).and_then(Argument::literal_int);
            let result = Range::up_to(max.unwrap_or(size.max));
            Some((size.scaled(2.0 * PER_CHAR), Some(result)))
        }
        "join" => {
            let size = joined_size(target?, arguments.first(), declared);
            Some((traversal(size), Some(size)))
        }
        "find" | "findAll" => {
            let size = target?.size();
            let text = traversal(size.plus(Range::ONE));
            let cost = text.times(first?.scaled(PER_PATTERN_CHAR));
            Some((cost, Some(Range::up_to(size.max))))
        }
        "ip" if id == "cidr_ip" => Some((Range::ONE, None)),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            Some((traversal(first?), None))
        }
        "ip.isCanonical" => Some((first?.scaled(2.0 * PER_CHAR), None)),
        "validate" => {
            let factor = FORMAT_PATTERN_CHARS * PER_PATTERN_CHAR;
            Some((traversal(first?).scaled(factor), None))
        }
        "containsIP" | "containsCIDR" => Some((contains_cost(function, id, first?), None)),
        "_==_" => match arguments {
            [a, b] if a.node.ty.is_same(&b.node.ty) => opaque_equality(a, b),
            _ => None,
        },
        _ => None,
    }
}

fn opaque_equality(a: &Argument<'_>, b: &Argument<'_>) -> Option<CallEstimate> {
    let Type::Opaque(name) = a.node.ty else {
        return None;
    };
    let max = match name {
        "kubernetes.NamedFormat" => scale(MAX_FORMAT_CHARS, PER_CHAR),
        "kubernetes.URL" => {
            let size = a.size.and(b.size).unwrap_or(Range::ONE);
            scale(size.max, PER_CHAR)
        }
        _ => 1,
    };
    Some((Range { min: 1, max }, None))
}

/// The size of a text after all `old` in it became `new`.
fn replaced_size(size: Range, old: Range, new: Range) -> Range {
    let divided = |n: u64, divisor: u64| (n as f64 / divisor as f64).ceil() as u64;
    // The longest result: an empty text is replaced between all characters; otherwise the
    // shortest text by the longest, unless that makes the result shorter.
    let (max_count, max_rest) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (divided(size.max, old.min), 0)
    };
    let (min_count, min_rest) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (divided(size.min, old.max), 0)
    };
    let count = Range {
        min: min_count,
        max: max_count,
    };
    let rest = Range {
        min: min_rest,
        max: max_rest,
    };
    count.times(new).plus(rest)
}

fn joined_size(
    list: &Argument<'_>,
    separator: Option<&Argument<'_>>,
    declared: Declared<'_>,
) -> Range {
    let count = list.size();
    let texts = list
        .element(declared)
        .map_or(Range::ZERO, |(_, size)| count.times(size));
    let Some(separator) = separator else {
        return texts;
    };
    let between = Range {
        min: count.min.saturating_sub(1),
        max: count.max.saturating_sub(1),
    };
    texts.plus(separator.size().times(between))
}

fn contains_cost(function: &str, id: &str, argument: Range) -> Range {
    // An address has 4 or 16 bytes.
    let bytes = Range { min: 4, max: 16 };
    let mut cost = bytes.plus(bytes).scaled(PER_CHAR);
    if function == "containsCIDR" {
        cost = cost.plus(bytes.scaled(PER_CHAR)).plus(Range::ONE);
    }
    if id.ends_with("_string") {
        cost = cost.plus(argument.scaled(PER_CHAR));
    }
    cost
}

/// The standard library.
fn standard(
    id: &str,
    target: Option<&Argument<'_>>,
    arguments: &[Argument<'_>],
) -> Option<CallEstimate> {
    let traversal = |size: Range| size.scaled(PER_CHAR);
    match (id, arguments) {
        ("string_format", _) => Some((traversal(target?.size()), None)),
        ("string_to_bytes", [text]) => {
            let size = text.size();
            let result = Range {
                min: size.min,
                max: size.max.saturating_mul(4),
            };
            Some((traversal(size), Some(result)))
        }
        ("bytes_to_string", [bytes]) => {
            let size = bytes.size();
            let result = Range {
                min: size.min / 4,
                max: size.max,
            };
            Some((traversal(size), Some(result)))
        }
        ("strings_quote", [text]) => {
            let size = text.size();
            let result = Range {
                min: size.min.saturating_add(2),
                max: size.max.saturating_mul(2).saturating_add(2),
            };
            Some((traversal(size), Some(result)))
        }
        ("starts_with_string" | "ends_with_string", [part]) => Some((traversal(part.size()), None)),
        ("in_list", [_, list]) => Some((list.size(), None)),
        ("matches_string", [pattern]) => {
            let text = traversal(target?.size().plus(Range::ONE));
            Some((text.times(pattern.size().scaled(PER_PATTERN_CHAR)), None))
        }
        ("contains_string", [part]) => {
            let text = traversal(target?.size());
            Some((text.times(traversal(part.size())), None))
        }
        ("add_string" | "add_bytes", [a, b]) => {
            let size = a.size().plus(b.size());
            Some((traversal(size), Some(size)))
        }
        ("add_list", [a, b]) => Some((Range::ONE, Some(a.size().plus(b.size())))),
        (id, [a, b]) if compares_sizes(id) => {
            let max = a.size().max.min(b.size().max);
            let range = Range {
                min: u64::from(max > 0),
                max,
            };
            Some((traversal(range), None))
        }
        _ => None,
    }
}

/// Whether the cost of an overload is that of reading the shorter operand.
pub(super) fn compares_sizes(id: &str) -> bool {
    let ordered = id.starts_with("less_") || id.starts_with("greater_");
    matches!(id, "equals" | "not_equals")
        || ordered && (id.ends_with("_string") || id.ends_with("_bytes"))
}
