//! The stream of messages that a server sends to `steadfast capture`: frames lie inside it, what is read is written
//! alike, and what is left of a message has an end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_control::capture::{Frame, FrameReader, MAGIC};
use steadfast_observe::capture::{Executed, Limiter, Message};

fuzz_target!(|input: &[u8]| {
    let mut reader = FrameReader::default();
    let mut limiter = Limiter::new(vec!["write".to_owned()]);
    reader.push(&MAGIC);
    let mut bytes = 0;
    for piece in input.chunks(1000) {
        reader.push(piece);
        while let Ok(Some(frame)) = reader.next_frame() {
            let mut again = MAGIC.to_vec();
            frame.write(&mut again);
            bytes += again.len() - MAGIC.len();
            assert!(bytes <= input.len());
            let mut reader = FrameReader::default();
            reader.push(&again);
            assert_eq!(reader.next_frame().ok().flatten().as_ref(), Some(&frame));
            if let Frame::Message(message) = frame {
                let limited = limiter.limit(&Message {
                    client: message.client,
                    server: message.server,
                    is_sent: message.is_sent,
                    length: message.length as usize,
                    executed: message.executed.map(|call| Executed {
                        program: call.program,
                        version: call.version,
                        procedure: call.procedure,
                    }),
                    bytes: &message.bytes,
                });
                assert!(limited.head_bytes <= message.bytes.len());
            }
        }
    }
});
