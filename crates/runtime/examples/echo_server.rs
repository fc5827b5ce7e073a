//! Answers every record with 128 bytes, so that load generators can measure what the transport
//! alone costs. Usage: `echo_server [ADDRESS] [SEATS]`; prints counters every second.

use std::sync::Arc;
use std::time::Duration;

use steadfast_engine::{CallHost, ParkedCall, Peer, ReplyBuffer, SuspendedCall, Verdict};
use steadfast_runtime::{Server, ServerOptions, Service};
use steadfast_vfs::FsError;

struct Canned;

impl Service for Canned {
    fn call(
        &self,
        host: &mut dyn CallHost,
        _peer: &Peer,
        _now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        // A record that begins with 1 stands for a call that may block.
        if record.first() == Some(&1) {
            host.may_block();
        }
        let start = reply.bytes.len();
        reply.bytes.extend_from_slice(record.get(..4).unwrap_or(&[0; 4]));
        reply.bytes.resize(start + 128, 0);
        Verdict::Replied
    }

    fn refuse(&self, _call: SuspendedCall, _reply: &mut Vec<u8>) {}

    fn settle(
        &self,
        _call: Box<ParkedCall>,
        _outcome: Result<(), FsError>,
        _now_ms: u64,
        _reply: &mut Vec<u8>,
    ) {
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:20490".to_owned()).parse()?;
    let seats_per_pool = arguments.next().map_or(Ok(0), |seats| seats.parse())?;
    let options =
        ServerOptions { listen: vec![address], seats_per_pool, ..ServerOptions::default() };
    let server = Server::start(options, Arc::new(Canned))?;
    println!("listening on {:?}", server.local_addresses());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        println!("{:?}", server.statistics());
    }
}
