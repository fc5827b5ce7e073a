//! Modules that import each other in a circle.
//!
//! The modules side by side in one folder are compared, each with all that is below it. One imports another when it
//! names something that is defined there, by `use` or by a path in its code; a name that a third hands on by `pub use`
//! belongs to the module that defines it. What the head of the folder defines is everybody's, and the head may name what
//! is below. Two neighbours may need each other; three or more that do can only be understood together.
//!
//! What a macro is given is not looked at, methods that a type has in another module than its own are not seen, and
//! neither are tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::visit::Visit;

use super::shape::{entries, read};

/// The names of the modules from the crate's root to one, or to an item in it.
type Place = Vec<String>;
/// Who imports whom, and by which names. Only neighbours do.
type Graph = BTreeMap<Place, BTreeMap<Place, BTreeSet<String>>>;

/// Each circle of more than two neighbours, in the sources of the crates and of `xtask`.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut crates = entries(&root.join("crates"))?;
    crates.push(root.join("xtask"));
    for member in crates {
        let sources = member.join("src");
        for head in ["lib.rs", "main.rs"] {
            let head = sources.join(head);
            if head.is_file() {
                let mut house = House::default();
                house.enter(&head, &sources, Vec::new())?;
                let graph = house.graph();
                let folder = sources.strip_prefix(root).unwrap_or(&sources).display();
                let told = circles(&graph)
                    .into_iter()
                    .map(|circle| format!("{folder}: {}", told(&circle, &graph)));
                faults.extend(told);
            }
        }
    }
    Ok(faults)
}

/// A crate: its modules by their place.
#[derive(Default)]
struct House {
    modules: BTreeMap<Place, Module>,
}

#[derive(Default)]
struct Module {
    /// What is defined here, but for modules.
    items: BTreeSet<String>,
    /// Names that stand for something defined elsewhere.
    names: BTreeMap<String, Place>,
    /// Modules of which all names are known here.
    all_of: Vec<Place>,
    /// Paths as they are written, and whether in code, not in a `use`.
    paths: Vec<(Place, bool)>,
}

impl House {
    /// Reads the module of a file, and the modules below it.
    fn enter(&mut self, file: &Path, below: &Path, place: Place) -> Result<()> {
        let text = read(file)?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        self.module(parsed.items, file, below, place)
    }

    fn module(
        &mut self,
        items: Vec<syn::Item>,
        file: &Path,
        below: &Path,
        place: Place,
    ) -> Result<()> {
        let mut module = Module::default();
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            match item {
                syn::Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let mut inside = place.clone();
                    inside.push(name.clone());
                    let directory = below.join(&name);
                    if let Some((_, items)) = inner.content {
                        self.module(items, file, &directory, inside)?;
                    } else {
                        let flat = below.join(format!("{name}.rs"));
                        let deep = directory.join("mod.rs");
                        let Some(file) = [flat, deep].into_iter().find(|file| file.is_file())
                        else {
                            bail!("{}: there is no file for mod {name}", file.display());
                        };
                        self.enter(&file, &directory, inside)?;
                    }
                }
                syn::Item::Use(item) => {
                    module.imported(&item.tree, &mut Vec::new());
                }
                item => {
                    module.items.extend(name_of(&item));
                    Written(&mut module).visit_item(&item);
                }
            }
        }
        self.modules.insert(place, module);
        Ok(())
    }

    /// The module in which what a path names is defined, if that is in this crate. The path is seen from a module.
    fn home_of(&self, place: &[String], path: &[String], depth: usize) -> Option<Place> {
        const DEEPEST: usize = 16;
        let module = self.modules.get(place).filter(|_| depth < DEEPEST)?;
        let Some((first, rest)) = path.split_first() else { return Some(place.to_vec()) };
        match first.as_str() {
            "crate" => return self.home_of(&[], rest, depth + 1),
            "self" => return self.home_of(place, rest, depth + 1),
            "super" => return self.home_of(place.split_last()?.1, rest, depth + 1),
            _ => {}
        }
        if module.items.contains(first) {
            return Some(place.to_vec());
        }
        let inside = [place, &path[..1]].concat();
        if self.modules.contains_key(&inside) {
            return self.home_of(&inside, rest, depth + 1);
        }
        if let Some(named) = module.names.get(first) {
            // A name that stands for itself comes from another crate.
            let is_ours = named != &path[..1];
            return is_ours
                .then(|| self.home_of(place, &[named, rest].concat(), depth + 1))
                .flatten();
        }
        let mut of_all = module.all_of.iter().filter(|all| *all != &path[..1]);
        of_all.find_map(|all| self.home_of(place, &[all.as_slice(), path].concat(), depth + 1))
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (place, module) in &self.modules {
            for (path, is_in_code) in &module.paths {
                let is_a_module = |home: &Place| path.len() == 1 && home.last() == path.last();
                // One word in code that is a module's name, too, is a variable.
                let home =
                    self.home_of(place, path, 0).filter(|home| !(*is_in_code && is_a_module(home)));
                let Some((one, other)) = home.and_then(|home| neighbours(place, &home)) else {
                    continue;
                };
                graph.entry(other.clone()).or_default();
                let name = path.last().cloned().unwrap_or_default();
                graph.entry(one).or_default().entry(other).or_default().insert(name);
            }
        }
        graph
    }
}

/// Where the ways to two modules part; nothing if one is below the other.
fn neighbours(one: &[String], other: &[String]) -> Option<(Place, Place)> {
    let together = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    Some((one.get(..=together)?.to_vec(), other.get(..=together)?.to_vec()))
}

impl Module {
    fn imported(&mut self, tree: &syn::UseTree, before: &mut Place) {
        let mut leaf = |name: &syn::Ident, known_as: &syn::Ident| {
            let mut path = before.clone();
            if name != "self" {
                path.push(name.to_string());
            }
            let known_as =
                if known_as == "self" { path.last().cloned() } else { Some(known_as.to_string()) };
            self.names.extend(known_as.map(|known_as| (known_as, path.clone())));
            self.paths.push((path, false));
        };
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.imported(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => leaf(&name.ident, &name.ident),
            syn::UseTree::Rename(renamed) => leaf(&renamed.ident, &renamed.rename),
            syn::UseTree::Glob(_) => self.all_of.push(before.clone()),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.imported(tree, before);
                }
            }
        }
    }
}

/// Notes the paths of a module's code.
struct Written<'module>(&'module mut Module);

impl<'code> Visit<'code> for Written<'_> {
    fn visit_path(&mut self, path: &'code syn::Path) {
        if path.leading_colon.is_none() {
            let path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.0.paths.push((path, true));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'code syn::ItemUse) {
        self.0.imported(&item.tree, &mut Vec::new());
    }

    fn visit_item_fn(&mut self, item: &'code syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'code syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && is_test(list))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Sets of neighbours that reach each other, where one can come back to itself by way of two others.
fn circles(graph: &Graph) -> Vec<BTreeSet<&Place>> {
    let reached: BTreeMap<&Place, BTreeSet<&Place>> =
        graph.keys().map(|one| (one, reached(graph, one))).collect();
    let mut found: Vec<BTreeSet<&Place>> = Vec::new();
    for (one, others) in &reached {
        let reach_it =
            |other: &&&Place| reached.get(**other).is_some_and(|back| back.contains(one));
        let together: BTreeSet<&Place> = others.iter().filter(reach_it).copied().collect();
        let pairs: BTreeSet<(&Place, &Place)> = imports_among(&together, graph)
            .map(|(one, other, _)| if one < other { (one, other) } else { (other, one) })
            .collect();
        // Modules that are joined by pairs alone make a tree, which has a pair fewer than modules.
        if together.len() > 2 && pairs.len() >= together.len() && !found.contains(&together) {
            found.push(together);
        }
    }
    found
}

/// What imports lead to from one module, in one step or more.
fn reached<'graph>(graph: &'graph Graph, from: &'graph Place) -> BTreeSet<&'graph Place> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(one) = ahead.pop() {
        let nexts = graph.get(one).into_iter().flat_map(BTreeMap::keys);
        ahead.extend(nexts.filter(|next| reached.insert(*next)));
    }
    reached
}

fn imports_among<'graph>(
    modules: &'graph BTreeSet<&'graph Place>,
    graph: &'graph Graph,
) -> impl Iterator<Item = (&'graph Place, &'graph Place, &'graph BTreeSet<String>)> {
    modules.iter().flat_map(move |one| {
        let imports = graph.get(*one).into_iter().flatten();
        imports
            .map(move |(other, names)| (*one, other, names))
            .filter(|(_, other, _)| modules.contains(other))
    })
}

fn told(circle: &BTreeSet<&Place>, graph: &Graph) -> String {
    let mut lines =
        vec![format!("{} modules import each other in a circle; two may:", circle.len())];
    for (one, other, names) in imports_among(circle, graph) {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        lines.push(format!("    {} imports {}: {names}", one.join("::"), other.join("::")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files.
    fn found(test: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = std::env::temp_dir().join(format!("circles-{}-{test}", std::process::id()));
        for (name, text) in files {
            let file = directory.join(name);
            std::fs::create_dir_all(file.parent().expect("in a directory")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        let mut house = House::default();
        house.enter(&directory.join("lib.rs"), &directory, Vec::new()).expect("read");
        let graph = house.graph();
        let found = circles(&graph)
            .iter()
            .map(|circle| circle.iter().map(|place| place.join("::")).collect())
            .collect();
        std::fs::remove_dir_all(&directory).expect("removed");
        found
    }

    #[test]
    fn three_modules_in_a_circle_are_found_through_what_hands_names_on() {
        let head = ("lib.rs", "mod a; mod b; mod c; pub use b::B;");
        let a = ("a.rs", "use crate::B; pub struct A(B);");
        let b = ("b.rs", "pub struct B; fn f() { crate::c::go(); }");
        let c = ("c.rs", "use super::a; pub fn go() { let _: Option<a::A> = None; }");
        assert_eq!(found("through", &[head, a, b, c]), [["a", "b", "c"]]);
    }

    #[test]
    fn pairs_are_allowed_and_so_are_tests_and_tables_of_contents() {
        let head = ("lib.rs", "mod a; mod b; mod deep; pub use deep::Deep; pub struct Top;");
        let a = (
            "a.rs",
            "use crate::b::B; pub struct A; #[cfg(test)] mod tests { use crate::deep::Deep; }",
        );
        let b = ("b.rs", "use crate::a::A; pub struct B(A);");
        let deep = (
            "deep.rs",
            "mod inner; use crate::a::A; use crate::Top; pub struct Deep(A, inner::Inner);",
        );
        let inner = ("deep/inner.rs", "use super::Deep; pub struct Inner;");
        assert_eq!(found("pairs", &[head, a, b, deep, inner]), Vec::<Vec<String>>::new());
    }

    #[test]
    fn all_names_of_a_module_lead_to_their_files() {
        let head = ("lib.rs", "mod a; mod b; mod c; mod d;");
        let a = ("a.rs", "use crate::d::*; pub struct A(B);");
        let b = ("b.rs", "pub struct B(crate::c::C);");
        let c = ("c.rs", "pub struct C(crate::a::A);");
        let d = ("d.rs", "pub use crate::b::B;");
        assert_eq!(found("names", &[head, a, b, c, d]), [["a", "b", "c"]]);
    }
}
