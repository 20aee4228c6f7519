//! A set of field paths as a tree (`fieldpath.Set`).
//!
//! A path that ends in an inner node is a member beside the paths through that node, like
//! `.spec` beside `.spec.replicas`. Every node is a member or has members below it, and
//! nodes are sorted, so that operations on two sets are merges of sorted lists.

use std::cmp::Ordering;
use std::fmt;

use crate::path_element::{Path, PathElement, path_text};

/// A set of field paths.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<FieldSetNode>,
}

/// A path element with the set below it.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldSetNode {
    pub element: PathElement,
    /// Whether the path that ends here is in the set.
    pub is_member: bool,
    pub children: FieldSet,
}

impl FieldSetNode {
    pub(crate) fn leaf(element: PathElement) -> Self {
        Self {
            element,
            is_member: true,
            children: FieldSet::default(),
        }
    }

    /// `None` if no path of the set leads to or through the node.
    fn if_needed(element: &PathElement, is_member: bool, children: FieldSet) -> Option<Self> {
        (is_member || !children.is_empty()).then(|| Self {
            element: element.clone(),
            is_member,
            children,
        })
    }
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of paths.
    pub fn len(&self) -> usize {
        let sizes = self.nodes.iter();
        sizes
            .map(|n| usize::from(n.is_member) + n.children.len())
            .sum()
    }

    /// The nodes of the first level, sorted.
    pub fn nodes(&self) -> &[FieldSetNode] {
        &self.nodes
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|n| n.element.cmp(element))
    }

    /// The node of a child.
    pub fn node(&self, element: &PathElement) -> Option<&FieldSetNode> {
        self.position(element).ok().map(|index| &self.nodes[index])
    }

    /// The node of a field.
    pub(crate) fn field_node(&self, name: &str) -> Option<&FieldSetNode> {
        let index = self.nodes.binary_search_by(|n| match &n.element {
            PathElement::FieldName(field) => (**field).cmp(name),
            _ => Ordering::Greater,
        });
        index.ok().map(|index| &self.nodes[index])
    }

    /// Adds a path; the empty path is never a member.
    pub fn insert(&mut self, path: &Path) {
        let Some((element, rest)) = path.split_first() else {
            return;
        };
        let index = self.position(element).unwrap_or_else(|index| {
            let node = FieldSetNode {
                is_member: false,
                ..FieldSetNode::leaf(element.clone())
            };
            self.nodes.insert(index, node);
            index
        });
        let node = &mut self.nodes[index];
        if rest.is_empty() {
            node.is_member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Adds a node, which usually belongs behind all others; unites it with an equal one.
    pub(crate) fn push(&mut self, node: FieldSetNode) {
        if !node.is_member && node.children.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|l| l.element < node.element) {
            self.nodes.push(node);
            return;
        }
        match self.position(&node.element) {
            Ok(at) => {
                let old = &mut self.nodes[at];
                old.is_member |= node.is_member;
                old.children = old.children.union(&node.children);
            }
            Err(at) => self.nodes.insert(at, node),
        }
    }

    /// A set of nodes in any order; nodes of one element are united.
    pub(crate) fn from_nodes(mut nodes: Vec<FieldSetNode>) -> Self {
        nodes.retain(|n| n.is_member || !n.children.is_empty());
        if nodes.is_sorted_by(|a, b| a.element < b.element) {
            return Self { nodes };
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        let mut united_nodes: Vec<FieldSetNode> = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter().peekable();
        while let Some(mut node) = nodes.next() {
            let mut children = Vec::new();
            while let Some(next) = nodes.next_if(|next| next.element == node.element) {
                node.is_member |= next.is_member;
                children.extend(next.children.nodes);
            }
            if !children.is_empty() {
                children.append(&mut node.children.nodes);
                node.children = Self::from_nodes(children);
            }
            united_nodes.push(node);
        }
        Self {
            nodes: united_nodes,
        }
    }

    pub fn contains(&self, path: &Path) -> bool {
        let Some((element, rest)) = path.split_first() else {
            return false;
        };
        self.node(element).is_some_and(|node| match rest {
            [] => node.is_member,
            rest => node.children.contains(rest),
        })
    }

    /// Merges two sorted lists of nodes; `combine` gets the nodes of equal elements together.
    fn zip(
        &self,
        other: &Self,
        combine: impl Fn(Option<&FieldSetNode>, Option<&FieldSetNode>) -> Option<FieldSetNode>,
    ) -> Self {
        let (mut a, mut b) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        let mut nodes = Vec::new();
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let node_of_a = if order.is_le() { a.next() } else { None };
            let node_of_b = if order.is_ge() { b.next() } else { None };
            nodes.extend(combine(node_of_a, node_of_b));
        }
        Self { nodes }
    }

    /// The paths of either set.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => FieldSetNode::if_needed(
                &a.element,
                a.is_member || b.is_member,
                a.children.union(&b.children),
            ),
            (a, b) => a.or(b).cloned(),
        })
    }

    /// The paths of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return Self::default();
        }
        self.zip(other, |a, b| {
            let (a, b) = (a?, b?);
            FieldSetNode::if_needed(
                &a.element,
                a.is_member && b.is_member,
                a.children.intersection(&b.children),
            )
        })
    }

    /// The paths of this set that the other one does not contain.
    pub fn difference(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| {
            let a = a?;
            let Some(b) = b else {
                return Some(a.clone());
            };
            FieldSetNode::if_needed(
                &a.element,
                a.is_member && !b.is_member,
                a.children.difference(&b.children),
            )
        })
    }

    /// Like [`Self::difference`], but also removes the paths below the paths of the other set.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| {
            let a = a?;
            match b {
                None => Some(a.clone()),
                Some(b) if b.is_member => None,
                Some(b) => FieldSetNode::if_needed(
                    &a.element,
                    a.is_member,
                    a.children.recursive_difference(&b.children),
                ),
            }
        })
    }

    /// The paths through which no other path of the set goes.
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().filter_map(|node| {
            FieldSetNode::if_needed(
                &node.element,
                node.is_member && node.children.is_empty(),
                node.children.leaves(),
            )
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Calls `f` with every path, parents first.
    pub fn for_each_path(&self, f: &mut impl FnMut(&Path)) {
        self.visit(&mut Vec::new(), f);
    }

    fn visit(&self, prefix: &mut Vec<PathElement>, f: &mut impl FnMut(&Path)) {
        // The order of conflicts in Kubernetes: members of a level before those below.
        for node in self.nodes.iter().filter(|node| node.is_member) {
            prefix.push(node.element.clone());
            f(prefix);
            prefix.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.visit(prefix, f);
            prefix.pop();
        }
    }
}

/// Collects paths.
impl<P: AsRef<Path>> FromIterator<P> for FieldSet {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.as_ref());
        }
        set
    }
}

/// One path per line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.for_each_path(&mut |path| lines.push(path_text(path)));
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Debug for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.to_string().replace('\n', ", "))
    }
}
