//! What one plain TCP stream over loopback reaches: the measure for streams of file data.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_sys::scheduling;

/// Bytes of a write, and the most of a read.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// More memory than this is not taken, beside that of the files.
const DATA_BYTES_MAX: u64 = 512 << 20;
/// Not measured: until buffers and window have grown.
const WARM_UP: Duration = Duration::from_millis(200);
/// The receiver does not wait longer for a sender that has died.
const PATIENCE: Duration = Duration::from_secs(10);

/// MiB a second of one stream of 1 MiB writes, of so many bytes of data in turn, 512 MiB at most: with
/// 1 MiB all of it stays in a CPU's cache, with as much as files have it comes from where theirs does,
/// which is memory if they are many or large. The sender runs on the CPUs of the server's process, if
/// that is known, as the server's sender does; the receiver where this program runs.
pub(crate) fn mib_per_second(
    duration: Duration,
    server_pid: Option<u32>,
    data_bytes: u64,
) -> io::Result<f64> {
    let chunks =
        usize::try_from(data_bytes.min(DATA_BYTES_MAX)).unwrap_or(WRITE_BYTES) / WRITE_BYTES;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_too = Arc::clone(&is_over);
    let cpus = server_pid.and_then(cpus_of);
    let sender = std::thread::spawn(move || -> io::Result<()> {
        if let Some(cpus) = cpus {
            // Where that is not allowed, it runs where it may.
            let _ = scheduling::pin_current_thread(&cpus);
        }
        // The receiver's warm-up begins when it is connected.
        let data = vec![1; chunks.max(1) * WRITE_BYTES];
        let mut stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        for chunk in data.chunks_exact(WRITE_BYTES).cycle() {
            if is_over_too.load(Ordering::Relaxed) {
                break;
            }
            stream.write_all(chunk)?;
        }
        Ok(())
    });
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; WRITE_BYTES];
    let mut receive = |duration: Duration| -> io::Result<f64> {
        let (started, mut bytes) = (Instant::now(), 0_u64);
        while started.elapsed() < duration {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => bytes += count as u64,
            }
        }
        Ok(bytes as f64 / started.elapsed().as_secs_f64() / 1_048_576.0)
    };
    let outcome = receive(WARM_UP).and_then(|_| receive(duration));
    is_over.store(true, Ordering::Relaxed);
    // Ends a write that waits for the receiver; its error is of no interest.
    drop(stream);
    let _ = sender.join();
    outcome
}

/// The CPUs that a process may run on.
fn cpus_of(pid: u32) -> Option<Vec<usize>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(scheduling::parse_cpu_list(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_over_loopback_has_a_rate() {
        let pid = std::process::id();
        assert_eq!(cpus_of(pid).unwrap(), scheduling::allowed_cpus().unwrap());
        for data_bytes in [0, 1 << 20, (5 << 20) + 1] {
            assert!(
                mib_per_second(Duration::from_millis(50), Some(pid), data_bytes).unwrap() > 1.0
            );
        }
    }
}
