//! Who asks, and what he may.

use std::net::SocketAddr;
use std::sync::Arc;

use steadfast_sys::process;

use crate::api::Who;

/// What a process calls itself, at most, in bytes (`TASK_COMM_LEN`).
const PROGRAM_BYTES_MAX: usize = 16;

/// Who may change something. The user that the server runs as and root always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Members of this group too.
    pub admin_group: Option<u32>,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    who: Who,
    may_change: bool,
    /// What he has to send with each request.
    token: Option<Arc<str>>,
    /// Whether he is at the place for monitoring, where there is little else.
    is_scraper: bool,
}

impl Peer {
    /// One on this host, as the kernel noted it when he connected.
    pub(super) fn unix(stream: &tokio::net::UnixStream, permissions: Permissions) -> Self {
        let credentials = stream.peer_cred().ok();
        let uid = credentials.map(|one| one.uid());
        let pid = credentials.and_then(|one| one.pid());
        let is_admin = || {
            permissions.admin_group.is_some_and(|admins| {
                credentials.is_some_and(|one| one.gid() == admins)
                    || steadfast_sys::peer::groups(stream)
                        .is_ok_and(|groups| groups.contains(&admins))
            })
        };
        let is_ours = uid.is_some_and(|uid| uid == 0 || uid == process::effective_ids().0);
        let who = Who { uid, pid, program: pid.and_then(program), address: None };
        Self { who, may_change: is_ours || is_admin(), token: None, is_scraper: false }
    }

    /// One somewhere else, who shows by a token that he may.
    pub(super) fn tcp(address: SocketAddr, token: Arc<str>) -> Self {
        let who = Who { address: Some(address), ..Who::default() };
        Self { who, may_change: true, token: Some(token), is_scraper: false }
    }

    /// One who comes for metrics, with a token if there is one.
    pub(super) fn scraper(address: SocketAddr, token: Option<Arc<str>>) -> Self {
        let who = Who { address: Some(address), ..Who::default() };
        Self { who, may_change: false, token, is_scraper: true }
    }

    /// For the history.
    pub fn who(&self) -> &Who {
        &self.who
    }

    /// Whether he may change something.
    pub fn may_change(&self) -> bool {
        self.may_change
    }

    /// Whether he is at the place for monitoring, where there is little else.
    pub(super) fn is_scraper(&self) -> bool {
        self.is_scraper
    }

    /// Whose token he has to send.
    pub(super) fn token_place(&self) -> &'static str {
        if self.is_scraper { "token_file in [metrics]" } else { "the server's state directory" }
    }

    /// Whether what he sent as `Authorization` lets him in.
    pub(super) fn is_let_in(&self, authorization: Option<&[u8]>) -> bool {
        let Some(token) = &self.token else { return true };
        let sent = authorization.and_then(|text| text.strip_prefix(b"Bearer "));
        sent.is_some_and(|sent| is_equal(sent.trim_ascii(), token.as_bytes()))
    }

    /// One who may do this or that, for tests of routes.
    #[cfg(test)]
    pub(crate) fn for_tests(may_change: bool) -> Self {
        let who = Who { uid: Some(7), pid: Some(8), ..Who::default() };
        Self { who, may_change, token: None, is_scraper: false }
    }
}

/// What a process calls itself. It may be another one by now, or lie: it is for people.
fn program(pid: i32) -> Option<String> {
    let text = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let text = text.get(..text.len().min(PROGRAM_BYTES_MAX))?;
    Some(String::from_utf8_lossy(text).trim_end().to_owned())
}

/// Whether two texts are one, found out in a time that tells nothing but their lengths.
fn is_equal(sent: &[u8], known: &[u8]) -> bool {
    let differences = sent.iter().zip(known).fold(0, |all, (a, b)| all | (a ^ b));
    sent.len() == known.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_lets_in() {
        let peer = Peer::tcp(([127, 0, 0, 1], 9).into(), "secret".into());
        assert!(peer.is_let_in(Some(b"Bearer secret")));
        for wrong in
            [&b"Bearer secre"[..], b"Bearer secrets", b"secret", b"Bearer ", b"Basic secret"]
        {
            assert!(!peer.is_let_in(Some(wrong)));
        }
        assert!(!peer.is_let_in(None));
    }

    #[tokio::test]
    async fn the_kernel_says_who_it_is() {
        let (one, _other) = tokio::net::UnixStream::pair().expect("a pair");
        let peer = Peer::unix(&one, Permissions::default());
        assert_eq!(peer.who().uid, Some(process::effective_ids().0));
        assert_eq!(peer.who().pid, Some(std::process::id() as i32));
        assert!(peer.who().program.is_some() && peer.may_change());
    }
}
