//! Contending as a client of its own, without the kernel's: by NFSv4.1, which is called back, and by NFSv3 with
//! NLM, which asks again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_client::nfs4::{
    ACCESS_BOTH, ClientSettings, Nfs4Client, NfsStat4, Opening4, StateId4, WANT_NO_DELEGATION,
    patiently4,
};
use steadfast_client::nlm::{self, How, Lock, NlmStat};
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, RpcConnection, StableHow};
use steadfast_wire::nfs4::{LockOwner4, LockType4, Locker4};

use super::{Wanted, Way, files};

const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Who was not called back asks again after this time.
const CALLBACK_PATIENCE: Duration = Duration::from_millis(500);
/// Between two questions of NLM.
const ASKED_AGAIN: Duration = Duration::from_millis(2);

/// Server and directory, of `ADDRESS:PORT:/PATH`.
fn parsed(place: &str) -> Result<(SocketAddr, &str)> {
    let (server, path) = place.split_once(":/").context("a place without a path")?;
    let path = place.get(server.len() + 1..).unwrap_or(path);
    Ok((server.parse()?, path))
}

/// By NFSv4.1.
pub(super) struct Nfs4 {
    client: Nfs4Client<RpcConnection>,
    /// Each with its open, and what it has been locked by, once it was.
    files: Vec<(FileHandle, StateId4, Option<StateId4>)>,
}

impl Nfs4 {
    pub(super) fn connect(place: &str) -> Result<Self> {
        let (server, path) = parsed(place)?;
        let settings = ClientSettings { wants_callbacks: true, ..ClientSettings::default() };
        let connection = RpcConnection::connect(server, CALL_TIMEOUT)?;
        let mut client = Nfs4Client::connect(connection, Identity::root(), &settings)?;
        let directory = patiently4(CALL_TIMEOUT, || client.lookup_path(path.as_bytes()))?;
        let mut opened = Vec::new();
        for name in files() {
            let share_access = ACCESS_BOTH | WANT_NO_DELEGATION;
            let opening = Opening4 { share_access, ..Opening4::existing(name.as_bytes()) };
            let open = patiently4(CALL_TIMEOUT, || client.open(&directory, &opening))?;
            opened.push((open.handle, open.stateid, None));
        }
        Ok(Self { client, files: opened })
    }

    /// `is_waiting`: wants to be called back if it is denied.
    fn ask(&mut self, wanted: &Wanted, is_waiting: bool) -> Result<bool> {
        let (file, open, lock) = self.files.get_mut(wanted.file).context("a file")?;
        let kind = match (wanted.is_exclusive, is_waiting) {
            (true, false) => LockType4::Write,
            (true, true) => LockType4::WriteWaiting,
            (false, false) => LockType4::Read,
            (false, true) => LockType4::ReadWaiting,
        };
        let locker = match *lock {
            Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid: 0 },
            None => Locker4::Open {
                open_seqid: 0,
                open_stateid: *open,
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner: b"contender" },
            },
        };
        let client = &mut self.client;
        match patiently4(CALL_TIMEOUT, || client.lock_by(file, kind, wanted.range(), locker)) {
            Ok(stateid) => {
                *lock = Some(stateid);
                Ok(true)
            }
            Err(error) if error.status4() == Some(NfsStat4::Denied) => Ok(false),
            Err(error) => Err(error).context("LOCK"),
        }
    }
}

impl Way for Nfs4 {
    fn lock(&mut self, wanted: &Wanted) -> Result<bool> {
        self.ask(wanted, false)
    }

    fn wait(&mut self, wanted: &Wanted, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        loop {
            if self.ask(wanted, true)? {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.client.transport().set_timeout(left.min(CALLBACK_PATIENCE));
            let called = self.client.next_callback();
            self.client.transport().set_timeout(CALL_TIMEOUT);
            match called {
                Ok(_) | Err(ClientError::TimedOut { .. }) => {}
                Err(error) => return Err(error).context("a callback"),
            }
        }
    }

    fn unlock(&mut self, wanted: &Wanted) -> Result<()> {
        let (file, _, lock) = self.files.get_mut(wanted.file).context("a file")?;
        let stateid = lock.context("what is unlocked was locked")?;
        let client = &mut self.client;
        let freed = patiently4(CALL_TIMEOUT, || client.unlock(file, stateid, wanted.range()));
        *lock = Some(freed.context("LOCKU")?);
        Ok(())
    }

    fn read(&mut self, wanted: &Wanted) -> Result<Vec<u8>> {
        let (file, open, lock) = self.files.get(wanted.file).context("a file")?;
        let (stateid, (offset, length)) = (lock.unwrap_or(*open), wanted.data());
        let client = &mut self.client;
        let read = patiently4(CALL_TIMEOUT, || client.read(file, stateid, offset, length as u32))?;
        ensure!(read.data.len() == length, "READ was cut short");
        Ok(read.data)
    }

    fn write(&mut self, wanted: &Wanted, data: &[u8]) -> Result<()> {
        let (file, open, lock) = self.files.get(wanted.file).context("a file")?;
        let (stateid, (offset, _)) = (lock.unwrap_or(*open), wanted.data());
        let client = &mut self.client;
        let written = patiently4(CALL_TIMEOUT, || {
            client.write(file, stateid, offset, data, StableHow::Unstable)
        })?;
        ensure!(written.count as usize == data.len(), "WRITE was cut short");
        Ok(())
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        for (file, open, _) in std::mem::take(&mut self.files) {
            patiently4(CALL_TIMEOUT, || self.client.close(&file, open)).context("CLOSE")?;
        }
        self.client.destroy()?;
        Ok(())
    }
}

/// By NFSv3 and NLM.
pub(super) struct Nlm {
    client: Nfs3Client<RpcConnection>,
    files: Vec<FileHandle>,
    party: u32,
    name: String,
}

impl Nlm {
    pub(super) fn connect(place: &str, party: u32) -> Result<Self> {
        let (server, path) = parsed(place)?;
        let (mut client, directory) =
            Nfs3Client::mount(server, server, path.as_bytes(), Identity::root(), CALL_TIMEOUT)?;
        let mut found = Vec::new();
        for name in files() {
            found.push(client.lookup(&directory, name.as_bytes())?.handle);
        }
        Ok(Self { client, files: found, party, name: format!("contender-{party}") })
    }

    fn call<R>(
        &mut self,
        wanted: &Wanted,
        call: impl Fn(&mut RpcConnection, &Identity, &Lock<'_>) -> Result<R, ClientError>,
    ) -> Result<R> {
        let (offset, length) = wanted.range();
        let lock = Lock {
            caller_name: self.name.as_bytes(),
            file: self.files.get(wanted.file).context("a file")?,
            owner: self.name.as_bytes(),
            number: self.party,
            offset,
            length: if length == u64::MAX { 0 } else { length },
        };
        Ok(call(self.client.transport(), &Identity::root(), &lock)?)
    }
}

impl Way for Nlm {
    fn lock(&mut self, wanted: &Wanted) -> Result<bool> {
        let how = How { is_exclusive: wanted.is_exclusive, ..How::default() };
        loop {
            match self.call(wanted, |transport, identity, lock| {
                nlm::lock(transport, identity, lock, how)
            })? {
                NlmStat::Granted => return Ok(true),
                NlmStat::Denied | NlmStat::Blocked => return Ok(false),
                NlmStat::DeniedGracePeriod => std::thread::sleep(ASKED_AGAIN),
                other => bail!("LOCK of NLM: {other:?}"),
            }
        }
    }

    fn wait(&mut self, wanted: &Wanted, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if self.lock(wanted)? {
                return Ok(true);
            }
            std::thread::sleep(ASKED_AGAIN);
        }
        Ok(false)
    }

    fn unlock(&mut self, wanted: &Wanted) -> Result<()> {
        match self.call(wanted, nlm::unlock)? {
            NlmStat::Granted => Ok(()),
            other => bail!("UNLOCK of NLM: {other:?}"),
        }
    }

    fn read(&mut self, wanted: &Wanted) -> Result<Vec<u8>> {
        let (offset, length) = wanted.data();
        let file = self.files.get(wanted.file).context("a file")?;
        let read = self.client.read(file, offset, length as u32)?;
        ensure!(read.data.len() == length, "READ was cut short");
        Ok(read.data)
    }

    fn write(&mut self, wanted: &Wanted, data: &[u8]) -> Result<()> {
        let file = self.files.get(wanted.file).context("a file")?;
        let written = self.client.write(file, wanted.data().0, data, StableHow::Unstable)?;
        ensure!(written.count as usize == data.len(), "WRITE was cut short");
        Ok(())
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        let name = self.name.clone();
        Ok(nlm::free_all(self.client.transport(), &Identity::root(), name.as_bytes())?)
    }
}
