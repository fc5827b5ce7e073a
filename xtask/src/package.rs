//! Debian packages: builds the program, has it write its man pages and completions, and hands all to debhelper with
//! `packaging/debian`. What is in which package is said there; lintian has the last word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use steadfast_rig::{packages, workspace};

/// What packages are built and checked with.
const PACKAGES: &[&str] = &["debhelper", "dpkg-dev", "lintian"];

const USAGE: &str = "usage: cargo xtask package [--profile PROFILE] [--revision N] [--program FILE] [--architecture NAME]
       cargo xtask package --kind static [--profile PROFILE] [--architecture NAME]

  --kind KIND          debian (default), or static: one file that needs nothing else of a machine
  --profile PROFILE    how cargo builds: release (default), or checks, which is built faster
  --architecture NAME  amd64 or arm64 (default: that of this machine)
  --revision N         the revision of Debian packages (default 1): a higher one is an upgrade
  --program FILE       package this program, and build none";

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
    revision: Option<u32>,
    program: Option<PathBuf>,
    architecture: Option<Architecture>,
    is_static: bool,
}

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let root = &workspace::root()?;
    let architecture = match options.architecture {
        Some(named) => named,
        None => Architecture::of_this_machine()?,
    };
    let builder = Builder {
        root,
        profile: &options.profile,
        architecture: Some(architecture),
        is_static: options.is_static,
    };
    let all = target_directory(root).join("package");
    if options.is_static {
        return static_program(&builder, architecture, &all);
    }
    packages::ensure(PACKAGES)?;
    let program = match &options.program {
        Some(program) => {
            let bytes = fs::read(program).with_context(|| program.display().to_string())?;
            if machine(&bytes) != Some(architecture.elf) {
                bail!("--program: {} is no program for {}", program.display(), architecture.debian);
            }
            program.canonicalize().context("--program")?
        }
        None => builder.build()?,
    };
    let source = all.join("source");
    if source.exists() {
        fs::remove_dir_all(&source).context("cannot remove the last packages' sources")?;
    }
    let date = commit_date(root)?;
    // Its man pages and completions are written by one that runs here.
    let runs_here = if architecture.is_this_machines() {
        program.clone()
    } else {
        Builder { architecture: None, ..builder }.build()?
    };
    stage(root, &source, (&program, &runs_here), &date)?;
    let version = format!("{}-{}", env!("CARGO_PKG_VERSION"), options.revision.unwrap_or(1));
    debian(root, &source, &version, &date)?;
    let architecture = architecture.debian;
    let words = ["-b", "-d", "-us", "-uc", "--host-arch", architecture];
    run_in(&source, &date, "dpkg-buildpackage", &words).context("cannot build packages")?;
    let changes = all.join(format!("steadfast_{version}_{architecture}.changes"));
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
        let mut options = Self {
            profile: "release".to_owned(),
            revision: None,
            program: None,
            architecture: None,
            is_static: false,
        };
        let mut args = args.iter();
        while let Some(word) = args.next() {
            let value = args.next().context(USAGE)?;
            match word.as_str() {
                "--profile" => options.profile.clone_from(value),
                "--revision" => options.revision = Some(value.parse().context("--revision N")?),
                "--program" => options.program = Some(value.into()),
                "--architecture" => options.architecture = Some(Architecture::named(value)?),
                "--kind" => options.is_static = is_static(value)?,
                _ => bail!("{USAGE}"),
            }
        }
        if options.is_static && (options.program.is_some() || options.revision.is_some()) {
            bail!("--program and --revision are for Debian packages; {USAGE}");
        }
        Ok(options)
    }
}

fn is_static(kind: &str) -> Result<bool> {
    match kind {
        "debian" => Ok(false),
        "static" => Ok(true),
        _ => bail!("{USAGE}"),
    }
}

/// The processors that packages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Architecture {
    /// By Debian's name.
    debian: &'static str,
    /// By Rust's.
    rust: &'static str,
    /// `e_machine` of its programs (elf(5)).
    elf: u16,
    /// Debian's package with a C compiler for it, where that is another machine.
    compiler: &'static str,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { debian: "amd64", rust: "x86_64", elf: 62, compiler: "gcc-x86-64-linux-gnu" },
    Architecture { debian: "arm64", rust: "aarch64", elf: 183, compiler: "gcc-aarch64-linux-gnu" },
];

impl Architecture {
    fn named(name: &str) -> Result<Self> {
        let found = ARCHITECTURES.into_iter().find(|it| it.debian == name);
        found.with_context(|| format!("packages are made for amd64 and arm64, not {name:?}"))
    }

    fn of_this_machine() -> Result<Self> {
        let found = ARCHITECTURES.into_iter().find(|it| it.rust == std::env::consts::ARCH);
        found.with_context(|| {
            format!("this machine is neither amd64 nor arm64: name one by --architecture; {USAGE}")
        })
    }

    fn is_this_machines(self) -> bool {
        self.rust == std::env::consts::ARCH
    }

    /// What tools that make programs for it begin with.
    fn tools(self) -> String {
        format!("{}-linux-gnu", self.rust)
    }
}

/// How a program is built.
#[derive(Clone, Copy)]
struct Builder<'b> {
    root: &'b Path,
    profile: &'b str,
    /// `None` for an ordinary program of this machine, whatever that is.
    architecture: Option<Architecture>,
    is_static: bool,
}

impl Builder<'_> {
    /// For which architecture it is built, and Rust's name of the target, where that is not this machine's ordinary one.
    fn target(self) -> Option<(Architecture, String)> {
        let architecture = self.architecture?;
        let libc = if self.is_static { "musl" } else { "gnu" };
        let target = format!("{}-unknown-linux-{libc}", architecture.rust);
        (self.is_static || !architecture.is_this_machines()).then_some((architecture, target))
    }

    /// Builds the program; where it is.
    fn build(self) -> Result<PathBuf> {
        let mut cargo = Command::new(workspace::cargo_program());
        cargo.current_dir(self.root).args(["build", "--locked", "--package", "steadfast"]);
        cargo.args(["--profile", self.profile]);
        let mut built = target_directory(self.root);
        if let Some((architecture, target)) = self.target() {
            self.prepare(architecture, &target, &mut cargo)?;
            built.push(&target);
        }
        let status = cargo.status().context("cargo")?;
        if !status.success() {
            bail!("the program cannot be built: {status}");
        }
        built.push(if self.profile == "dev" { "debug" } else { self.profile });
        Ok(built.join("steadfast"))
    }

    /// Makes sure of Rust's library and a C compiler for a target, and tells cargo of them.
    fn prepare(self, architecture: Architecture, target: &str, cargo: &mut Command) -> Result<()> {
        let added = Command::new("rustup").args(["target", "add", target]).status();
        if !added.is_ok_and(|status| status.success()) {
            bail!("Rust's library for {target} is missing; by hand: rustup target add {target}");
        }
        let (package, compiler) = if architecture.is_this_machines() && self.is_static {
            ("musl-tools", "musl-gcc".to_owned())
        } else {
            (architecture.compiler, format!("{}-gcc", architecture.tools()))
        };
        packages::ensure(&[package])?;
        let name = target.replace('-', "_");
        cargo
            .args(["--target", target])
            .env(format!("CC_{name}"), &compiler)
            // The headers of a compiler for glibc have checks in them that musl lacks.
            .env(format!("CFLAGS_{name}"), "-U_FORTIFY_SOURCE");
        // musl-gcc links a program that asks for musl's loader; the ordinary linker takes what comes with Rust.
        if !(architecture.is_this_machines() && self.is_static) {
            cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), &compiler);
        }
        Ok(())
    }
}

/// Builds the program as one file that needs no library of its machine, and puts it beside the packages.
fn static_program(builder: &Builder<'_>, architecture: Architecture, all: &Path) -> Result<()> {
    let program = builder.build()?;
    let architecture = architecture.debian;
    let bytes = fs::read(&program).with_context(|| program.display().to_string())?;
    if has_interpreter(&bytes).context("the program is no ELF file of 64 bits")? {
        bail!("{} is not static: it asks for a loader of libraries", program.display());
    }
    fs::create_dir_all(all)?;
    let file = all.join(format!("steadfast-{}-linux-{architecture}", env!("CARGO_PKG_VERSION")));
    fs::copy(&program, &file).context("cannot copy the program")?;
    packages::ensure(&["binutils-multiarch"])?;
    let stripped = Command::new("strip").arg("--strip-debug").arg(&file).status();
    if !stripped.context("strip")?.success() {
        bail!("cannot take the lines for debuggers out of {}", file.display());
    }
    println!("static program: {}", file.display());
    Ok(())
}

/// For which machine a program is (`e_machine` of elf(5)); `None` if it is none of 64 bits.
fn machine(elf: &[u8]) -> Option<u16> {
    let is_elf = elf.get(..6)? == b"\x7fELF\x02\x01";
    Some(u16::from_le_bytes(elf.get(18..20)?.try_into().ok()?)).filter(|_| is_elf)
}

/// Whether a program wants to be started by another one, which loads its libraries; `None` if it is none (elf(5)).
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let half =
        |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)));
    let offset = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?);
    let (offset, size, count) = (usize::try_from(offset).ok()?, half(54)?, half(56)?);
    let mut has = false;
    for header in 0..count {
        let at = offset.checked_add(header.checked_mul(size)?)?;
        let kind = elf.get(at..at.checked_add(4)?)?;
        has |= u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP;
    }
    Some(has)
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

/// Puts everything that is installed below `staged`. The program that is packaged need not run on this machine; the other
/// one writes man pages and completions.
fn stage(
    root: &Path,
    source: &Path,
    (program, runs_here): (&Path, &Path),
    date: &Date,
) -> Result<()> {
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
    let program = runs_here.to_str().context("a path in UTF-8")?;
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
    fn a_program_that_loads_libraries_is_known_by_its_interpreter() {
        // This test is one.
        let own = fs::read(std::env::current_exe().expect("its path")).expect("its file");
        assert_eq!(has_interpreter(&own), Some(true));
        let here = Architecture::of_this_machine().ok().map(|it| it.elf);
        assert!(here.is_none_or(|here| machine(&own) == Some(here)));
        assert_eq!(machine(&own[..19]), None);
        assert_eq!(has_interpreter(&own[..100]), None);
        assert_eq!(has_interpreter(b"#!/bin/sh"), None);
        // A header alone, without segments.
        let mut header = own[..64].to_vec();
        header[56] = 0;
        header[57] = 0;
        assert_eq!(has_interpreter(&header), Some(false));
    }

    #[test]
    fn what_a_static_file_has_no_use_for_is_refused() {
        let parsed =
            |text: &str| Options::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for words in
            ["--kind static --revision 2", "--kind static --program a", "--kind x", "--kind"]
        {
            assert!(parsed(words).is_err(), "{words}");
        }
        let options = parsed("--kind static --architecture arm64").expect("understood");
        let builder = |architecture, is_static| Builder {
            root: Path::new("/"),
            profile: "dev",
            architecture,
            is_static,
        };
        let target = |builder: Builder<'_>| builder.target().map(|(_, target)| target);
        let wanted = Some("aarch64-unknown-linux-musl".to_owned());
        assert_eq!(target(builder(options.architecture, options.is_static)), wanted);
        let options = parsed("--revision 2").expect("understood");
        assert_eq!((options.revision, options.is_static), (Some(2), false));
        // The ordinary program of this machine.
        assert_eq!(target(builder(None, false)), None);
        assert!(parsed("--architecture sparc").is_err());
    }

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
