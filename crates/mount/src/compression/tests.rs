//! Unit ring: a server that answers WRITEZ and READZ, or does not.

use std::cell::RefCell;

use steadfast_client::{FileHandle, Identity, Nfs3Client, RpcTransport, StableHow, recovery};
use steadfast_wire::nfs3::{Fattr3, WccData3, Write3Ok};
use steadfast_wire::recovery::ReadzOk;

use super::*;

const FILE: &[u8] = b"a file";

fn status(has_compression: bool) -> RecoveryStatus {
    RecoveryStatus {
        is_async: false,
        verifier: [0; 8],
        is_recorded: false,
        is_waiting: false,
        is_waited_for: false,
        has_compression,
    }
}

fn text(bytes: usize) -> Vec<u8> {
    b"It was the best of times, it was the worst of times. "
        .iter()
        .copied()
        .cycle()
        .take(bytes)
        .collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// A file at a server, and the calls that came.
#[derive(Default)]
struct Server {
    data: RefCell<Vec<u8>>,
    calls: RefCell<Vec<(&'static str, usize)>>,
    /// How it refuses procedures of the recovery program.
    refuses: Option<AcceptedError>,
    /// What it answers WRITEZ with, and WRITE.
    writes_fail_with: [Option<NfsStat3>; 2],
    /// How its replies to READZ are faulty.
    fault: Option<Fault>,
}

#[derive(Clone, Copy)]
enum Fault {
    /// The data is longer than it says.
    Length,
    /// The reply ends too early.
    Cut,
    /// There is more behind it.
    Trailing,
}

fn success(results: impl FnOnce(&mut Writer<'_>)) -> Reply {
    let mut message = vec![0; 24];
    results(&mut Writer::new(&mut message));
    Reply { xid: 1, body: ReplyBody::Success { results_at: 24 }, message }
}

impl Server {
    fn carry(&self, procedure: Procedure, arguments: &[u8]) -> Reply {
        self.calls.borrow_mut().push((procedure.name, arguments.len()));
        if let (recovery::RECOVERY, Some(refused)) = (procedure.program, self.refuses) {
            return Reply { xid: 1, body: ReplyBody::Accepted(refused), message: Vec::new() };
        }
        let [writez, write] = self.writes_fail_with;
        let failure = match procedure.name {
            "WRITEZ" => writez,
            "WRITE" => write,
            _ => None,
        };
        if let Some(status) = failure {
            let wcc = WccData3 { before: None, after: None };
            return success(|w| Res3::<Write3Ok, _>::Failed(status, wcc).encode(w));
        }
        let mut r = Reader::new(arguments);
        match procedure.name {
            "WRITE" => {
                let call = Write3Args::decode(&mut r).unwrap();
                self.written(call.offset, call.data)
            }
            "WRITEZ" => {
                let call = WritezArgs::decode(&mut r).unwrap();
                self.written(
                    call.offset,
                    &frame::decompress(call.frame, call.count as usize).unwrap(),
                )
            }
            "READ" => {
                let (data, eof) = self.read(&mut r);
                let count = data.len() as u32;
                let told = Read3Ok { file_attributes: None, count, eof, data: &data };
                success(|w| Res3::<_, Option<Fattr3>>::Ok(told).encode(w))
            }
            "READZ" => {
                let (data, eof) = self.read(&mut r);
                let count =
                    data.len() as u32 - u32::from(matches!(self.fault, Some(Fault::Length)));
                let frame = frame::compress(&data);
                let is_compressed = frame.is_some();
                let data = frame.as_deref().unwrap_or(&data);
                let told = ReadzOk { file_attributes: None, count, eof, is_compressed, data };
                let mut reply = success(|w| ReadzRes::Ok(told).encode(w));
                match self.fault {
                    Some(Fault::Cut) => reply.message.truncate(reply.message.len() - 4),
                    Some(Fault::Trailing) => reply.message.extend([0; 4]),
                    Some(Fault::Length) | None => {}
                }
                reply
            }
            name => panic!("{name}"),
        }
    }

    fn written(&self, offset: u64, data: &[u8]) -> Reply {
        let mut file = self.data.borrow_mut();
        let bytes = file.len().max(offset as usize + data.len());
        file.resize(bytes, 0);
        file[offset as usize..][..data.len()].copy_from_slice(data);
        let told = Write3Ok {
            file_wcc: WccData3 { before: None, after: None },
            count: data.len() as u32,
            committed: StableHow::FileSync,
            verf: [7; 8],
        };
        success(|w| Res3::<_, WccData3>::Ok(told).encode(w))
    }

    fn read(&self, r: &mut Reader<'_>) -> (Vec<u8>, bool) {
        let call = Read3Args::decode(r).unwrap();
        let file = self.data.borrow();
        let rest = file.get(call.offset as usize..).unwrap_or(&[]);
        let data = rest.get(..call.count as usize).unwrap_or(rest);
        (data.to_vec(), data.len() == rest.len())
    }

    fn names(&self) -> Vec<&'static str> {
        self.calls.take().into_iter().map(|(name, _)| name).collect()
    }
}

struct Way<'a>(&'a Compression, &'a Server);

impl RpcTransport for Way<'_> {
    fn exchange(&mut self, procedure: Procedure, _: &Identity, arguments: &[u8]) -> Outcome {
        self.0.exchange(procedure, arguments, |procedure, arguments| {
            Ok(self.1.carry(procedure, arguments))
        })
    }
}

fn client<'a>(compression: &'a Compression, server: &'a Server) -> Nfs3Client<Way<'a>> {
    Nfs3Client::new(Way(compression, server), Identity::root())
}

#[test]
fn text_is_written_and_read_with_less_than_half_its_bytes() {
    let (server, compression) = (Server::default(), Compression::agreed(&Ok(status(true))));
    let file = FileHandle(FILE.to_vec());
    let data = text(100_000);
    let mut nfs = client(&compression, &server);
    let written = nfs.write(&file, 5, &data, StableHow::Unstable).unwrap();
    assert_eq!((written.count, written.verifier), (100_000, [7; 8]));
    let [("WRITEZ", sent)] = server.calls.take()[..] else { panic!("another call") };
    assert!(sent * 2 < data.len(), "{sent}");
    assert_eq!(server.data.borrow()[5..], data);
    let read = nfs.read(&file, 5, 200_000).unwrap();
    assert!(read.eof && read.data == data && read.count == 100_000);
    assert_eq!(server.names(), ["READZ"]);
    let told = compression.told();
    assert!(told.is_used && told.why_not.is_none());
    assert_eq!((told.sent_bytes, told.received_bytes), (100_000, 100_000));
    assert!(told.sent_as_bytes * 2 < told.sent_bytes && told.sent_as_bytes > 0, "{told:?}");
    assert!(told.received_as_bytes * 2 < told.received_bytes, "{told:?}");
}

#[test]
fn what_does_not_become_shorter_is_tried_once_in_16_calls() {
    let (server, compression) = (Server::default(), Compression::agreed(&Ok(status(true))));
    let mut nfs = client(&compression, &server);
    let file = FileHandle(FILE.to_vec());
    let (noise, text) = (noise(4096), text(4096));
    let is_elsewhere =
        |file: &FileHandle| compression.place_of(file.as_bytes()) != compression.place_of(FILE);
    let other = (0..=u8::MAX).map(|name| FileHandle(vec![name])).find(is_elsewhere).unwrap();
    for number in 0..40 {
        nfs.write(&file, number * 4096, &noise, StableHow::Unstable).unwrap();
        nfs.write(&other, 1 << 20, &text, StableHow::Unstable).unwrap();
    }
    // Another file is compressed all the time.
    assert_eq!(server.names(), ["WRITE", "WRITEZ"].repeat(40));
    for number in 0..40 {
        assert_eq!(nfs.read(&file, number * 4096, 4096).unwrap().data, noise);
    }
    let tried: Vec<usize> = server
        .names()
        .iter()
        .enumerate()
        .filter(|(_, name)| **name == "READZ")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(tried, [0, 16, 32]);
    // As soon as it does become shorter each is tried: the 41st is not due, the 49th is.
    for _ in 0..12 {
        nfs.write(&file, 0, &text, StableHow::Unstable).unwrap();
    }
    assert_eq!(server.names()[..], [vec!["WRITE"; 8], vec!["WRITEZ"; 4]].concat());
}

#[test]
fn short_data_and_other_calls_go_as_they_are() {
    let (server, compression) = (Server::default(), Compression::agreed(&Ok(status(true))));
    let mut nfs = client(&compression, &server);
    let file = FileHandle(FILE.to_vec());
    nfs.write(&file, 0, &text(frame::DATA_BYTES_MIN - 1), StableHow::Unstable).unwrap();
    nfs.read(&file, 0, 100).unwrap();
    assert_eq!(server.names(), ["WRITE", "READ"]);
    // The end of a file, which is short, says nothing of what follows.
    for _ in 0..3 {
        nfs.read(&file, 100, 4096).unwrap();
    }
    assert_eq!(server.names(), ["READZ"; 3]);
}

#[test]
fn a_server_without_it_is_told_of_and_gets_what_it_knows() {
    let refused = |error| Err(ClientError::Accepted(error));
    for (asked, why) in [
        (Ok(status(false)), "an older Steadfast"),
        (refused(AcceptedError::ProgramUnavailable), "no recovery program"),
        (refused(AcceptedError::ProgramMismatch { low: 2, high: 2 }), "no recovery program"),
        (Err(ClientError::Closed), "does not say"),
    ] {
        let (server, compression) = (Server::default(), Compression::agreed(&asked));
        let mut nfs = client(&compression, &server);
        let file = FileHandle(FILE.to_vec());
        nfs.write(&file, 0, &text(4096), StableHow::Unstable).unwrap();
        nfs.read(&file, 0, 4096).unwrap();
        assert_eq!(server.names(), ["WRITE", "READ"]);
        let told = compression.told();
        assert!(!told.is_used && told.why_not.unwrap().contains(why), "{why}");
    }
}

#[test]
fn a_server_that_refuses_it_later_gets_the_call_as_it_was_and_no_other() {
    for refused in [
        AcceptedError::ProgramUnavailable,
        AcceptedError::ProcedureUnavailable,
        AcceptedError::GarbageArguments,
    ] {
        let server = Server { refuses: Some(refused), ..Server::default() };
        let compression = Compression::agreed(&Ok(status(true)));
        let mut nfs = client(&compression, &server);
        let file = FileHandle(FILE.to_vec());
        let data = text(4096);
        for _ in 0..2 {
            nfs.write(&file, 0, &data, StableHow::Unstable).unwrap();
        }
        assert_eq!(server.names(), ["WRITEZ", "WRITE", "WRITE"]);
        assert_eq!(nfs.read(&file, 0, 4096).unwrap().data, data);
        assert_eq!(server.names(), ["READ"]);
        assert!(compression.told().why_not.unwrap().contains("any more"));
    }
}

#[test]
fn a_server_that_takes_no_writez_with_inval_gets_a_write_and_no_data_is_lost() {
    let server = Server { writes_fail_with: [Some(NfsStat3::Inval), None], ..Server::default() };
    let compression = Compression::agreed(&Ok(status(true)));
    let mut nfs = client(&compression, &server);
    let file = FileHandle(FILE.to_vec());
    let data = text(4096);
    for _ in 0..2 {
        assert_eq!(nfs.write(&file, 0, &data, StableHow::Unstable).unwrap().count, 4096);
    }
    assert_eq!(server.names(), ["WRITEZ", "WRITE", "WRITE"]);
    assert_eq!(*server.data.borrow(), data);
    let told = compression.told();
    assert!(!told.is_used && told.why_not.unwrap().contains("NFS3ERR_INVAL"));
    assert_eq!((told.sent_bytes, told.sent_as_bytes), (0, 0), "it was not taken");
}

#[test]
fn writes_that_fail_either_way_end_nothing_and_are_not_counted_as_sent() {
    let compression = Compression::agreed(&Ok(status(true)));
    let file = FileHandle(FILE.to_vec());
    let (inval, full) = (Some(NfsStat3::Inval), Some(NfsStat3::NoSpc));
    for (writes_fail_with, error, calls) in [
        ([inval, inval], NfsStat3::Inval, vec!["WRITEZ", "WRITE"]),
        ([inval, full], NfsStat3::NoSpc, vec!["WRITEZ", "WRITE"]),
        ([full, None], NfsStat3::NoSpc, vec!["WRITEZ"]),
    ] {
        let server = Server { writes_fail_with, ..Server::default() };
        let mut nfs = client(&compression, &server);
        let failed = nfs.write(&file, 0, &text(4096), StableHow::Unstable).unwrap_err();
        assert_eq!(failed.status(), Some(error), "{failed}");
        assert_eq!(server.names(), calls);
        let told = compression.told();
        assert!(told.is_used);
        assert_eq!((told.sent_bytes, told.sent_as_bytes), (0, 0));
    }
}

#[test]
fn why_it_ended_is_told_once() {
    let compression = Compression::agreed(&Ok(status(true)));
    compression.end("the first");
    compression.end("the second");
    assert_eq!(compression.told().why_not.as_deref(), Some("the first"));
}

#[test]
fn a_faulty_reply_to_readz_is_no_data_and_the_reader_gets_it_by_read() {
    for fault in [Fault::Length, Fault::Cut, Fault::Trailing] {
        for data in [text(4096), noise(4096)] {
            let server = Server {
                fault: Some(fault),
                data: RefCell::new(data.clone()),
                ..Server::default()
            };
            let compression = Compression::agreed(&Ok(status(true)));
            let mut nfs = client(&compression, &server);
            let file = FileHandle(FILE.to_vec());
            for _ in 0..2 {
                assert_eq!(nfs.read(&file, 0, 4096).unwrap().data, data);
            }
            assert_eq!(server.names(), ["READZ", "READ", "READ"]);
            let told = compression.told();
            assert!(told.why_not.unwrap().contains("no data"));
            assert_eq!((told.received_bytes, told.received_as_bytes), (0, 0));
        }
    }
    // More than was asked for.
    let honest = Server { data: RefCell::new(text(8192)), ..Server::default() };
    let compression = Compression::agreed(&Ok(status(true)));
    let arguments = |count| steadfast_client::arguments::read(&FileHandle(b"x".to_vec()), 0, count);
    let outcome = compression.exchange(procedure::READ, &arguments(600), |procedure, _| {
        let count = if procedure.name == "READZ" { 8192 } else { 600 };
        Ok(honest.carry(procedure, &arguments(count)))
    });
    assert!(has_status(&outcome, NfsStat3::Ok));
    assert_eq!(honest.names(), ["READZ", "READ"]);
    assert!(!compression.told().is_used);
}
