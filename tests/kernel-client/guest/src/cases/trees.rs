//! Real programs on a share: a source tree unpacked and built, a git repository cloned, checked
//! and packed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::expect_equal;
use crate::context::Context;
use crate::mount::{run, run_command};

/// Unpacks Debian's source archives, compares the trees with unpacked ones in memory, builds
/// them and runs what was built.
pub(crate) fn source(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let scratch = context.scratch()?;
    for archive in context.value("archives")?.split(',') {
        for place in [&directory, &scratch] {
            run("tar", &["-C", &place.to_string_lossy(), "-xf", archive])?;
        }
    }
    mount.again()?;
    run("diff", &["-r", &directory.to_string_lossy(), &scratch.to_string_lossy()])?;
    for entry in std::fs::read_dir(&directory)? {
        let tree = entry?.path();
        if tree.join("src/lua.c").exists() {
            build_lua(&tree)?;
        } else {
            build_zlib(&tree).with_context(|| tree.display().to_string())?;
        }
    }
    Ok(())
}

fn build_lua(tree: &Path) -> Result<()> {
    let source = tree.join("src");
    make(&source, &["-j2", "lua", "CC=gcc -O0 -std=gnu99", "SYSCFLAGS=-DLUA_USE_POSIX"])?;
    let script = "local t = {} for i = 1, 1000 do t[i] = i * i end print(t[1000], _VERSION)";
    let said = run(&source.join("lua").to_string_lossy(), &["-e", script])?;
    expect_equal(&said.trim(), &"1000000\tLua 5.4", "what the built lua says")?;
    make(&source, &["clean"])?;
    ensure!(!source.join("lua").exists(), "make clean left lua");
    Ok(())
}

fn build_zlib(tree: &Path) -> Result<()> {
    run_command(Command::new("sh").args(["-c", "./configure --static"]).current_dir(tree))?;
    make(tree, &["-j2", "CFLAGS=-O0", "static"])?;
    make(tree, &["CFLAGS=-O0", "teststatic"])
}

fn make(directory: &Path, arguments: &[&str]) -> Result<()> {
    run_command(Command::new("make").arg("--silent").args(arguments).current_dir(directory))
        .map(drop)
}

/// clone, fsck, commit, gc, fsck, and the same tree afterwards.
pub(crate) fn git(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let origin = context.scratch()?.join("origin.git");
    make_repository(context, &origin)?;
    let clone = directory.join("clone");
    let git = |arguments: &[&str]| -> Result<String> {
        run_command(
            Command::new("git")
                .args(["-c", "user.name=Tester", "-c", "user.email=tester@localhost"])
                .args(["-c", "gc.auto=0", "-c", "safe.directory=*", "-C"])
                .arg(&directory)
                .args(arguments),
        )
    };
    let url = format!("file://{}", origin.display());
    git(&["clone", "--quiet", &url, "clone"])?;
    let expected = git(&["-C", &origin.to_string_lossy(), "rev-parse", "main^{tree}"])?;
    mount.again()?;
    git(&["-C", "clone", "fsck", "--full", "--strict"])?;
    expect_equal(&git(&["-C", "clone", "status", "--porcelain"])?, &String::new(), "status")?;
    git(&["-C", "clone", "checkout", "--quiet", "-b", "work", "HEAD~20"])?;
    for number in 0..context.by_version(3, 30) {
        std::fs::write(clone.join(format!("new-{number}")), format!("content {number}\n"))?;
        git(&["-C", "clone", "add", "--all"])?;
        git(&["-C", "clone", "commit", "--quiet", "-m", "more"])?;
    }
    git(&["-C", "clone", "merge", "--quiet", "-m", "merged", "main"])?;
    let merged = git(&["-C", "clone", "rev-parse", "work^{tree}"])?;
    git(&["-C", "clone", "gc", "--quiet", "--prune=now"])?;
    mount.again()?;
    git(&["-C", "clone", "fsck", "--full", "--strict"])?;
    git(&["-C", "clone", "checkout", "--quiet", "main"])?;
    expect_equal(&git(&["-C", "clone", "rev-parse", "HEAD^{tree}"])?, &expected, "tree")?;
    git(&["-C", "clone", "checkout", "--quiet", "work"])?;
    expect_equal(&git(&["-C", "clone", "status", "--porcelain"])?, &String::new(), "status")?;
    expect_equal(&git(&["-C", "clone", "write-tree"])?, &merged, "merged tree")
}

/// A repository with 60 commits over some hundred files, made from the seed.
fn make_repository(context: &Context, origin: &Path) -> Result<()> {
    use std::io::Write;
    run("git", &["init", "--quiet", "--bare", "--initial-branch=main", &origin.to_string_lossy()])?;
    let mut random = context.random();
    let mut stream = Vec::new();
    let commits = context.by_version(60, 300);
    for commit in 0..commits {
        let time = 1_600_000_000 + commit * 60;
        writeln!(stream, "commit refs/heads/main")?;
        writeln!(stream, "committer Tester <tester@localhost> {time} +0000")?;
        write!(stream, "data 7\ncommit\n\n")?;
        for _ in 0..8 {
            let (folder, file) = (random.below(12), random.below(40));
            let length = random.below(6000) as usize;
            let lines: Vec<String> =
                (0..length / 17).map(|_| format!("{:016x}", random.next())).collect();
            let text = lines.join("\n");
            writeln!(stream, "M 100644 inline folder-{folder}/file-{file}.txt")?;
            writeln!(stream, "data {}\n{text}", text.len())?;
        }
    }
    let mut import = Command::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(origin)
        .args(["fast-import", "--quiet"])
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    import.stdin.take().context("no pipe to git")?.write_all(&stream)?;
    ensure!(import.wait()?.success(), "git fast-import failed");
    Ok(())
}
