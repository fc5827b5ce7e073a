//! A name server for measurements, on a port of its own on loopback. It prints its address, and then
//! does what lines of its standard input say: `host NAME ADDRESS`, `ttl SECONDS`, `silent`,
//! `answers`, `asked` (prints how many questions have come so far). It ends with its input.

use std::io::{BufRead, Write};

use steadfast_access::testing::{Behavior, DnsServer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = DnsServer::start();
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", server.address())?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["host", name, address] => server.set_both(name, address.parse()?),
            ["ttl", seconds] => server.set_ttl(seconds.parse()?),
            ["silent"] => server.set_behavior(Behavior::Drop),
            ["answers"] => server.set_behavior(Behavior::Answer),
            ["asked"] => writeln!(output, "{}", server.asked())?,
            _ => return Err(format!("not understood: {line}").into()),
        }
    }
    Ok(())
}
