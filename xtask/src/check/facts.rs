//! Extracts from a Rust file the lists of functions, names and attributes that the rules check.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A position in a file. Lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    /// Whether it is inside an item that is compiled only for tests.
    pub(super) test: bool,
    /// Number of inline modules around it.
    pub(super) inline: usize,
}

/// A name that a `use` imports.
pub(super) struct Import {
    /// Its name in this file.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) at: Place,
}

/// A function with a body.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) at: Place,
    /// Number of lines from its signature to its closing brace, both included.
    pub(super) lines: usize,
}

/// A use of `unsafe`.
pub(super) struct Unsafe {
    pub(super) at: Place,
    /// The first line of the statement or item around it; the SAFETY comment may be above that line.
    pub(super) statement_line: usize,
    /// Whether it is an `unsafe fn`, which needs a `# Safety` section instead of a SAFETY comment.
    pub(super) function: bool,
}

/// Everything that the rules check of a file.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) functions: Vec<Function>,
    pub(super) unsafes: Vec<Unsafe>,
    /// Paths as written or imported, `a::b::c`; a method call is `.name`, a macro call `name!`.
    pub(super) names: Vec<(String, Place)>,
    pub(super) imports: Vec<Import>,
    /// Static values: the name, and the type's own name without its parameters.
    pub(super) statics: Vec<(String, String, Place)>,
    /// Attributes without `#[]` and without spaces.
    pub(super) attributes: Vec<(String, Place)>,
    /// Modules in separate files that are compiled only for tests.
    pub(super) test_modules: Vec<String>,
    /// The line of the first item that is compiled only for tests.
    pub(super) tests_from: Option<usize>,
    pub(super) lines: Vec<String>,
}

impl Facts {
    /// Parses a file.
    pub(super) fn of(text: &str) -> Result<Self, syn::Error> {
        let file = syn::parse_file(text)?;
        let facts = Self { lines: text.lines().map(str::to_owned).collect(), ..Self::default() };
        let mut walk = Walk { facts, test: is_test(&file.attrs), inline: 0, statement_line: 0 };
        walk.visit_file(&file);
        Ok(walk.facts)
    }

    /// The text of a line, without its indentation; empty beyond either end.
    pub(super) fn line(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|index| self.lines.get(index)).map_or("", |line| line.trim())
    }

    /// The comment and attribute lines directly above `line`, lowest first.
    pub(super) fn remarks_above(&self, line: usize) -> impl Iterator<Item = &str> {
        (1..line)
            .rev()
            .map(|number| self.line(number))
            .take_while(|text| ["//", "#[", "#![", "/*", "*"].iter().any(|start| text.starts_with(start)))
    }
}

struct Walk {
    facts: Facts,
    test: bool,
    inline: usize,
    statement_line: usize,
}

impl Walk {
    fn at(&self, line: usize) -> Place {
        Place { line, test: self.test, inline: self.inline }
    }

    /// Runs `visit` with the test mark that `attributes` adds.
    fn within(&mut self, attributes: &[syn::Attribute], line: usize, visit: impl FnOnce(&mut Self)) {
        let before = self.test;
        if is_test(attributes) {
            self.test = true;
            self.facts.tests_from.get_or_insert(line);
        }
        visit(self);
        self.test = before;
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (start, end) = (line_of(signature), block.span().end().line);
        let lines = end + 1 - start;
        self.facts.functions.push(Function { name: signature.ident.to_string(), at: self.at(start), lines });
    }

    fn unsafe_at(&mut self, line: usize, statement_line: usize, function: bool) {
        let at = self.at(line);
        self.facts.unsafes.push(Unsafe { at, statement_line, function });
    }

    /// Flattens `use a::{b, c::d as e}` into the paths it names.
    fn import(&mut self, prefix: &str, tree: &syn::UseTree) {
        let join = |name: &syn::Ident| {
            if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") }
        };
        let (path, name, ident) = match tree {
            syn::UseTree::Path(path) => return self.import(&join(&path.ident), &path.tree),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.import(prefix, item));
            }
            syn::UseTree::Name(name) => (join(&name.ident), name.ident.to_string(), name.ident.span()),
            syn::UseTree::Rename(rename) => {
                (join(&rename.ident), rename.rename.to_string(), rename.ident.span())
            }
            syn::UseTree::Glob(glob) => (format!("{prefix}::*"), "*".to_owned(), glob.span()),
        };
        let path = path.strip_suffix("::self").unwrap_or(&path).to_owned();
        let name = if name == "self" { last_of(&path).to_owned() } else { name };
        let at = self.at(ident.start().line);
        self.facts.names.push((path.clone(), at));
        self.facts.imports.push(Import { name, path, at });
    }

    /// Looks for the same items in a macro's arguments, which are tokens rather than syntax.
    fn tokens(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut index = 0;
        while index < trees.len() {
            let line = trees[index].span().start().line;
            match &trees[index] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "unsafe" => {
                    let block = matches!(trees.get(index + 1), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace);
                    if block {
                        self.unsafe_at(line, line, false);
                    }
                }
                TokenTree::Ident(_) => {
                    let before = index.checked_sub(1).map(|before| &trees[before]);
                    let (name, next) = spelled_path(&trees, index);
                    let name = match (before, trees.get(next)) {
                        (Some(dot), Some(TokenTree::Group(_))) if is_punct(dot, '.') => format!(".{name}"),
                        (_, Some(bang)) if is_punct(bang, '!') => format!("{name}!"),
                        _ => name,
                    };
                    let at = self.at(line);
                    self.facts.names.push((name, at));
                    index = next;
                    continue;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            index += 1;
        }
    }
}

/// The path that begins at `start`, and the index after it.
fn spelled_path(trees: &[TokenTree], start: usize) -> (String, usize) {
    let mut name = trees[start].to_string();
    let mut next = start + 1;
    while let [colon, other, TokenTree::Ident(segment), ..] = &trees[next..] {
        if !matches!(colon, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint)
            || !is_punct(other, ':')
        {
            break;
        }
        name = format!("{name}::{segment}");
        next += 3;
    }
    (name, next)
}

/// The last segment of a path.
fn last_of(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

fn is_punct(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The line on which `node` begins.
fn line_of(node: &impl Spanned) -> usize {
    node.span().start().line
}

/// Whether one of the attributes restricts an item to tests: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = spell(attribute.path());
        let inside = || match &attribute.meta {
            syn::Meta::List(list) => {
                let words: String = list.tokens.to_string().split_whitespace().collect();
                !words.contains("not(test")
                    && words.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
            }
            _ => false,
        };
        path.rsplit("::").next() == Some("test") || (path == "cfg" && inside())
    })
}

fn spell(path: &syn::Path) -> String {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item::{
        Const, Enum, ExternCrate, Fn, ForeignMod, Impl, Macro, Mod, Static, Struct, Trait, Type, Union, Use,
    };
    match item {
        Const(item) => &item.attrs,
        Enum(item) => &item.attrs,
        ExternCrate(item) => &item.attrs,
        Fn(item) => &item.attrs,
        ForeignMod(item) => &item.attrs,
        Impl(item) => &item.attrs,
        Macro(item) => &item.attrs,
        Mod(item) => &item.attrs,
        Static(item) => &item.attrs,
        Struct(item) => &item.attrs,
        Trait(item) => &item.attrs,
        Type(item) => &item.attrs,
        Union(item) => &item.attrs,
        Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let line = line_of(item);
        let before = std::mem::replace(&mut self.statement_line, line);
        self.within(attributes_of(item), line, |walk| visit::visit_item(walk, item));
        self.statement_line = before;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if self.test && item.content.is_none() {
            self.facts.test_modules.push(item.ident.to_string());
        }
        let inside = usize::from(item.content.is_some());
        self.inline += inside;
        visit::visit_item_mod(self, item);
        self.inline -= inside;
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if let syn::Type::Path(of) = &*item.ty
            && let Some(last) = of.path.segments.last()
        {
            let at = self.at(line_of(&item.ident));
            self.facts.statics.push((item.ident.to_string(), last.ident.to_string(), at));
        }
        visit::visit_item_static(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import("", &item.tree);
        visit::visit_item_use(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.sig.unsafety.is_some() {
            self.unsafe_at(line_of(&item.sig), line_of(item), true);
        }
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(keyword) = &item.unsafety {
            self.unsafe_at(line_of(keyword), line_of(item), false);
        }
        // The contract of a trait's `unsafe fn` is in the trait; here only functions of inherent impls count.
        for function in &item.items {
            if let (None, syn::ImplItem::Fn(function)) = (&item.trait_, function)
                && function.sig.unsafety.is_some()
            {
                self.unsafe_at(line_of(&function.sig), line_of(function), true);
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let line = line_of(item);
        self.within(&item.attrs, line, |walk| {
            walk.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(walk, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let before = std::mem::replace(&mut self.statement_line, line_of(statement));
        visit::visit_stmt(self, statement);
        self.statement_line = before;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_at(line_of(&block.unsafe_token), self.statement_line, false);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let at = self.at(line_of(&call.method));
        self.facts.names.push((format!(".{}", call.method), at));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let at = self.at(line_of(path));
        self.facts.names.push((spell(path), at));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let at = self.at(line_of(call));
        self.facts.names.push((format!("{}!", spell(&call.path)), at));
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let text: String = match &attribute.meta {
            syn::Meta::Path(path) => spell(path),
            syn::Meta::List(list) => format!("{}({})", spell(&list.path), list.tokens),
            // Doc comments are many, and no rule needs them.
            syn::Meta::NameValue(pair) => spell(&pair.path),
        };
        let at = self.at(line_of(attribute));
        self.facts.attributes.push((text.split_whitespace().collect(), at));
    }
}
