//! Asks the host's name servers one question each, and measures how long they take. A server that is dead
//! costs every look-up its time-out: 5 s by default, twice (resolv.conf(5)).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::facts::{NameServer, Unseen};
use super::parse::host;
use crate::machine::{Machine, why};

/// How long an answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// When the question is sent again: one lost datagram is no dead server.
const AGAIN: Duration = Duration::from_millis(700);

/// Asks all of them at once. Takes [`PATIENCE`] at the most, and a moment.
pub(crate) fn ask(machine: &Machine, unseen: &mut Vec<Unseen>) -> Vec<NameServer> {
    if !host::asks_dns(&machine.read("/etc/nsswitch.conf").unwrap_or_default()) {
        return Vec::new();
    }
    let text = match machine.read("/etc/resolv.conf") {
        Ok(text) => text,
        Err(error) => {
            unseen.push(Unseen { what: "/etc/resolv.conf".to_owned(), why: why(&error) });
            return Vec::new();
        }
    };
    let resolver = host::resolver(&text);
    let (send, receive) = mpsc::channel();
    for (index, address) in resolver.servers.iter().copied().enumerate() {
        let send = send.clone();
        let asked = thread::Builder::new().name("name-server".to_owned()).spawn(move || {
            let began = Instant::now();
            let _ = send.send((index, question(address), began.elapsed().as_secs_f64()));
        });
        if let Err(error) = asked {
            unseen.push(Unseen { what: format!("name server {address}"), why: error.to_string() });
        }
    }
    drop(send);
    let mut servers: Vec<NameServer> = resolver
        .servers
        .iter()
        .map(|address| NameServer {
            address: *address,
            answered_s: None,
            waited_s: PATIENCE.as_secs_f64(),
            timeout_s: resolver.timeout_s.saturating_mul(resolver.attempts),
            refusal: None,
        })
        .collect();
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(500);
    while let Ok((index, answer, took_s)) =
        receive.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Some(server) = servers.get_mut(index) {
            take(server, answer, took_s);
        }
    }
    servers
}

/// Notes what became of a question.
fn take(server: &mut NameServer, answer: io::Result<f64>, took_s: f64) {
    match answer {
        Ok(answered_s) => server.answered_s = Some(answered_s),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
        // Nobody listens there, or there is no way to it: the C library learns that at once, too.
        Err(error) => {
            server.waited_s = took_s;
            server.timeout_s = 0;
            server.refusal = Some(why(&error));
        }
    }
}

/// Seconds until an answer of any kind comes: also a refusal is one of a living server.
fn question(server: SocketAddr) -> io::Result<f64> {
    let any: SocketAddr =
        if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // Connected: the kernel drops what others send, and tells of a port where nobody listens.
    socket.connect(server)?;
    let id = (Instant::now().elapsed().subsec_nanos() as u16) ^ (std::process::id() as u16);
    let packet = packet(id);
    let began = Instant::now();
    let mut answer = [0_u8; 512];
    let mut again = Duration::ZERO;
    loop {
        let waited = began.elapsed();
        if waited >= PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Not after each answer that belongs to no question: who sends such decides how many come.
        if waited >= again {
            socket.send(&packet)?;
            again = waited + AGAIN;
        }
        let left = again.min(PATIENCE).saturating_sub(waited);
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.recv(&mut answer) {
            Ok(length) if answer.get(..2.min(length)) == Some(&id.to_be_bytes()) => {
                return Ok(began.elapsed().as_secs_f64());
            }
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A question for the name servers of the root (RFC 1035 §4.1), which every server knows.
fn packet(id: u16) -> [u8; 17] {
    let [high, low] = id.to_be_bytes();
    // Recursion is desired; one question; the root's name; NS; IN.
    [high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_answers_is_measured_and_a_dead_one_is_given_up() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = server.local_addr().expect("an address");
        let answering = thread::spawn(move || {
            let mut question = [0; 512];
            let (length, peer) = server.recv_from(&mut question).expect("a question");
            assert_eq!(length, 17);
            // An odd answer first: it belongs to no question.
            server.send_to(&[!question[0], 0, 0], peer).expect("sent");
            server.send_to(&question[..length], peer).expect("sent");
            // The question may come again meanwhile.
            let _ = server.set_read_timeout(Some(Duration::from_millis(1500)));
            while let Ok((length, peer)) = server.recv_from(&mut question) {
                let _ = server.send_to(&question[..length], peer);
            }
        });
        let took = question(address).expect("an answer");
        assert!(took < PATIENCE.as_secs_f64());
        answering.join().expect("ended");
        // Nobody has the port any more.
        let mut told =
            NameServer { address, answered_s: None, waited_s: 2.0, timeout_s: 10, refusal: None };
        take(&mut told, question(address), 0.1);
        assert!(told.refusal.is_some() && told.answered_s.is_none(), "{told:?}");
        assert_eq!((told.timeout_s, told.waited_s), (0, 0.1), "nobody waits for it");
        // It has the port, and says nothing.
        let dead = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let began = Instant::now();
        assert!(question(dead.local_addr().expect("an address")).is_err());
        assert!(began.elapsed() >= PATIENCE);
    }

    #[test]
    fn wrong_answers_do_not_make_more_questions() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = server.local_addr().expect("an address");
        let answering = thread::spawn(move || {
            let mut question = [0; 512];
            let (_, peer) = server.recv_from(&mut question).expect("a question");
            for _ in 0..100 {
                server.send_to(&[!question[0], 0, 0], peer).expect("sent");
            }
            let mut more = 0;
            let _ = server.set_read_timeout(Some(Duration::from_millis(1500)));
            while server.recv_from(&mut question).is_ok() {
                more += 1;
            }
            more
        });
        assert!(question(address).is_err());
        let more = answering.join().expect("ended");
        assert!((1..=3).contains(&more), "{more}");
    }
}
