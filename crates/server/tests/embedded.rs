//! Process ring, without a process of its own: a program has servers in it, which clients use.
#![allow(clippy::expect_used)] // A failure here is a failure of the test.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use steadfast_client::{CreateHow3, FileHandle, Identity, Nfs3Client, Settings, StableHow};
use steadfast_control::Client;
use steadfast_server::{
    Base, Configuration, ProcessPowers, Server, StartError, StartOptions, prepare_process,
};
use steadfast_shares::{Access, ClientPattern, ShareOptions};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with a state directory and a directory that anybody may write.
struct Place {
    _directory: tempfile::TempDir,
    state: PathBuf,
    share: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("a path");
        let (state, share) = (path.join("state"), path.join("share"));
        make_open(&share);
        Self { _directory: directory, state, share }
    }

    /// Starts a server that serves this and no other directory.
    fn start(&self, options: StartOptions) -> Result<Server, StartError> {
        let options = StartOptions { state_directory: Some(self.state.clone()), ..options };
        let mut configuration = Configuration::default();
        let settings = &mut configuration.settings;
        settings.server.listen = Some(vec!["127.0.0.1:0".parse().expect("an address")]);
        settings.server.rpcbind = Some(false);
        settings.log.size_mib = Some(16);
        share(&mut configuration, &self.share);
        Server::start(configuration, options, powers())
    }
}

fn make_open(directory: &Path) {
    std::fs::create_dir(directory).expect("made");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, all).expect("a mode");
}

fn share(configuration: &mut Configuration, directory: &Path) {
    let access = Access { needs_privileged_port: false, ..Access::default() };
    let options = ShareOptions { access, ..ShareOptions::default() };
    configuration.add_directory(directory, &options, &[ClientPattern::Any]).expect("UTF-8");
}

/// All tests of this program are in one process.
fn powers() -> &'static ProcessPowers {
    static POWERS: OnceLock<ProcessPowers> = OnceLock::new();
    POWERS.get_or_init(|| prepare_process().expect("prepared"))
}

fn mount(address: SocketAddr, share: &Path) -> Result<(Nfs3Client, FileHandle), String> {
    let (path, identity) = (share.as_os_str().as_encoded_bytes(), Identity::user(1000, 1000));
    Nfs3Client::mount(address, address, path, identity, PATIENCE).map_err(|e| e.to_string())
}

fn address(server: &Server) -> SocketAddr {
    *server.addresses().first().expect("an address")
}

/// Makes a file of these data, and checks that they are told.
fn use_share(server: &Server, share: &Path, data: &[u8]) -> FileHandle {
    let (mut client, root) = mount(address(server), share).expect("mounted");
    let how = CreateHow3::Unchecked(Settings::default().0);
    let file = client.create(&root, b"file", &how).expect("created").handle.expect("a handle");
    client.write(&file, 0, data, StableHow::FileSync).expect("written");
    assert_eq!(client.read(&file, 0, 100).expect("read").data, data);
    assert_eq!(std::fs::read(share.join("file")).expect("read"), data);
    file
}

#[test]
fn a_server_starts_serves_and_stops_and_its_handles_outlive_it() {
    let place = Place::new();
    let server = place.start(StartOptions::default()).expect("started");
    assert!(server.wait_started(PATIENCE));
    assert_eq!((server.shares(), server.status().as_str()), (1, "serving 1 share"));
    assert!(server.mount_lines(1).concat().contains("127.0.0.1:/"), "{:?}", server.mount_lines(1));
    let file = use_share(&server, &place.share, b"steadfast");
    // Tools may ask it as any other.
    let shares = Client::connect(&place.state).shares(&<_>::default(), |_, _| {}).expect("told");
    assert_eq!(shares.shares.len(), 1);
    server.stop().expect("all calls were finished");
    let again = place.start(StartOptions::default()).expect("started again");
    let (mut client, _) = mount(address(&again), &place.share).expect("mounted");
    assert_eq!(client.read(&file, 0, 100).expect("the same file").data, b"steadfast");
}

#[test]
fn two_servers_are_in_one_process_each_with_its_state() {
    let (first, second) = (Place::new(), Place::new());
    let one = first.start(StartOptions::default()).expect("started");
    let other = second.start(StartOptions::default()).expect("started");
    let file = use_share(&one, &first.share, b"one");
    use_share(&other, &second.share, b"other");
    let (mut client, _) = mount(address(&other), &second.share).expect("mounted");
    client.read(&file, 0, 100).expect_err("a handle of another server");
    // To drop it is to stop it: its state directory is free.
    drop(one);
    drop(first.start(StartOptions::default()).expect("started again"));
    use_share(&other, &second.share, b"goes on");
    other.stop().expect("all calls were finished");
}

#[test]
fn a_state_directory_has_one_server() {
    let place = Place::new();
    let _first = place.start(StartOptions::default()).expect("started");
    let error = place.start(StartOptions::default()).err().expect("in use");
    assert!(matches!(error, StartError::StateDirectory(_)), "{error:?}");
    assert!(error.to_string().contains("is in use by another server"), "{error}");
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = Some(taken.local_addr().expect("an address").port());
    let error = place.start(StartOptions { port, ..StartOptions::default() });
    let error = error.err().expect("the port is taken");
    assert!(matches!(error, StartError::Serve(_)), "{error:?}");
    let server = place.start(StartOptions::default()).expect("the same state at another port");
    use_share(&server, &place.share, b"served");
}

#[test]
fn shares_that_cannot_be_served_are_no_server_unless_that_is_meant() {
    let place = Place::new();
    std::fs::remove_dir(&place.share).expect("removed");
    let error = place.start(StartOptions::default()).err().expect("nothing to serve");
    assert!(matches!(&error, StartError::NoShare(faults) if faults.len() == 1), "{error:?}");
    assert!(error.to_string().contains("does not exist"), "{error}");
    let options = StartOptions { starts_without_shares: true, ..StartOptions::default() };
    let server = place.start(options).expect("somebody may make it");
    assert_eq!(server.shares(), 0);
    make_open(&place.share);
    server.reload();
    use_share(&server, &place.share, b"it is there");
}

#[test]
fn a_reload_serves_what_the_program_says_then() {
    let place = Place::new();
    let (share_now, later) = (place.share.clone(), place.share.with_file_name("later"));
    make_open(&later);
    let told = later.clone();
    let read_base = move || {
        let mut configuration = Configuration::default();
        share(&mut configuration, &told);
        Ok(Base { shares: configuration.shares, ..Base::default() })
    };
    let options = StartOptions { read_base: Some(Box::new(read_base)), ..StartOptions::default() };
    let server = place.start(options).expect("started");
    mount(address(&server), &later).expect_err("not shared yet");
    server.reload();
    mount(address(&server), &share_now).expect_err("not shared any more");
    use_share(&server, &later, b"later");
}
