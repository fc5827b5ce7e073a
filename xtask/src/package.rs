//! Debian packages: builds the program, has it write its man pages and completions, and hands all to debhelper with
//! `packaging/debian`. What is in which package is said there; lintian has the last word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use steadfast_rig::{packages, workspace};

/// What packages are built and checked with.
const PACKAGES: &[&str] = &["debhelper", "dpkg-dev", "lintian"];

const USAGE: &str = "usage: cargo xtask package [--profile PROFILE] [--revision N] [--program FILE]

  --profile PROFILE  how cargo builds: release (default), or checks, which is built faster
  --revision N       the revision of the packages (default 1): a higher one is an upgrade
  --program FILE     package this program, and build none";

/// The files that every host of servers gets, by where they are in the sources and in the package's sources.
const FILES: &[(&str, &str)] = &[
    ("docs", "docs"),
    // A document: what is installed as configuration is the same in all versions, so that dpkg never asks whose to take.
    ("packaging/steadfast.toml", "steadfast.toml"),
    ("packaging/installed.toml", "etc/steadfast.toml"),
    ("packaging/shares.d.example.toml", "home.toml"),
    ("packaging/prometheus", "prometheus"),
    ("packaging/grafana", "grafana"),
];

const SHELLS: &[(&str, &str)] =
    &[("bash", "steadfast"), ("zsh", "_steadfast"), ("fish", "steadfast.fish")];

struct Options {
    profile: String,
    revision: u32,
    program: Option<PathBuf>,
}

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    packages::ensure(PACKAGES)?;
    let root = &workspace::root()?;
    let program = match &options.program {
        Some(program) => program.canonicalize().context("--program")?,
        None => build(root, &options.profile)?,
    };
    let all = target_directory(root).join("package");
    let source = all.join("source");
    if source.exists() {
        fs::remove_dir_all(&source).context("cannot remove the last packages' sources")?;
    }
    let date = commit_date(root)?;
    stage(root, &source, &program, &date)?;
    let version = format!("{}-{}", env!("CARGO_PKG_VERSION"), options.revision);
    debian(root, &source, &version, &date)?;
    let built = run_in(&source, &date, "dpkg-buildpackage", &["-b", "-d", "-us", "-uc"]);
    built.context("cannot build packages")?;
    let architecture = output("dpkg", &["--print-architecture"])?;
    let changes = all.join(format!("steadfast_{version}_{}.changes", architecture.trim()));
    let checked = Command::new("lintian")
        .args([
            "--allow-root",
            "--fail-on",
            "error",
            "--suppress-tags",
            "initial-upload-closes-no-bugs",
        ])
        .arg(&changes)
        .status()
        .context("lintian")?;
    if !checked.success() {
        bail!("lintian has found errors in {}", changes.display());
    }
    println!("packages: {}/*_{version}_*.deb", all.display());
    Ok(())
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self { profile: "release".to_owned(), revision: 1, program: None };
        let mut args = args.iter();
        while let Some(word) = args.next() {
            let value = args.next().context(USAGE)?;
            match word.as_str() {
                "--profile" => options.profile.clone_from(value),
                "--revision" => options.revision = value.parse().context("--revision N")?,
                "--program" => options.program = Some(value.into()),
                _ => bail!("{USAGE}"),
            }
        }
        Ok(options)
    }
}

fn build(root: &Path, profile: &str) -> Result<PathBuf> {
    workspace::cargo(&["build", "--locked", "--package", "steadfast", "--profile", profile])?;
    let directory = if profile == "dev" { "debug" } else { profile };
    Ok(target_directory(root).join(directory).join("steadfast"))
}

/// Where cargo builds, which is called in `root`: what is relative is so to that.
fn target_directory(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The list of documents as it is installed: what stays in the source is named there, without a link.
fn installed_index(text: &str) -> String {
    let mut text = text.to_owned();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        text = text.replace(&format!("[{page}](../{page})"), &format!("{page} of the source"));
    }
    text.replace("](../", "](")
}

/// Puts everything that is installed below `staged`.
fn stage(root: &Path, source: &Path, program: &Path, date: &Date) -> Result<()> {
    let staged = source.join("staged");
    for directory in ["usr/bin", "completions", "etc"] {
        fs::create_dir_all(staged.join(directory))?;
    }
    fs::copy(program, staged.join("usr/bin/steadfast")).context("cannot copy the program")?;
    for (from, to) in FILES {
        copy(&root.join(from), &staged.join(to))?;
    }
    // Documents are beside each other when they are installed.
    let readme = fs::read_to_string(root.join("README.md"))?.replace("](docs/", "](");
    fs::write(staged.join("README.md"), readme)?;
    let index = staged.join("docs/index.md");
    fs::write(&index, installed_index(&fs::read_to_string(&index)?))?;
    let program = program.to_str().context("a path in UTF-8")?;
    let man = staged.join("man");
    let man = man.to_str().context("a path in UTF-8")?;
    run_in(source, date, program, &["man", man])?;
    for (shell, file) in SHELLS {
        fs::write(staged.join("completions").join(file), output(program, &["completion", shell])?)?;
    }
    Ok(())
}

/// Makes the directory that debhelper reads.
fn debian(root: &Path, source: &Path, version: &str, date: &Date) -> Result<()> {
    let debian = source.join("debian");
    copy(&root.join("packaging/debian"), &debian)?;
    let unit = "packaging/steadfast.service";
    fs::copy(root.join(unit), debian.join("steadfast.service")).context(unit)?;
    let control = fs::read_to_string(debian.join("control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("packaging/debian/control has no Maintainer")?;
    let changelog = format!(
        "steadfast ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md in the sources.\n\n \
         -- {maintainer}  {}\n",
        date.rfc2822
    );
    fs::write(debian.join("changelog"), changelog)?;
    fs::create_dir_all(debian.join("source"))?;
    fs::write(debian.join("source/format"), "3.0 (quilt)\n")?;
    Ok(())
}

/// When the sources were committed: two builds of one commit are the same.
struct Date {
    unix: String,
    rfc2822: String,
}

fn commit_date(root: &Path) -> Result<Date> {
    let root = root.to_str().context("a path in UTF-8")?;
    let told = output("git", &["-C", root, "log", "-1", "--format=%ct%n%cD"])?;
    let (unix, rfc2822) = told.trim().split_once('\n').context("git tells no date")?;
    Ok(Date { unix: unix.to_owned(), rfc2822: rfc2822.to_owned() })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn run_in(directory: &Path, date: &Date, program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program)
        .current_dir(directory)
        .args(args)
        .env("SOURCE_DATE_EPOCH", &date.unix)
        .status()
        .with_context(|| program.to_owned())?;
    if !status.success() {
        bail!("{program} {} failed", args.join(" "));
    }
    Ok(())
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program} {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_of_the_installed_index_leads_to_a_file_beside_it() {
        let text = installed_index(include_str!("../../docs/index.md"));
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let links: Vec<&str> = links.filter(|link| !link.is_empty()).collect();
        assert!(links.len() > 20, "{links:?}");
        for link in links {
            assert!(link == "README.md" || docs.join(link).is_file(), "{link}");
        }
    }
}
