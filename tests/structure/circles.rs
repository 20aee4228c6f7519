//! Files of a crate do not import each other, directly or through others.
//!
//! An import leads to the file that defines the item, through any re-exports. A
//! declaration `mod x;` and a re-export are no imports.

use std::collections::BTreeSet;

use crate::source::{SourceFile, read_all};

/// How many re-exports one name may go through.
const MAX_REEXPORTS: usize = 12;

#[test]
fn no_two_files_import_each_other() {
    let files = read_all();
    let edges: Vec<BTreeSet<usize>> = (0..files.len()).map(|at| imported(&files, at)).collect();
    let circles: Vec<Vec<&str>> = strongly_connected(&edges)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| {
            component
                .into_iter()
                .map(|f| files[f].path.as_str())
                .collect()
        })
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

/// The files that one file imports from.
fn imported(files: &[SourceFile], at: usize) -> BTreeSet<usize> {
    let file = &files[at];
    let declared = file.imports.iter().filter(|i| !i.is_reexport);
    let mut imports: BTreeSet<usize> = declared
        .filter_map(|import| resolve(files, at, &import.path, 0))
        .collect();
    for path in &file.paths {
        imports.extend(resolve(files, at, path, 0));
        // The first segment may be a module that an import brought in.
        let module = file.imports.iter().find(|i| i.alias == path[0]);
        if let Some(module) = module {
            let full = [&module.path[..], &path[1..]].concat();
            imports.extend(resolve(files, at, &full, 0));
        }
    }
    imports.remove(&at);
    imports
}

/// The file that defines what `path` names in the module of file `from`; None for what
/// another crate defines.
fn resolve(files: &[SourceFile], from: usize, path: &[String], reexports: usize) -> Option<usize> {
    if reexports > MAX_REEXPORTS {
        return None;
    }
    let (mut at, mut next) = match path.first()?.as_str() {
        "crate" => (crate_root(files, from), 1),
        "self" => (from, 1),
        "super" => (files[from].parent?, 1),
        first if files[from].modules.contains_key(first) => (from, 0),
        _ => return None,
    };
    while next < path.len() {
        let segment = path[next].as_str();
        if segment == "super" {
            at = files[at].parent?;
        } else if let Some(&module) = files[at].modules.get(segment) {
            at = module;
        } else if segment == "*" || files[at].items.contains(segment) {
            return Some(at);
        } else {
            return Some(reexported(files, at, &path[next..], reexports).unwrap_or(at));
        }
        next += 1;
    }
    Some(at)
}

/// Follows the imports of a file to where the first segment of `path` is defined.
fn reexported(files: &[SourceFile], at: usize, path: &[String], reexports: usize) -> Option<usize> {
    let imports = &files[at].imports;
    if let Some(import) = imports.iter().find(|i| i.alias == path[0]) {
        let full = [&import.path[..], &path[1..]].concat();
        return resolve(files, at, &full, reexports + 1);
    }
    let globs = imports.iter().filter(|i| i.alias == "*");
    let mut targets = globs.filter_map(|glob| {
        let full = [&glob.path[..glob.path.len() - 1], path].concat();
        let file = resolve(files, at, &full, reexports + 1)?;
        files[file].items.contains(&path[0]).then_some(file)
    });
    targets.next()
}

fn crate_root(files: &[SourceFile], mut at: usize) -> usize {
    while let Some(parent) = files[at].parent {
        at = parent;
    }
    at
}

/// Kosaraju's algorithm: the sets of files each of which reaches all others of its set.
fn strongly_connected(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut backward = vec![BTreeSet::new(); edges.len()];
    for (from, to) in edges.iter().enumerate() {
        for &to in to {
            backward[to].insert(from);
        }
    }
    let (mut order, mut visited) = (Vec::new(), vec![false; edges.len()]);
    for node in 0..edges.len() {
        visit(node, edges, &mut visited, &mut order);
    }
    let mut visited = vec![false; edges.len()];
    let mut components = Vec::new();
    for &node in order.iter().rev() {
        let mut component = Vec::new();
        visit(node, &backward, &mut visited, &mut component);
        component.sort_unstable();
        components.push(component);
    }
    components
}

/// Appends the nodes that can be reached from `node`, each after those it leads to.
fn visit(node: usize, edges: &[BTreeSet<usize>], visited: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut visited[node], true) {
        return;
    }
    for &next in &edges[node] {
        visit(next, edges, visited, order);
    }
    order.push(node);
}
