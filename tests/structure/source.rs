//! Reads source files into what the rules need: the tree of modules, the items and types
//! that each file defines, and the paths by which it refers to others.
//!
//! Works on tokens, so that text in comments and strings does not count and paths within
//! macro calls do. An inline module counts as part of its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{root, source_paths};

/// A name that a `use` declaration brings into a file.
pub(crate) struct Import {
    /// Whether the declaration is `pub use`, and so a re-export.
    pub(crate) is_reexport: bool,
    /// Segments from `crate`, `self`, `super`, a module or an extern crate on; the last is `*` for a glob.
    pub(crate) path: Vec<String>,
    /// The name in this file.
    pub(crate) alias: String,
}

/// One source file of a crate or of a test binary.
#[derive(Default)]
pub(crate) struct SourceFile {
    /// Path from the repository's root.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The file that declares this one as its module.
    pub(crate) parent: Option<usize>,
    /// Modules that this file declares: name and file.
    pub(crate) modules: BTreeMap<String, usize>,
    /// Names of the items at module level.
    pub(crate) items: BTreeSet<String>,
    pub(crate) functions: BTreeSet<String>,
    pub(crate) constants: BTreeSet<String>,
    /// Names that `let`, `for`, closures and the arms of `match` bind.
    pub(crate) locals: BTreeSet<String>,
    /// Names of types, traits and aliases at module level.
    pub(crate) types: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of at least two segments in expressions, types and macro calls.
    pub(crate) paths: BTreeSet<Vec<String>>,
    declared: Vec<ModuleDeclaration>,
}

struct ModuleDeclaration {
    name: String,
    /// The `#[path]` attribute.
    path: Option<String>,
}

/// Reads every source file of the workspace and links modules to their parents.
pub(crate) fn read_all() -> Vec<SourceFile> {
    let root = root();
    let mut files: Vec<SourceFile> = source_paths()
        .iter()
        .map(|path| read(path, &root))
        .collect();
    let index: BTreeMap<String, usize> = files
        .iter()
        .enumerate()
        .map(|(at, file)| (file.path.clone(), at))
        .collect();
    for at in 0..files.len() {
        for declaration in std::mem::take(&mut files[at].declared) {
            let candidates = module_paths(&files[at].path, &declaration);
            if let Some(&child) = candidates.iter().find_map(|path| index.get(path)) {
                files[at].modules.insert(declaration.name, child);
                files[child].parent = Some(at);
            }
        }
    }
    files
}

/// The paths at which the file of a declared module may lie.
fn module_paths(declaring: &str, declaration: &ModuleDeclaration) -> Vec<String> {
    let declaring = Path::new(declaring);
    let folder = declaring.parent().unwrap();
    if let Some(path) = &declaration.path {
        return vec![folder.join(path).display().to_string()];
    }
    let stem = declaring.file_stem().unwrap().to_str().unwrap();
    let own = folder.join(stem);
    // A crate's root and `mod.rs` own their folder, other files one of their name, which may
    // have modules of the same names.
    [own, folder.to_path_buf()]
        .iter()
        .flat_map(|dir| {
            let name = &declaration.name;
            [
                dir.join(format!("{name}.rs")),
                dir.join(name).join("mod.rs"),
            ]
        })
        .filter(|path| path != declaring)
        .map(|path: PathBuf| path.display().to_string())
        .collect()
}

fn read(path: &Path, root: &Path) -> SourceFile {
    let text = std::fs::read_to_string(path).unwrap();
    let tokens: TokenStream = text
        .parse()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut file = SourceFile {
        path: path.strip_prefix(root).unwrap().display().to_string(),
        text,
        ..SourceFile::default()
    };
    file.read_tokens(tokens, 0, true);
    file
}

impl SourceFile {
    /// Reads one level of tokens. `depth` counts the inline modules around it;
    /// `module_level` is false within bodies and argument lists.
    fn read_tokens(&mut self, tokens: TokenStream, depth: usize, module_level: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        self.add_closure_parameters(&tokens);
        self.add_arms(&tokens);
        let mut visible = false;
        let mut path_attribute = None;
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    path_attribute = path_value(group.stream()).or(path_attribute);
                    self.read_tokens(group.stream(), depth, false);
                }
                TokenTree::Ident(ident) => {
                    let word = ident.to_string();
                    let next = tokens.get(at + 1);
                    // `'static` is a lifetime.
                    let is_item = is_item_keyword(&word) && !is_punct(tokens[..at].last(), '\'');
                    let name = identifier(next).filter(|_| is_item);
                    match (word.as_str(), name) {
                        ("let", _) => self.add_locals(&tokens[at + 1..]),
                        ("for", _) => self.add_locals(loop_pattern(&tokens[at + 1..])),
                        ("pub", _) => visible = true,
                        ("use", _) if starts_statement(&tokens, at) => {
                            let end = at + position_of(&tokens[at..], ';');
                            self.add_imports(&tokens[at + 1..end], depth, visible);
                            (visible, at) = (false, end);
                        }
                        ("mod", Some(name)) => {
                            let path = path_attribute.take();
                            at += self.read_module(name, path, tokens.get(at + 2), depth);
                            visible = false;
                        }
                        (_, Some(name)) => {
                            self.add_item(&word, name, module_level);
                            (visible, at) = (false, at + 1);
                        }
                        _ => at += self.add_path(&tokens[at..], depth),
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads `mod NAME;` or `mod NAME { … }`; returns how many further tokens that took.
    fn read_module(
        &mut self,
        name: String,
        path: Option<String>,
        body: Option<&TokenTree>,
        depth: usize,
    ) -> usize {
        match body {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                self.read_tokens(group.stream(), depth + 1, true);
                2
            }
            _ => {
                self.declared.push(ModuleDeclaration { name, path });
                1
            }
        }
    }

    fn add_item(&mut self, keyword: &str, name: String, module_level: bool) {
        match keyword {
            "fn" => drop(self.functions.insert(name.clone())),
            "const" | "static" => drop(self.constants.insert(name.clone())),
            _ if module_level => drop(self.types.insert(name.clone())),
            _ => {}
        }
        if module_level {
            self.items.insert(name);
        }
    }

    /// Adds the names of the pattern that follows `let`, up to its type or value.
    fn add_locals(&mut self, pattern: &[TokenTree]) {
        for (at, token) in pattern.iter().enumerate() {
            match token {
                _ if is_path_separator(pattern, at)
                    || at > 0 && is_path_separator(pattern, at - 1) => {}
                TokenTree::Punct(punct) if matches!(punct.as_char(), '=' | ':' | ';') => break,
                TokenTree::Ident(ident) => drop(self.locals.insert(ident.to_string())),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|t| is_punct(Some(t), ',')) {
                        self.add_locals(part);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Adds the parameters of the closures in one level of tokens. A bar begins a closure where no
    /// operand stands before it: at the start, or after a punctuation or a keyword.
    fn add_closure_parameters(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            if !is_punct(tokens.get(at), '|') || !begins_expression(tokens[..at].last()) {
                at += 1;
                continue;
            }
            let length = position_of(&tokens[at + 1..], '|');
            let parameters = &tokens[at + 1..at + 1 + length];
            for parameter in parameters.split(|t| is_punct(Some(t), ',')) {
                self.add_locals(parameter);
            }
            at += length + 2;
        }
    }

    /// Adds the names that the patterns before `=>` bind. A pattern begins after the comma or the
    /// block of the arm before it, and ends at `if`.
    fn add_arms(&mut self, tokens: &[TokenTree]) {
        let arrows = (0..tokens.len().saturating_sub(1))
            .filter(|&at| is_punct(tokens.get(at), '=') && is_punct(tokens.get(at + 1), '>'));
        for arrow in arrows {
            let is_start = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                other => is_punct(Some(other), ',') || is_punct(Some(other), ';'),
            };
            // The braces right before the arrow are those of a pattern.
            let end = arrow.saturating_sub(1);
            let start = tokens[..end].iter().rposition(is_start);
            let pattern = &tokens[start.map_or(0, |at| at + 1)..arrow];
            let guard = pattern.iter().position(|token| is_word(token, "if"));
            self.add_locals(&pattern[..guard.unwrap_or(pattern.len())]);
        }
    }

    fn add_imports(&mut self, tree: &[TokenTree], depth: usize, is_reexport: bool) {
        for (path, alias) in use_paths(Vec::new(), tree) {
            if let Some(path) = from_file(path, depth) {
                self.imports.push(Import {
                    is_reexport,
                    path,
                    alias,
                });
            }
        }
    }

    /// Adds the path that begins at the first token, if one does; returns how many
    /// further tokens it took.
    fn add_path(&mut self, tokens: &[TokenTree], depth: usize) -> usize {
        let mut path = vec![identifier(tokens.first()).unwrap_or_default()];
        let mut at = 1;
        while is_path_separator(tokens, at) {
            let Some(segment) = identifier(tokens.get(at + 2)) else {
                break;
            };
            path.push(segment);
            at += 3;
        }
        if path.len() > 1
            && let Some(path) = from_file(path, depth)
        {
            self.paths.insert(path);
        }
        at - 1
    }
}

fn is_item_keyword(word: &str) -> bool {
    [
        "fn", "struct", "enum", "trait", "type", "union", "const", "static", "mod",
    ]
    .contains(&word)
}

/// `use` is also the word for captured types (`impl Trait + use<'a>`).
fn starts_statement(tokens: &[TokenTree], at: usize) -> bool {
    !matches!(tokens.get(at + 1), Some(TokenTree::Punct(p)) if p.as_char() == '<')
}

fn identifier(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, punct: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == punct)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

/// Whether an expression, and no operator, can stand after a token.
fn begins_expression(before: Option<&TokenTree>) -> bool {
    match before {
        None => true,
        Some(TokenTree::Punct(punct)) => !matches!(punct.as_char(), '?' | '|'),
        Some(token) => ["move", "return", "else"]
            .iter()
            .any(|word| is_word(token, word)),
    }
}

/// The pattern of a loop; nothing where `for` belongs to an `impl` or to a bound.
fn loop_pattern(tokens: &[TokenTree]) -> &[TokenTree] {
    let end = tokens.iter().position(|token| {
        is_word(token, "in")
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    });
    match end {
        Some(end) if is_word(&tokens[end], "in") => &tokens[..end],
        _ => &[],
    }
}

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn position_of(tokens: &[TokenTree], punct: char) -> usize {
    let end = tokens.iter().position(|t| is_punct(Some(t), punct));
    end.unwrap_or(tokens.len())
}

/// The file of an attribute `path = "…"`.
fn path_value(attribute: TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    if identifier(tokens.first()).as_deref() != Some("path") || !is_punct(tokens.get(1), '=') {
        return None;
    }
    Some(tokens.get(2)?.to_string().trim_matches('"').to_owned())
}

/// Every path of a tree of imports, with the name it gets.
fn use_paths(prefix: Vec<String>, tree: &[TokenTree]) -> Vec<(Vec<String>, String)> {
    let mut path = prefix;
    let mut at = 0;
    while at < tree.len() {
        match &tree[at] {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let branches = inner.split(|t| is_punct(Some(t), ','));
                return branches
                    .filter(|branch| !branch.is_empty())
                    .flat_map(|branch| use_paths(path.clone(), branch))
                    .collect();
            }
            TokenTree::Ident(ident) if ident == "as" => {
                let alias = identifier(tree.get(at + 1)).unwrap_or_default();
                return vec![(path, alias)];
            }
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
            _ => {}
        }
        at += 1;
    }
    // `use module::{self}` imports the module.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let alias = path.last().cloned().unwrap_or_default();
    vec![(path, alias)]
}

/// The path as the file's own module sees it: `depth` inline modules up. None where it
/// stays within the file.
fn from_file(mut path: Vec<String>, depth: usize) -> Option<Vec<String>> {
    if depth == 0 {
        return Some(path);
    }
    let up = path.iter().take_while(|s| *s == "super").count();
    match path[0].as_str() {
        "self" => None,
        "super" if up < depth => None,
        "super" => {
            path.drain(..depth);
            if path[0] != "super" {
                path.insert(0, "self".to_owned());
            }
            Some(path)
        }
        _ => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locals_are_those_of_every_kind_of_pattern() {
        let text = "fn f(p: u8) {
            let (a, b): (u8, u8) = all.map(|c| c).and_then(move |&(d, e), _: &[u8]| d | e);
            for (g, h) in list { h || g; }
            match value { Some(i) if i > j => k, Shape { l } | Line(l, ..) => {} m => n | o }
        }
        impl Trait for Type {}";
        let mut file = SourceFile::default();
        file.read_tokens(text.parse().unwrap(), 0, true);
        let names = file.locals.iter().filter(|name| name.len() == 1);
        let names: Vec<&str> = names.map(String::as_str).collect();
        let bound = ["_", "a", "b", "c", "d", "e", "g", "h", "i", "l", "m"];
        assert_eq!(names, bound);
    }
}
