//! READZ and WRITEZ of the recovery program: READ and WRITE with data that is compressed on its way.

use steadfast_engine::{CallHost, Peer, ReplyBuffer, Transport, Verdict};
use steadfast_wire::frame;
use steadfast_wire::nfs3::{
    NfsFh3, NfsStat3, Read3Args, Read3Res, Res3, StableHow, Write3Args, Write3Res,
};
use steadfast_wire::recovery::{PROGRAM, READZ, ReadzRes, WRITEZ, WritezArgs};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::{Bench, NFS, status};

/// What the server takes at once over TCP and UDP.
const TCP_BYTES_MAX: usize = 1 << 20;
const UDP_BYTES_MAX: usize = 32 << 10;

fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn text(bytes: usize) -> Vec<u8> {
    b"All happy families are alike. ".iter().copied().cycle().take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Arguments of WRITEZ with any frame and count.
fn of_frame(file: &[u8], stable: StableHow, frame: &[u8], count: usize) -> Vec<u8> {
    written(&WritezArgs { file: NfsFh3(file), offset: 0, count: count as u32, stable, frame })
}

fn writez(file: &[u8], stable: StableHow, data: &[u8]) -> Vec<u8> {
    of_frame(file, stable, &frame::compress(data).unwrap(), data.len())
}

impl Bench {
    fn writez(&mut self, file: &[u8], stable: StableHow, data: &[u8]) -> Vec<u8> {
        self.call(PROGRAM, 1, WRITEZ, &writez(file, stable, data))
    }

    fn plain(&mut self, file: &[u8], data: &[u8]) -> Vec<u8> {
        let (file, stable) = (NfsFh3(file), StableHow::FileSync);
        let count = data.len() as u32;
        let arguments = written(&Write3Args { file, offset: 0, count, stable, data });
        self.call(NFS, 3, 7, &arguments)
    }

    /// The same by READ and READZ: results.
    fn reads(&mut self, file: &[u8], offset: u64, count: u32) -> [Vec<u8>; 2] {
        let arguments = written(&Read3Args { file: NfsFh3(file), offset, count });
        [self.call(NFS, 3, 6, &arguments), self.call(PROGRAM, 1, READZ, &arguments)]
    }

    fn contents(&mut self, file: &[u8]) -> Vec<u8> {
        let [read, _] = self.reads(file, 0, 1 << 20);
        let Res3::Ok(read) = Read3Res::decode(&mut Reader::new(&read)).unwrap() else {
            panic!("it is read")
        };
        read.data.to_vec()
    }
}

#[test]
fn writez_does_and_tells_what_write_does() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    for (stable, flushes) in
        [(StableHow::Unstable, 0), (StableHow::DataSync, 1), (StableHow::FileSync, 1)]
    {
        let before = bench.flushes.flushes();
        let data = text(40_000 + stable as usize);
        let results = bench.writez(&file, stable, &data);
        assert_eq!(bench.flushes.flushes() - before, flushes, "{stable:?}");
        let mut r = Reader::new(&results);
        let Res3::Ok(told) = Write3Res::decode(&mut r).unwrap() else { panic!("it is written") };
        assert!(r.is_empty());
        assert_eq!((told.count as usize, told.committed), (data.len(), stable));
        assert_eq!(told.verf, bench.engine.write_verifier().to_be_bytes());
        let after = told.file_wcc.after.unwrap();
        assert_eq!((told.file_wcc.before.is_some(), after.size), (true, data.len() as u64));
        assert_eq!(bench.contents(&file), data);
    }
    // As with WRITE, what could not be made stable is told, and the verifier is another one.
    let verifier = bench.engine.write_verifier();
    bench.flushes.set_failing(true);
    assert_eq!(status(&bench.writez(&file, StableHow::FileSync, &text(600))), NfsStat3::Io as u32);
    bench.flushes.set_failing(false);
    assert_ne!(bench.engine.write_verifier(), verifier);
}

#[test]
fn a_writez_that_comes_again_is_answered_and_not_executed() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    for stable in [StableHow::Unstable, StableHow::FileSync] {
        let (old, new) = (text(5000), noise(5000));
        let call = bench.message(PROGRAM, 1, WRITEZ, &writez(&file, stable, &old));
        let reply = bench.exchange(&call).unwrap();
        assert_eq!(bench.contents(&file), old);
        assert_eq!(status(&bench.plain(&file, &new)), 0);
        assert_eq!(bench.exchange(&call).unwrap(), reply);
        assert_eq!(bench.contents(&file), new, "executed twice");
    }
}

#[test]
fn writez_and_readz_are_refused_where_write_and_read_are() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let data = text(600);
    assert_eq!(status(&bench.writez(&file, StableHow::FileSync, &data)), 0);
    let check = |bench: &mut Bench, object: &[u8], write: NfsStat3, read: NfsStat3| {
        let refused = bench.writez(object, StableHow::FileSync, &data);
        assert_eq!(status(&refused), write as u32);
        assert_eq!(refused, bench.plain(object, &data));
        let [plain, compressed] = bench.reads(object, 0, 600);
        assert_eq!(status(&compressed), read as u32);
        assert!(read == NfsStat3::Ok || plain == compressed);
    };
    // Nothing is decompressed for whom the share is not.
    let check_first = |bench: &mut Bench, object: &[u8], expected: NfsStat3| {
        let nonsense = of_frame(object, StableHow::FileSync, b"nonsense", 600);
        let refused = bench.call(PROGRAM, 1, WRITEZ, &nonsense);
        assert_eq!(status(&refused), expected as u32);
    };
    check(&mut bench, b"forged", NfsStat3::BadHandle, NfsStat3::BadHandle);
    check_first(&mut bench, b"forged", NfsStat3::BadHandle);
    let refused = bench.writez(&root, StableHow::FileSync, &data);
    assert_ne!(status(&refused), 0, "a directory");
    assert_eq!(refused, bench.plain(&root, &data));
    // The same file by a share that may not be written to.
    let read_only = bench.mount("/ro").unwrap();
    let found = bench.nfs(3, |w| {
        w.opaque(&read_only);
        w.opaque(b"f");
    });
    let mut r = Reader::new(&found);
    assert_eq!(r.u32(), Ok(0));
    let by_read_only = r.opaque(64).unwrap().to_vec();
    check(&mut bench, &by_read_only, NfsStat3::RoFs, NfsStat3::Ok);
    check_first(&mut bench, &by_read_only, NfsStat3::RoFs);
    // Another user, of whom the file is not.
    let results = bench.nfs(2, |w| {
        w.opaque(&file);
        for word in [1, 0o600, 0, 0, 0, 0, 0, 0] {
            w.u32(word);
        }
    });
    assert_eq!(status(&results), 0);
    bench.uid = 1000;
    check(&mut bench, &file, NfsStat3::Acces, NfsStat3::Acces);
    bench.uid = 0;
    // An address that the share is not for.
    let known = bench.peer.address;
    bench.come_from("10.0.0.1:700".parse().unwrap());
    check(&mut bench, &file, NfsStat3::Acces, NfsStat3::Acces);
    check_first(&mut bench, &file, NfsStat3::Acces);
    bench.come_from(known);
    let results = bench.nfs(12, |w| {
        w.opaque(&root);
        w.opaque(b"f");
    });
    assert_eq!(status(&results), 0);
    check(&mut bench, &file, NfsStat3::Stale, NfsStat3::Stale);
}

#[test]
fn frames_that_are_faulty_or_too_long_change_nothing() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let data = text(5000);
    let good = frame::compress(&data).unwrap();
    let zeros = frame::compress(&vec![0; TCP_BYTES_MAX + 1]).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (frame, count) in [
        (&good[..], 4999),
        (&good, 5001),
        (&good, 0),
        (&good, u32::MAX as usize),
        (&good[..good.len() - 1], 5000),
        (&[&good[..], &good].concat(), 5000),
        (&[&good[..], &good].concat(), 10_000),
        (&damaged, 5000),
        (&data, 5000),
        (b"", 0),
        (&zeros, TCP_BYTES_MAX + 1),
        (&zeros, TCP_BYTES_MAX),
    ] {
        let arguments = of_frame(&file, StableHow::FileSync, frame, count);
        let refused = bench.call(PROGRAM, 1, WRITEZ, &arguments);
        // NFS3ERR_INVAL, and no attributes.
        assert_eq!(refused, super::words(&[22, 0, 0]), "{count}");
        assert!(bench.contents(&file).is_empty());
    }
    let most = text(TCP_BYTES_MAX);
    assert_eq!(status(&bench.writez(&file, StableHow::FileSync, &most)), 0);
    assert!(bench.contents(&file) == most);
    let by_udp = Peer::new(bench.peer.address, bench.peer.local, Transport::Udp);
    bench.peer = by_udp;
    for (bytes, wanted) in [(UDP_BYTES_MAX, 0), (UDP_BYTES_MAX + 1, 22)] {
        assert_eq!(status(&bench.writez(&file, StableHow::FileSync, &text(bytes))), wanted);
    }
    // Arguments that end early are none.
    let mut cut = writez(&file, StableHow::FileSync, &data);
    cut.truncate(cut.len() - 4);
    let call = bench.message(PROGRAM, 1, WRITEZ, &cut);
    let reply = bench.exchange(&call).unwrap();
    assert_eq!(reply[20..], 4_u32.to_be_bytes(), "GARBAGE_ARGS");
}

#[test]
fn readz_tells_what_read_tells() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    for (data, is_shorter) in [(text(100_000), true), (noise(100_000), false)] {
        assert_eq!(status(&bench.plain(&file, &data)), 0);
        for (offset, count) in
            [(0, 100_000), (1, 50_000), (90_000, 1 << 20), (99_900, 4096), (100_000, 600), (7, 511)]
        {
            let [plain, compressed] = bench.reads(&file, offset, count);
            let Res3::Ok(plain) = Read3Res::decode(&mut Reader::new(&plain)).unwrap() else {
                panic!("it is read")
            };
            let mut r = Reader::new(&compressed);
            let Res3::Ok(told) = ReadzRes::decode(&mut r).unwrap() else { panic!("it is read") };
            assert!(r.is_empty());
            let attributes =
                |of: Option<steadfast_wire::nfs3::Fattr3>| of.map(|of| (of.fileid, of.size));
            assert_eq!(attributes(told.file_attributes), attributes(plain.file_attributes));
            assert_eq!((told.count, told.eof), (plain.count, plain.eof));
            let is_worth_it = is_shorter && plain.data.len() >= frame::DATA_BYTES_MIN;
            assert_eq!(told.is_compressed, is_worth_it, "{offset} {count}");
            if told.is_compressed {
                assert!(told.data.len() * 2 < plain.data.len(), "{}", told.data.len());
                let data = frame::decompress(told.data, told.count as usize).unwrap();
                assert!(data == plain.data);
            } else {
                assert!(told.data == plain.data);
            }
        }
    }
}

/// While a READZ compresses the next one comes.
struct Crowd<'b> {
    bench: &'b Bench,
    message: &'b [u8],
    still_come: usize,
    /// Data and whether it was compressed, of those that are answered.
    answered: Vec<(Vec<u8>, bool)>,
}

impl Crowd<'_> {
    fn come(&mut self) {
        let Bench { engine, peer, .. } = self.bench;
        let message = self.message;
        let mut reply = ReplyBuffer::default();
        let verdict = engine.call(self, peer, 0, message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied), "{verdict:?}");
        let mut r = Reader::new(&reply.bytes[24..]);
        let Res3::Ok(told) = ReadzRes::decode(&mut r).unwrap() else { panic!("it is read") };
        assert!(r.is_empty());
        let data = if told.is_compressed {
            frame::decompress(told.data, told.count as usize).unwrap()
        } else {
            told.data.to_vec()
        };
        self.answered.push((data, told.is_compressed));
    }
}

impl CallHost for Crowd<'_> {
    fn may_block(&mut self) {
        if let Some(left) = self.still_come.checked_sub(1) {
            self.still_come = left;
            self.come();
        }
    }

    fn will_block(&mut self) {}
}

#[test]
fn as_many_readz_compress_at_once_as_may_and_others_get_data_as_it_is() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let data = text(5000);
    assert_eq!(status(&bench.plain(&file, &data)), 0);
    let arguments = written(&Read3Args { file: NfsFh3(&file), offset: 0, count: 5000 });
    let message = bench.message(PROGRAM, 1, READZ, &arguments);
    // What they took is given back: the second time is as the first.
    for most in [None, None, Some(5), Some(3), Some(0)] {
        if let Some(most) = most {
            bench.engine.set_compressions_max(most);
        }
        let most = most.unwrap_or(1);
        let (bench, message) = (&bench, &message[..]);
        let mut crowd = Crowd { bench, message, still_come: most + 7, answered: Vec::new() };
        crowd.come();
        // The last one has nobody come while it is answered: it lends nothing.
        assert_eq!(crowd.still_come, 7);
        let compressed: Vec<bool> = crowd.answered.iter().map(|(_, is)| *is).collect();
        assert_eq!(compressed, [vec![false], vec![true; most]].concat());
        assert!(crowd.answered.iter().all(|(told, _)| *told == data));
    }
}
