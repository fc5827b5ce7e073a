//! What a case knows: the plan that the host wrote, and how to ask the host for something.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::mount::{Mount, of_version};
use crate::random::Random;

/// The plan, for one case.
#[derive(Debug)]
pub(crate) struct Context {
    case: String,
    values: BTreeMap<String, String>,
    cases: Vec<String>,
}

impl Context {
    /// Reads the plan: lines `key=value`, `case=NAME` any number of times.
    pub(crate) fn read(plan: &str, case: &str) -> Result<Self> {
        let text = std::fs::read_to_string(plan).with_context(|| format!("plan {plan}"))?;
        let mut context =
            Self { case: case.to_owned(), values: BTreeMap::new(), cases: Vec::new() };
        for line in text.lines() {
            match line.split_once('=') {
                Some(("case", name)) => context.cases.push(name.to_owned()),
                Some((key, value)) => drop(context.values.insert(key.to_owned(), value.to_owned())),
                None => bail!("the plan has the line {line:?}"),
            }
        }
        Ok(context)
    }

    /// The cases to run.
    pub(crate) fn cases(&self) -> &[String] {
        &self.cases
    }

    pub(crate) fn value(&self, key: &str) -> Result<&str> {
        let value = self.values.get(key).with_context(|| format!("the plan lacks {key}"))?;
        Ok(value)
    }

    pub(crate) fn is_long(&self) -> bool {
        self.value("version").is_ok_and(|version| version == "long")
    }

    /// The first in the short version, the second in the long one.
    pub(crate) fn by_version<T>(&self, short: T, long: T) -> T {
        if self.is_long() { long } else { short }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.value("seed").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    /// A generator for this case: the run's seed and the case's name.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed() ^ xxhash_rust::xxh3::xxh3_64(self.case.as_bytes()))
    }

    /// Mounts a share at a place of this case's own.
    pub(crate) fn mount(&self, share: &str, options: &str) -> Result<Mount> {
        let device =
            format!("{}:{}", self.value("server")?, self.value(&format!("share.{share}"))?);
        let at = PathBuf::from(format!("/run/nfs/{}", self.case)).join(share);
        Mount::new(&device, at, &[&self.mount_options()?, options])
    }

    /// A second mount of a share with caches of its own, as if it were another client.
    pub(crate) fn mount_other(&self, share: &str) -> Result<Mount> {
        self.mount_other_with(share, "")
    }

    /// The same with more options.
    pub(crate) fn mount_other_with(&self, share: &str, options: &str) -> Result<Mount> {
        let device =
            format!("{}:{}", self.value("server")?, self.value(&format!("share.{share}"))?);
        let at = PathBuf::from(format!("/run/nfs/{}/other-{share}", self.case));
        Mount::new(&device, at, &[&self.mount_options()?, "nosharecache", options])
    }

    /// The version of NFS that the suite is run with.
    pub(crate) fn nfs_version(&self) -> Result<&str> {
        self.value("nfs")
    }

    /// The options that every mount has: the version, and ports.
    pub(crate) fn mount_options(&self) -> Result<String> {
        let base = of_version(self.nfs_version()?)?;
        Ok(format!("{base},{}", self.value("port-options")?))
    }

    /// The case's name: also that of its directory in a share.
    pub(crate) fn case_name(&self) -> &str {
        &self.case
    }

    /// Mounts the main share and makes an empty directory of the case's name in it, for
    /// everybody.
    pub(crate) fn mount_main(&self, options: &str) -> Result<(Mount, PathBuf)> {
        let mount = self.mount("main", options)?;
        let directory = self.fresh_directory(&mount)?;
        Ok((mount, directory))
    }

    /// An empty directory of the case's name in a mounted share.
    pub(crate) fn fresh_directory(&self, mount: &Mount) -> Result<PathBuf> {
        let directory = mount.path().join(&self.case);
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir(&directory)
            .with_context(|| format!("mkdir {}", directory.display()))?;
        set_mode(&directory, 0o777)?;
        Ok(directory)
    }

    /// Where this case's directory of a share is on the server, seen past NFS.
    pub(crate) fn on_server(&self, share: &str) -> Result<PathBuf> {
        Ok(Path::new(self.value(&format!("local.{share}"))?).join(&self.case))
    }

    /// A directory of the guest's memory, for what must not be on NFS.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let directory = PathBuf::from(format!("/run/scratch/{}", self.case));
        std::fs::create_dir_all(&directory)?;
        set_mode(&directory, 0o777)?;
        Ok(directory)
    }

    /// Tells the host something worth reading in its output.
    pub(crate) fn note(&self, text: &str) -> Result<()> {
        self.tell(&format!("note {}: {text}", self.case))
    }

    /// Writes one line to the host.
    pub(crate) fn tell(&self, line: &str) -> Result<()> {
        let path = Path::new(self.value("control")?).join("results");
        append_line(&path, line)
    }

    /// Asks the host for something; [`Request::answer`] says when it is done.
    pub(crate) fn ask(&self, words: &str) -> Result<Request> {
        let id = format!("{}-{}", self.case, std::process::id());
        self.tell(&format!("request {id} {words}"))?;
        Ok(Request(Path::new(self.value("control")?).join(format!("answer-{id}"))))
    }

    /// Has the host do something, waits until it has, and returns what it says.
    pub(crate) fn host(&self, words: &str) -> Result<String> {
        let request = self.ask(words)?;
        let answer = loop {
            match request.answer()? {
                Some(answer) => break answer,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        // The next request of this case has the same name.
        std::fs::remove_file(&request.0).context("an answer of the host")?;
        Ok(answer)
    }
}

/// Something that the host was asked for.
#[derive(Debug)]
pub(crate) struct Request(PathBuf);

impl Request {
    /// What the host says behind `ok`, if it has answered yet.
    pub(crate) fn answer(&self) -> Result<Option<String>> {
        if !self.0.exists() {
            return Ok(None);
        }
        // The host may be between creating and writing it.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let text = std::fs::read_to_string(&self.0)?;
            match text.split_once(' ').unwrap_or((text.as_str(), "")) {
                ("ok", rest) => return Ok(Some(rest.to_owned())),
                ("failed", why) => bail!("the host: {why}"),
                _ if Instant::now() > end => bail!("the host answered {text:?}"),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Appends a line to a file of the host and waits until the host has it.
pub(crate) fn append_line(path: &Path, line: &str) -> Result<()> {
    let mut file = std::fs::File::options()
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    // A line break in an error's text would end the record.
    let line = line.replace(['\n', '\r'], " | ");
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_all()?;
    Ok(())
}

/// `chmod`.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("chmod {mode:o} {}", path.display()))
}
