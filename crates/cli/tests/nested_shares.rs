//! Process ring: shares in shares. What is mounted below a share that crosses mounts, and is shared
//! itself, has its own rules, by whatever way it is reached (exports(5), `crossmnt`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Place, Running, output, stderr, utf8};
use nfs3_support::{PATIENCE, is_root, status};
use steadfast_client::{
    ClientError, CreateHow3, FileHandle, Identity, Nfs3Client, NfsStat3, RpcConnection, Settings,
    mount,
};

/// A tmpfs, taken away when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        assert!(run(&["mount", "-t", "tmpfs", "-o", "size=4m,mode=1777", "tmpfs", utf8(at)]));
        Self(at.to_owned())
    }

    fn bind(from: &Path, at: &Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        assert!(run(&["mount", "--bind", utf8(from), utf8(at)]));
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(&["umount", "--lazy", utf8(&self.0)]);
    }
}

fn run(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

struct Site {
    place: Place,
    root: PathBuf,
    shares: String,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let root = place.directory.path().canonicalize().unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { place, root, shares: String::new() }
    }

    fn share(&mut self, path: &str, directory: &str, clients: &str, options: &str) {
        let path = if path.is_empty() { self.at(directory) } else { PathBuf::from(path) };
        std::fs::create_dir_all(self.at(directory)).unwrap();
        std::fs::set_permissions(self.at(directory), std::fs::Permissions::from_mode(0o1777))
            .unwrap();
        let options: Vec<_> = options.split(',').map(|option| format!("{option:?}")).collect();
        write!(
            self.shares,
            "[[share]]\npath = {:?}\ndirectory = {:?}\nclients = [{clients:?}]\noptions = [{}]\n",
            utf8(&path),
            utf8(&self.at(directory)),
            options.join(", ")
        )
        .unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn start(&self) -> Running {
        let text = format!("[log]\nenabled = false\n{}", self.shares);
        let configuration = self.place.write("steadfast.toml", &text);
        Running::start(&self.place, 0, &["--config", utf8(&configuration)])
    }

    fn mnt(&self, server: &Running, path: &str) -> Result<FileHandle, ClientError> {
        let path = if path.starts_with('/') { PathBuf::from(path) } else { self.at(path) };
        mnt(server.address, utf8(&path))
    }
}

fn mnt(server: SocketAddr, path: &str) -> Result<FileHandle, ClientError> {
    let mut connection = RpcConnection::connect(server, PATIENCE)?;
    mount::mnt(&mut connection, &Identity::root(), path.as_bytes()).map(|mounted| mounted.handle)
}

fn client(server: &Running) -> Nfs3Client {
    Nfs3Client::new(RpcConnection::connect(server.address, PATIENCE).unwrap(), Identity::root())
}

#[track_caller]
fn entry(client: &mut Nfs3Client, from: &FileHandle, path: &str) -> FileHandle {
    path.split('/')
        .fold(from.clone(), |dir, name| client.lookup(&dir, name.as_bytes()).unwrap().handle)
}

fn create(
    client: &mut Nfs3Client,
    dir: &FileHandle,
    name: &str,
) -> Result<FileHandle, ClientError> {
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    Ok(client.create(dir, name.as_bytes(), &how)?.handle.unwrap())
}

#[test]
fn what_is_mounted_below_a_share_has_the_rules_of_its_own_one() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    site.share("", "p", "*", "rw,crossmnt,no_root_squash");
    let _mounted = ["sub", "free", "shut", "sub/deep", "open", "open/deep", "plain/deep", "far"]
        .map(|name| Mounted::new(&site.at("p").join(name)));
    site.share("", "p/sub", "*", "ro,root_squash");
    site.share("", "p/shut", "192.0.2.1", "rw");
    site.share("", "p/open", "*", "ro,crossmnt");
    site.share("", "p/plain", "*", "ro");
    site.share("/elsewhere", "p/far", "*", "ro");
    let server = site.start();
    let mut c = client(&server);
    let p = site.mnt(&server, "p").unwrap();

    // Its own rules, by both ways, for the directory, for what is in it, and for links and renames.
    let (own, through) = (site.mnt(&server, "p/sub").unwrap(), entry(&mut c, &p, "sub"));
    std::fs::write(site.at("p/sub/file"), "x").unwrap();
    std::fs::write(site.at("p/mine"), "x").unwrap();
    for dir in [&own, &through] {
        assert_eq!(status(create(&mut c, dir, "a")), NfsStat3::RoFs);
        let file = entry(&mut c, dir, "file");
        assert_eq!(
            status(c.write(&file, 0, b"y", steadfast_client::StableHow::FileSync)),
            NfsStat3::RoFs
        );
        assert_eq!(status(c.setattr(&file, &Settings::mode(0o600), None)), NfsStat3::RoFs);
        assert_eq!(status(c.remove(dir, b"file")), NfsStat3::RoFs);
        assert_eq!(c.access(dir, 0x3f).unwrap().granted & 0x1c, 0);
        c.read(&file, 0, 1).unwrap();
    }
    let mine = entry(&mut c, &p, "mine");
    assert!(c.rename(&p, b"mine", &through, b"mine").is_err());
    assert!(c.link(&mine, &through, b"mine").is_err());
    assert!(c.rename(&through, b"file", &p, b"file").is_err());
    // Root is squashed there, and not above.
    let secret = site.at("p/sub/secret");
    std::fs::write(&secret, "x").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = entry(&mut c, &through, "secret");
    assert_eq!(status(c.read(&secret, 0, 1)), NfsStat3::Acces);
    create(&mut c, &p, "above").unwrap();

    // What is not shared by itself has the rules of the one around it.
    let free = entry(&mut c, &p, "free");
    create(&mut c, &free, "a").unwrap();
    let deep = entry(&mut c, &p, "open/deep");
    assert_eq!(status(create(&mut c, &deep, "a")), NfsStat3::RoFs);
    // A directory that is shared is no other file system: as with the kernel's server, it is the way
    // that counts, and what is mounted in it is not served by it.
    let plain = entry(&mut c, &p, "plain");
    create(&mut c, &plain, "a").unwrap();
    let deep = entry(&mut c, &plain, "deep");
    create(&mut c, &deep, "a").unwrap();
    // A share that does not cross mounts ends the way.
    assert_eq!(status(c.lookup(&through, b"deep")), NfsStat3::Acces);

    // Who gets nothing by its own rules gets nothing by the way from above; of its name alone he knows.
    assert_eq!(status(c.lookup(&p, b"shut")), NfsStat3::Acces);
    assert!(site.mnt(&server, "p/shut").is_err());
    let far = entry(&mut c, &p, "far");
    assert_eq!(status(create(&mut c, &far, "a")), NfsStat3::RoFs);
    let listed = c.readdirplus(&p, 0, [0; 8], 1 << 14, 1 << 16).unwrap().entries;
    let with_handle = |name: &str| {
        let entry = listed.iter().find(|entry| entry.name == name.as_bytes()).unwrap();
        (entry.attributes.is_some(), entry.handle.is_some())
    };
    assert_eq!((with_handle("shut"), with_handle("sub")), ((false, false), (true, true)));
    // And back.
    let back = c.lookup(&through, b"..").unwrap().handle;
    assert_eq!(back, p);
    // By the share's path that leads there MNT gives no more.
    assert!(mnt(server.address, utf8(&site.at("p/shut"))).is_err());
}

#[test]
fn a_handle_from_before_obeys_the_rules_that_come_later() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    site.share("", "p", "*", "rw,crossmnt,no_root_squash");
    let _mounted = Mounted::new(&site.at("p/sub"));
    let server = site.start();
    let mut c = client(&server);
    let p = site.mnt(&server, "p").unwrap();
    let sub = entry(&mut c, &p, "sub");
    let file = create(&mut c, &sub, "file").unwrap();
    let state = ["--state-directory", utf8(&site.place.state)];
    let told = |words: &[&str]| {
        let done = output(&[words, &state].concat());
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
    };
    let path = site.at("p/sub");
    told(&["group", "create", "g"]);
    told(&["share", "add", utf8(&path), "--client", "*", "-o", "ro", "--group", "g"]);
    assert_eq!(status(create(&mut c, &sub, "a")), NfsStat3::RoFs);
    assert_eq!(status(c.setattr(&file, &Settings::mode(0o600), None)), NfsStat3::RoFs);
    c.getattr(&file).unwrap();
    told(&["share", "remove", utf8(&path)]);
    create(&mut c, &sub, "a").unwrap();
    // After a restart the server knows the mount by its number alone.
    told(&["share", "add", utf8(&path), "--client", "192.0.2.1", "--group", "g"]);
    drop(server);
    let server = site.start();
    let mut c = client(&server);
    assert_eq!(status(c.getattr(&file)), NfsStat3::Acces);
    assert_eq!(status(create(&mut c, &sub, "b")), NfsStat3::Acces);
    c.getattr(&p).unwrap();
}

/// The directory of a share may be written with symbolic links, which nobody has resolved when the
/// server begins to serve.
#[test]
fn a_share_that_is_written_by_another_name_is_found_too() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    site.share("", "p", "*", "rw,crossmnt,no_root_squash");
    let _mounted = Mounted::new(&site.at("p/sub"));
    let _bound = Mounted::bind(&site.at("p/sub"), &site.at("p/bound"));
    symlink(site.at("p"), site.at("link")).unwrap();
    site.share("/named", "link/sub", "*", "ro");
    let server = site.start();
    let mut c = client(&server);
    let p = site.mnt(&server, "p").unwrap();
    let sub = loop {
        match c.lookup(&p, b"sub") {
            Ok(found) => break found.handle,
            // Until it was looked at.
            Err(ClientError::Failed(failure)) if failure.status == NfsStat3::Jukebox => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(status(create(&mut c, &sub, "a")), NfsStat3::RoFs);
    // What is mounted twice is shared where the share's directory is, and not where it is not.
    let bound = entry(&mut c, &p, "bound");
    create(&mut c, &bound, "a").unwrap();
}

#[test]
fn mnt_follows_links_that_stay_inside_the_share() {
    let mut site = Site::new();
    site.share("", "p", "*", "rw");
    site.share("", "other", "*", "rw");
    std::fs::create_dir_all(site.at("p/a/b")).unwrap();
    std::fs::write(site.at("p/a/swap"), "x").unwrap();
    for (name, target) in [
        ("relative", "a/b".to_owned()),
        ("absolute", utf8(&site.at("p/a/b")).to_owned()),
        ("file", "a/swap".to_owned()),
        ("out", "..".to_owned()),
        ("beside", "../other".to_owned()),
        ("far", utf8(&site.at("other")).to_owned()),
        ("etc", "/etc".to_owned()),
        ("loop", "loop".to_owned()),
        ("none", "a/none".to_owned()),
    ] {
        symlink(target, site.at("p").join(name)).unwrap();
    }
    let server = site.start();
    let b = site.mnt(&server, "p/a/b").unwrap();
    let swap = site.mnt(&server, "p/a/swap").unwrap();
    for (name, expected) in [("relative", &b), ("absolute", &b), ("file", &swap)] {
        assert_eq!(site.mnt(&server, &format!("p/{name}")).unwrap(), *expected, "{name}");
    }
    for (name, status) in
        [("out", 13), ("beside", 13), ("far", 13), ("etc", 13), ("loop", 22), ("none", 2)]
    {
        let refused = site.mnt(&server, &format!("p/{name}")).unwrap_err();
        let ClientError::Mount(got) = refused else { panic!("{refused}") };
        assert_eq!(got, status, "{name}");
    }
}
