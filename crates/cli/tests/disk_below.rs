//! Process ring: a share whose disk is not mounted is not served from the file system below it, by the
//! real program, on disks of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use intent_log_support::{Mounted, create, ext4, run, stop};
use serde_json::Value;
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client};

/// A server with one share on a disk, and one beside it.
struct Site {
    // Unmounted before its directory is removed.
    disk: Mounted,
    image: PathBuf,
    place: Place,
    configuration: PathBuf,
}

impl Site {
    fn new(more: &str) -> Option<Self> {
        let place = Place::new();
        let base = place.directory.path().canonicalize().unwrap();
        let image = base.join("image");
        let disk = ext4(&image, &base.join("disk"), 32)?;
        std::fs::create_dir(disk.at.join("data")).unwrap();
        std::fs::create_dir(&place.share).unwrap();
        let text = format!(
            "[log]\nenabled = false\n[[share]]\npath = {:?}\nclients = [\"*\"]\n{more}\n",
            utf8(&place.share)
        );
        let configuration = place.write("steadfast.toml", &text);
        Some(Self { disk, image, place, configuration })
    }

    fn data(&self) -> PathBuf {
        self.disk.at.join("data")
    }

    fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration)])
    }

    fn ask(&self, words: &[&str]) -> Output {
        let state = ["--state-directory", utf8(&self.place.state)];
        output(&[words, &state].concat())
    }

    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    fn status(&self) -> Value {
        let data = self.data();
        serde_json::from_str(&self.told(&["share", "show", utf8(&data), "--json"])).unwrap()
    }

    fn unmount(&self) {
        assert!(run(&["umount", utf8(&self.disk.at)]));
    }

    fn mount(&self, image: &Path) {
        assert!(run(&["mount", "-o", "loop", utf8(image), utf8(&self.disk.at)]));
    }
}

fn mount(running: &Running, path: &Path) -> Result<(Nfs3Client, FileHandle), ClientError> {
    let (address, path) = (running.address, utf8(path).as_bytes());
    Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE)
}

#[test]
fn a_share_is_not_served_from_what_is_below_its_disk() {
    let Some(site) = Site::new("") else { return };
    let data = site.data();
    let running = site.start();
    site.told(&["share", "add", utf8(&data), "--client", "*", "-o", "no_root_squash"]);
    let (mut client, root) = mount(&running, &data).unwrap();
    let file = create(&mut client, &root, "on-disk");
    stop(running);

    // The disk is away, and there is a directory below.
    site.unmount();
    std::fs::create_dir(&data).unwrap();
    let running = site.start();
    let status = site.status();
    assert_eq!(status["state"], "faulty", "{status}");
    let why = status["why"].as_str().unwrap();
    for part in ["was on ext4 ", "and is on ", "share accept", utf8(&site.disk.at)] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(mount(&running, &data).is_err());
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "nobody writes there");
    assert!(mount(&running, &site.place.share).is_ok(), "others are served");
    let reloaded = site.ask(&["reload"]);
    assert_eq!(site.status()["state"], "faulty", "{}", stderr(&reloaded));
    // Disabled and enabled, it is the same.
    site.told(&["share", "disable", utf8(&data)]);
    site.told(&["share", "enable", utf8(&data)]);
    assert_eq!(site.status()["state"], "faulty");

    // The disk is back.
    site.mount(&site.image);
    site.told(&["reload"]);
    assert_eq!(site.status()["state"], "enabled");
    let (mut client, root) = mount(&running, &data).unwrap();
    assert_eq!(client.lookup(&root, b"on-disk").unwrap().handle, file);
    stop(running);

    // The administrator means what is below.
    site.unmount();
    let running = site.start();
    assert_eq!(site.status()["state"], "faulty");
    let told = site.told(&["share", "accept", utf8(&data)]);
    assert!(told.contains("accepted"), "{told}");
    assert_eq!(site.status()["state"], "enabled");
    let (mut client, root) = mount(&running, &data).unwrap();
    create(&mut client, &root, "below");
    assert!(data.join("below").exists());
    stop(running);
    let running = site.start();
    assert_eq!(site.status()["state"], "enabled", "what was accepted stays so");
    stop(running);

    // Then the disk is something else.
    site.mount(&site.image);
    let running = site.start();
    assert_eq!(site.status()["state"], "faulty");
    site.told(&["share", "accept", "--all"]);
    assert_eq!(site.status()["state"], "enabled");
    let refused = site.ask(&["share", "accept", "/no/share"]);
    assert!(stderr(&refused).contains("is no share"), "{}", stderr(&refused));
    stop(running);
}

#[test]
fn a_disk_in_the_place_of_another_is_noticed_and_adding_a_share_means_what_is_there() {
    let Some(site) = Site::new("") else { return };
    let data = site.data();
    let running = site.start();
    site.told(&["share", "add", utf8(&data), "--client", "*"]);
    stop(running);
    site.unmount();
    let other = site.place.directory.path().join("other-image");
    let elsewhere = site.place.directory.path().join("elsewhere");
    let Some(made) = ext4(&other, &elsewhere, 32) else { return };
    std::fs::create_dir(elsewhere.join("data")).unwrap();
    drop(made);
    site.mount(&other);
    let running = site.start();
    assert_eq!(site.status()["state"], "faulty", "formatted anew, or another");
    site.told(&["share", "remove", utf8(&data)]);
    let added = site.told(&["share", "add", utf8(&data), "--client", "*"]);
    assert!(added.contains("mount -t nfs -o "), "{added}");
    assert_eq!(site.status()["state"], "enabled", "{}", site.status());
    stop(running);
}

/// `mp` and `mountpoint=` of exports(5).
#[test]
fn a_share_with_mp_waits_for_its_mount() {
    let Some(site) = Site::new("") else { return };
    let disk = site.disk.at.clone();
    site.unmount();
    let running = site.start();
    site.told(&["share", "add", utf8(&disk), "--client", "*", "-o", "mp"]);
    let state = |path: &Path| -> Value {
        serde_json::from_str(&site.told(&["share", "show", utf8(path), "--json"])).unwrap()
    };
    assert_eq!(state(&disk)["state"], "faulty");
    let why = state(&disk)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("nothing is mounted there"), "{why}");
    assert!(mount(&running, &disk).is_err());
    // Another place that has to be mounted, as /etc/exports says it.
    let beside = site.place.directory.path().canonicalize().unwrap().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let text = format!("{} *(rw,insecure,mountpoint={})\n", utf8(&beside), utf8(&disk));
    let exports = site.place.write("exports", &text);
    site.told(&["import", utf8(&exports)]);
    assert_eq!(state(&beside)["state"], "faulty", "{}", state(&beside));
    let exported = site.told(&["export"]);
    assert!(exported.contains(&format!("mountpoint={}", utf8(&disk))), "{exported}");
    assert!(exported.contains("(mp,"), "{exported}");
    site.mount(&site.image);
    site.told(&["reload"]);
    assert_eq!(state(&disk)["state"], "enabled");
    assert_eq!(state(&beside)["state"], "enabled");
    assert!(mount(&running, &disk).is_ok() && mount(&running, &beside).is_ok());
    stop(running);
}
