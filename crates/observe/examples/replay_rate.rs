//! How many packets a second become calls on one core: reads a pcap or pcapng file into memory, and takes its packets
//! through the dissector and the tables several times. `replay_rate FILE [PORT...]`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use steadfast_observe::capture::file::{FileError, PacketFile};
use steadfast_observe::capture::{Dissector, Tables};

const ROUNDS: u32 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let file = std::fs::read(words.next().ok_or("which file?")?)?;
    let ports = words.map(|word| word.parse()).collect::<Result<Vec<u16>, _>>()?;
    let ports = if ports.is_empty() { vec![2049, 111] } else { ports };
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let (packets, bytes, calls) = round(&file, &ports)?;
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{packets} packets of {bytes} bytes, {calls} calls in {seconds:.3} s: {:.0} packets/s, {:.0} calls/s, \
             {:.2} GB/s",
            packets as f64 / seconds,
            calls as f64 / seconds,
            bytes as f64 / seconds / 1e9,
        );
    }
    Ok(())
}

fn round(bytes: &[u8], ports: &[u16]) -> Result<(u64, u64, u64), FileError> {
    let mut file = PacketFile::new(bytes)?;
    let mut dissector = Dissector::new(ports.iter().copied());
    let mut tables = Tables::default();
    while let Some(packet) = file.next_packet()? {
        dissector.handle_packet(&packet, &mut tables);
    }
    let counts = dissector.counts();
    Ok((counts.packets, counts.bytes, tables.total().calls))
}
