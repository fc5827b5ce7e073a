//! A site of all documents that is read without a network: each page of Markdown becomes one of HTML, with links to the
//! others. A link that leads nowhere is a fault: a test of this module looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use steadfast_rig::workspace;

const USAGE: &str = "usage: cargo xtask site [DIR]

  DIR  where it is written (target/site); index.html is its first page";

/// Pages beside those of `docs`.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
const FIRST_PAGE: &str = "docs/index.md";

const STYLE: &str = "body{max-width:56em;margin:1em auto;padding:0 1em;font:16px/1.5 sans-serif;color:#222;background:#fff}
nav{border-bottom:1px solid #ccc;padding-bottom:.5em}
pre{background:#f4f4f4;padding:.7em;overflow-x:auto}code{font-size:90%}
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #ccc;padding:.2em .5em;vertical-align:top}
img{max-width:100%}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#282828}a{color:#8bf}}";

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = workspace::root()?;
    let site = match args {
        [] => {
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
            root.join(target).join("site")
        }
        [directory] if !directory.starts_with('-') => PathBuf::from(directory),
        _ => bail!("{USAGE}"),
    };
    let pages = pages(root)?;
    let faults = faults(root, &pages);
    if !faults.is_empty() {
        bail!("links lead nowhere:\n{}", faults.join("\n"));
    }
    for page in &pages {
        put(&site.join(page.path.with_extension("html")), page.html(&pages).as_bytes())?;
        for link in page.links.iter().filter_map(|link| Link::parse(&page.path, link)) {
            let file = root.join(&link.path);
            if !is_page(&pages, &link.path) && file.is_file() {
                put(&site.join(&link.path), &fs::read(file)?)?;
            }
        }
    }
    let first = Path::new(FIRST_PAGE).with_extension("html");
    let moved = format!(
        "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0;url={0}\"><a href=\"{0}\">Steadfast</a>\n",
        first.display()
    );
    put(&site.join("index.html"), moved.as_bytes())?;
    println!("{} pages: {}", pages.len(), site.join("index.html").display());
    Ok(())
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file in a directory")?)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn pages(root: &Path) -> Result<Vec<Page>> {
    let mut paths: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    let mut listed = Vec::new();
    for entry in fs::read_dir(root.join("docs"))? {
        let name = entry?.file_name();
        if Path::new(&name).extension().is_some_and(|it| it == "md") {
            listed.push(Path::new("docs").join(name));
        }
    }
    listed.sort();
    paths.extend(listed);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path));
        Ok(Page::new(path.clone(), text.with_context(|| path.display().to_string())?))
    };
    paths.into_iter().map(read).collect()
}

fn is_page(pages: &[Page], path: &Path) -> bool {
    pages.iter().any(|page| page.path == path)
}

/// Each link that leads to nothing.
fn faults(root: &Path, pages: &[Page]) -> Vec<String> {
    let anchors: BTreeMap<&Path, &BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_path(), &page.anchors)).collect();
    let mut faults = Vec::new();
    for page in pages {
        for written in &page.links {
            let Some(link) = Link::parse(&page.path, written) else { continue };
            let known = anchors.get(link.path.as_path());
            let leads = match (&link.anchor, known) {
                (Some(anchor), Some(anchors)) => anchors.contains(anchor),
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (None, None) => root.join(&link.path).is_file(),
            };
            if !leads {
                faults.push(format!("{}: {written}", page.path.display()));
            }
        }
    }
    let first = Path::new(FIRST_PAGE);
    let index = pages.iter().filter(|page| page.path == first);
    let mut reached: BTreeSet<PathBuf> = index
        .flat_map(|page| page.links.iter().filter_map(|link| Link::parse(first, link)))
        .map(|link| link.path)
        .collect();
    reached.insert(first.to_owned());
    let lonely = pages.iter().filter(|page| !reached.contains(&page.path));
    faults.extend(
        lonely.map(|page| format!("{FIRST_PAGE} does not lead to {}", page.path.display())),
    );
    faults
}

/// A link to something in the repository.
#[derive(Debug, PartialEq)]
struct Link {
    /// From the repository's root.
    path: PathBuf,
    anchor: Option<String>,
}

impl Link {
    /// What is written in a page; none for links to other sites.
    fn parse(page: &Path, written: &str) -> Option<Self> {
        if written.contains("://") || written.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = match written.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor.to_owned())),
            None => (written, None),
        };
        if path.is_empty() {
            return Some(Self { path: page.to_owned(), anchor });
        }
        let mut whole = page.parent().unwrap_or(Path::new("")).to_owned();
        for part in Path::new(path).components() {
            match part {
                Component::ParentDir => {
                    whole.pop();
                }
                part => whole.push(part),
            }
        }
        Some(Self { path: whole, anchor })
    }
}

#[derive(Debug)]
struct Page {
    /// From the repository's root.
    path: PathBuf,
    text: String,
    title: String,
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

impl Page {
    fn new(path: PathBuf, text: String) -> Self {
        let (mut anchors, mut links, mut title) = (BTreeSet::new(), Vec::new(), None);
        for event in events(&text) {
            match event {
                Event::Start(Tag::Heading { id: Some(id), .. }) => {
                    anchors.insert(id.to_string());
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(dest_url.to_string());
                }
                Event::Text(text) if title.is_none() => title = Some(text.to_string()),
                _ => {}
            }
        }
        let title = title.unwrap_or_else(|| path.display().to_string());
        Self { path, text, title, anchors, links }
    }

    fn html(&self, pages: &[Page]) -> String {
        let linked = events(&self.text).into_iter().map(|event| match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = self.rewritten(&dest_url, pages).map_or(dest_url, CowStr::from);
                Event::Start(Tag::Link { link_type, dest_url, title, id })
            }
            other => other,
        });
        let mut body = String::new();
        html::push_html(&mut body, linked);
        let up = "../".repeat(self.path.components().count().saturating_sub(1));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}: Steadfast</title>\
             <style>{STYLE}</style></head>\n<body><nav><a href=\"{up}docs/index.html\">All documents</a> · \
             <a href=\"{up}README.html\">Overview</a></nav>\n{body}</body></html>\n",
            escaped(&self.title)
        );
        text
    }

    /// Where a link to another page leads in the site.
    fn rewritten(&self, written: &str, pages: &[Page]) -> Option<String> {
        let link = Link::parse(&self.path, written)?;
        let path = written.split('#').next().unwrap_or_default();
        let base = path.strip_suffix(".md").filter(|_| is_page(pages, &link.path))?;
        let anchor = link.anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
        Some(format!("{base}.html{anchor}"))
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// A page's Markdown; headings have the names that links know them by.
fn events(text: &str) -> Vec<Event<'_>> {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let (mut seen, mut open) = (BTreeMap::new(), None);
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => open = Some((at, String::new())),
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, heading)) = &mut open {
                    heading.push_str(text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let Some((start, heading)) = open.take() else { continue };
                let mut name = anchor(&heading);
                let count: &mut u32 = seen.entry(name.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    let _ = write!(name, "-{}", *count - 1);
                }
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[start] {
                    *id = Some(name.into());
                }
            }
            _ => {}
        }
    }
    events
}

/// The name of a heading in links, as code hosts make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page::new(path.into(), text.to_owned())
    }

    #[test]
    fn each_link_of_the_documents_leads_somewhere() {
        let root = workspace::root().expect("a workspace");
        let pages = pages(root).expect("pages");
        let faults = faults(root, &pages);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(pages.iter().map(|page| page.links.len()).sum::<usize>() > 100);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let pages = [
            page(
                "docs/index.md",
                "# A\n[b](b.md) [c](b.md#two) [x](b.md#three) [y](missing.md) [z](#none)",
            ),
            page("docs/b.md", "# One\n## `Two`\n[up](../README.md)"),
            page("docs/lonely.md", "# Lonely"),
        ];
        assert_eq!(
            faults(Path::new("/nonexistent"), &pages),
            [
                "docs/index.md: b.md#three",
                "docs/index.md: missing.md",
                "docs/index.md: #none",
                "docs/b.md: ../README.md",
                "docs/index.md does not lead to docs/lonely.md",
            ]
        );
    }

    #[test]
    fn links_between_pages_are_links_of_the_site() {
        let pages = [
            page("README.md", "# R"),
            page(
                "docs/b.md",
                "# One <1>\n[up](../README.md#r), [web](https://example/x.md), [f](f.svg)",
            ),
        ];
        let html = pages[1].html(&pages);
        assert!(html.contains("href=\"../README.html#r\""), "{html}");
        assert!(html.contains("href=\"https://example/x.md\""), "{html}");
        assert!(html.contains("href=\"f.svg\""), "{html}");
        assert!(html.contains("<h1 id=\"one-1\">"), "{html}");
    }

    #[test]
    fn headings_have_the_names_that_links_know() {
        assert_eq!(anchor("sync, async and subtree_check"), "sync-async-and-subtree_check");
        assert_eq!(anchor("Where a call's time goes"), "where-a-calls-time-goes");
        let page = page("a.md", "# Speed\n## Speed");
        assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["speed", "speed-1"]);
    }
}
