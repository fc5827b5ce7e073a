//! Calls that read and write files, by what their user has open.

use steadfast_client::nfs4::{ACCESS_READ, ACCESS_WRITE, ANONYMOUS};
use steadfast_client::{
    ClientError, Commit, FileHandle, Read, Settings, StableHow, Time, Wcc, Write,
};
use steadfast_wire::nfs4::{Commit4Args, Op4, SetAttr4Args, Write4Args};

use super::calls::{Calls4, beside, told};
use super::convert::{self, WANTED};
use super::session::{Manner, Outcome};

fn contradiction<T>(procedure: &'static str, why: &'static str) -> Outcome<T> {
    Err(ClientError::Contradiction { procedure, why })
}

impl Calls4 {
    /// Has a file open until it is closed as often.
    pub(crate) fn open(&mut self, file: &FileHandle, reads: bool, writes: bool) -> Outcome<()> {
        self.requests.open(file, super::opens::access_of(reads, writes)).map_err(convert::failed)
    }

    pub(crate) fn read(&mut self, file: &FileHandle, offset: u64, count: u32) -> Outcome<Read> {
        let read = self.requests.by_stateid(file, ACCESS_READ, |requests, stateid| {
            let read = requests.request(
                Manner::asking("READ"),
                |compound| compound.put(file).read(stateid, offset, count).attributes(WANTED),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    let result = reply.read()?;
                    let (eof, data) = (result.eof, result.data.to_vec());
                    let attributes = told(beside(reply).as_ref());
                    Ok(Read { attributes, count: data.len() as u32, eof, data })
                },
            );
            read.map(|(read, _)| read)
        });
        let read = read.map_err(convert::failed)?;
        if read.count > count {
            return contradiction("READ", "more data than was asked for");
        }
        Ok(read)
    }

    pub(crate) fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Outcome<Write> {
        let written = self.requests.by_stateid(file, ACCESS_WRITE, |requests, stateid| {
            let arguments = Write4Args { stateid, offset, stable, data };
            let written = requests.request(
                Manner::changing("WRITE"),
                |compound| compound.put(file).op(Op4::Write, &arguments).attributes(WANTED),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    let result = reply.write()?;
                    let wcc = convert::afterwards(beside(reply).as_ref());
                    let (count, committed) = (result.count, result.committed);
                    Ok(Write { wcc, count, committed, verifier: result.verifier })
                },
            );
            written.map(|(written, _)| written)
        });
        let written = written.map_err(convert::failed)?;
        if written.count as usize > data.len() || written.count == 0 && !data.is_empty() {
            return contradiction("WRITE", "another count than was given");
        }
        if (written.committed as u32) < stable as u32 {
            return contradiction("WRITE", "less stable than was asked for");
        }
        Ok(written)
    }

    pub(crate) fn commit(&mut self, file: &FileHandle, offset: u64, count: u32) -> Outcome<Commit> {
        let arguments = Commit4Args { offset, count };
        self.ask(
            "COMMIT",
            |compound| compound.put(file).op(Op4::Commit, &arguments).attributes(WANTED),
            |reply| {
                reply.done(Op4::PutFh)?;
                let verifier = reply.commit()?;
                Ok(Commit { wcc: convert::afterwards(beside(reply).as_ref()), verifier })
            },
        )
    }

    /// Sets attributes; the size by what the user has open for writing, if that is so. There is no guard.
    pub(crate) fn setattr(
        &mut self,
        object: &FileHandle,
        settings: &Settings,
        _guard: Option<Time>,
    ) -> Outcome<Wcc> {
        let encoded = convert::settings(&settings.0).encode();
        let set = |requests: &mut super::session::Requests, stateid| {
            let arguments = SetAttr4Args { stateid, obj_attributes: encoded.fattr() };
            let set = requests.request(
                Manner::changing("SETATTR"),
                |compound| compound.put(object).op(Op4::SetAttr, &arguments).attributes(WANTED),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    let set = reply.set_attributes()?;
                    Ok((set, convert::afterwards(beside(reply).as_ref())))
                },
            );
            set.map(|(set, _)| set)
        };
        let outcome = if settings.0.size.is_some() {
            self.requests.by_stateid(object, ACCESS_WRITE, set)
        } else {
            set(&mut self.requests, ANONYMOUS)
        };
        let (was_set, wcc) = outcome.map_err(convert::failed)?;
        if !encoded.mask().without(&was_set).is_empty() {
            return contradiction("SETATTR", "set other attributes than it was told to");
        }
        Ok(wcc)
    }
}
