//! A mounted share without its kernel, with a server of NFSv4 in this process.

use std::sync::OnceLock;

use steadfast_client::FileHandle;

use super::*;
use crate::nfs4::fake::Fake;
use crate::node::ROOT;

/// `open(2)`'s.
const O_RDONLY: i32 = 0;
const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;

#[test]
fn a_file_that_was_made_meanwhile_is_opened_for_what_is_asked() {
    let fake = Fake::start();
    let nfs4 = Some(Arc::clone(&fake.client));
    let recovery = OnceLock::new();
    let server = Arc::new(Server { link: fake.link(), soft_after: None, recovery, nfs4 });
    let asker = Asker { identity: Identity::user(7, 7), patience: Patience::default() };
    let root = FileHandle(b"root".to_vec());
    let attributes = server.call(&asker.identity, asker.patience, |nfs| nfs.getattr(&root));
    let connected = Connected {
        server,
        root,
        attributes: attributes.unwrap(),
        statistics: None,
        read_bytes: 4096,
        write_bytes: 4096,
        listing_bytes: 4096,
        file_bytes_max: 1 << 40,
        name_bytes_max: 255,
    };
    let options = Options::parse("nolock").unwrap();
    let (volume, _stale) = Volume::new(connected, options, None, None).unwrap();
    {
        let mut state = fake.state.lock();
        state.refuses_both = true;
        state.names = vec![b"made".to_vec()];
    }
    fake.take_told();
    let create = |name: &[u8], flags| volume.create(&asker, ROOT, name, 0o644, O_CREAT | flags);
    create(b"made", O_RDONLY).unwrap();
    assert_eq!(fake.take_told(), ["open 1"]);
    // What may not be opened so is refused, and what cannot be made.
    for (name, flags) in [(&b"made"[..], O_RDWR), (b"other", O_RDONLY)] {
        assert_eq!(create(name, flags).err(), Some(Errno::EACCES));
    }
    assert_eq!(fake.take_told(), Vec::<String>::new());
}
