//! Process ring: owners of NFSv4 by name, as the system's name service switch knows them, asked by a helper
//! of a real server. docs/nfsv4.md, Owners, says what is promised.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{PATIENCE, Place, Running, utf8};
use steadfast_client::nfs4::{ClientSettings, Nfs4Client, Settings4};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, NfsStat4, StateId4};

/// Name or number of whoever runs this, as the system tells them.
fn of_self(option: &str) -> String {
    let output = std::process::Command::new("id").arg(option).output().expect("id");
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

struct Fixture {
    client: Nfs4Client<RpcConnection>,
    file: FileHandle,
    _running: Running,
    place: Place,
}

fn fixture(server: &str) -> Fixture {
    let place = Place::new();
    let file = place.write("steadfast.toml", &format!("[server]\n{server}\n"));
    std::fs::create_dir_all(&place.share).expect("made");
    std::fs::write(place.share.join("file"), "x").expect("written");
    let arguments = [utf8(&place.share), "--no-root-squash", "--config", utf8(&file)];
    let running = Running::start(&place, 0, &arguments);
    let connection = RpcConnection::connect(running.address, PATIENCE).expect("connected");
    let [uid, gid] = ["-u", "-g"].map(|option| of_self(option).parse().expect("a number"));
    let identity = Identity::user(uid, gid);
    let settings = ClientSettings::default();
    let mut client = Nfs4Client::connect(connection, identity, &settings).expect("a session");
    let path = format!("{}/file", utf8(&place.share));
    let file = client.lookup_path(path.as_bytes()).expect("found");
    Fixture { client, file, _running: running, place }
}

impl Fixture {
    fn chown(&mut self, owner: &str, group: &str) -> Result<(), ClientError> {
        let settings = Settings4 {
            owner: Some(owner.as_bytes().to_vec()),
            owner_group: Some(group.as_bytes().to_vec()),
            ..Settings4::default()
        };
        let stateid = StateId4 { seqid: 0, other: [0; 12] };
        self.client.set_attributes(&self.file, stateid, &settings)
    }

    fn owners(&mut self) -> (String, String) {
        let wanted = Bitmap4::of(&[Attribute4::Owner, Attribute4::OwnerGroup]);
        let told = self.client.attributes(&self.file, wanted).expect("attributes");
        let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.expect("told")).expect("text");
        (text(told.owner), text(told.owner_group))
    }
}

fn is_bad_owner(outcome: &Result<(), ClientError>) -> bool {
    let error = outcome.as_ref().expect_err("nobody is nobody");
    format!("{error:?}").contains(&format!("{:?}", NfsStat4::BadOwner))
}

#[test]
fn names_of_the_system_are_taken_and_numbers_told() {
    let mut fixture = fixture("nfs4_domain = \"Example.com\"");
    let (user, uid) = (of_self("-un"), of_self("-u"));
    let (group, gid) = (of_self("-gn"), of_self("-g"));
    let of = |name: &str, domain: &str| format!("{name}@{domain}");
    fixture.chown(&of(&user, "example.com"), &of(&group, "EXAMPLE.COM")).expect("known");
    assert_eq!(fixture.owners(), (uid.clone(), gid.clone()));
    fixture.chown(&uid, &gid).expect("numbers");
    for owner in ["no-such-user-anywhere@example.com", &of(&user, "example.org"), "01"] {
        let outcome = fixture.chown(owner, &gid);
        assert!(is_bad_owner(&outcome), "{owner}: {outcome:?}");
    }
    assert_eq!(fixture.owners(), (uid, gid));
    // What the configuration says nobody has to be told.
    let log = Running::log(&fixture.place);
    assert!(!log.contains("owners of NFSv4 are known"), "{log}");
}

#[test]
fn names_are_told_if_the_configuration_says_so() {
    let mut fixture = fixture("nfs4_domain = \"example.com\"\nnfs4_owners = \"names\"");
    let told =
        (format!("{}@example.com", of_self("-un")), format!("{}@example.com", of_self("-gn")));
    assert_eq!(fixture.owners(), told);
    // What was told is taken.
    fixture.chown(&told.0, &told.1).expect("known");
    assert_eq!(fixture.owners(), told);
}

#[test]
fn a_domain_that_is_none_is_refused_with_its_place() {
    let place = Place::new();
    let text = "[server]\nnfs4_owners = \"name\"\nnfs4_domain = \"@example.com\"\n";
    let file = place.write("steadfast.toml", text);
    let output = common::output(&["check-config", utf8(&file)]);
    let told = common::stderr(&output) + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{told}");
    for what in [
        "steadfast.toml:2:15: nfs4_owners must be \"numbers\" or \"names\", not \"name\"",
        "steadfast.toml:3:15: nfs4_domain \"@example.com\" is no domain like \"example.com\"",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
}
