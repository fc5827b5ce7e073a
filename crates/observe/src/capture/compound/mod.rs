//! COMPOUNDs of NFSv4 and their callbacks: all operations, each with its status, and with the file that
//! it works on.
//!
//! [`CompoundCall::decode`] keeps of a call what the reply does not repeat. [`CompoundCall::executed`] walks
//! through the reply beside it, with the current and the saved handle as the server has them.

mod arguments;
mod callback;
pub(crate) mod contents;
mod results;

use steadfast_wire::nfs4::{CompoundHead4, Op4, TAG_BYTES_MAX};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::handle::{Handle, Names};
pub(crate) use callback::CallbackCall;

/// Operations of one COMPOUND that are looked at. Servers accept fewer.
const OPERATIONS_MAX: u32 = 256;

/// The operation of this number.
fn operation(number: u32) -> Option<Op4> {
    Op4::decode(&mut Reader::new(&number.to_be_bytes())).ok()
}

/// What an operation's arguments tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Nothing,
    Handle(Handle),
    Name(Box<[u8]>),
    /// A port at which the client waits for callbacks.
    CallbackPort(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    number: u32,
    argument: Argument,
}

/// An operation that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed<'a> {
    pub(crate) number: u32,
    /// `nfsstat4`.
    pub(crate) status: u32,
    /// The file or directory it worked on.
    pub(crate) handle: Option<Handle>,
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompoundCall {
    pub(crate) minor: u32,
    parts: Vec<Part>,
}

impl CompoundCall {
    /// Reads a call, as far as it is there and understood.
    pub(crate) fn decode(r: &mut Reader<'_>, names: &mut Names) -> Result<Self, XdrError> {
        let head = CompoundHead4::decode(r)?;
        let mut call = Self { minor: head.minorversion, parts: Vec::new() };
        for _ in 0..head.operations.min(OPERATIONS_MAX) {
            let Ok(number) = r.u32() else { break };
            let (argument, goes_on) = match arguments::read(number, r, names) {
                Ok(argument) => (argument, true),
                Err(_) => (Argument::Nothing, false),
            };
            call.parts.push(Part { number, argument });
            if !goes_on {
                break;
            }
        }
        Ok(call)
    }

    /// The numbers of its operations, as far as they are there.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|part| part.number)
    }

    /// Bytes of memory that it takes, beside its own.
    pub(crate) fn kept_bytes(&self) -> usize {
        let names = self.parts.iter().map(|part| match &part.argument {
            Argument::Name(name) => name.len(),
            _ => 0,
        });
        names.sum::<usize>() + self.parts.len() * size_of::<Part>()
    }

    /// The port at which the client waits for callbacks, if the call tells it.
    pub(crate) fn callback_port(&self) -> Option<u16> {
        self.parts.iter().find_map(|part| match part.argument {
            Argument::CallbackPort(port) => Some(port),
            _ => None,
        })
    }

    /// The first handle of the call.
    pub(crate) fn first_handle(&self) -> Option<Handle> {
        self.parts.iter().find_map(|part| match part.argument {
            Argument::Handle(handle) => Some(handle),
            _ => None,
        })
    }

    /// Reads the results. Returns the status of the whole and whether all of it was understood.
    pub(crate) fn executed(
        &self,
        r: &mut Reader<'_>,
        names: &mut Names,
        take: &mut dyn FnMut(&Executed<'_>),
    ) -> Result<(u32, bool), XdrError> {
        let status = r.u32()?;
        let _tag = r.opaque(TAG_BYTES_MAX)?;
        let count = r.u32()?;
        let mut place = Place::default();
        for index in 0..count.min(OPERATIONS_MAX) {
            let (Ok(number), Ok(status_of_part)) = (r.u32(), r.u32()) else {
                return Ok((status, false));
            };
            let part = self.parts.get(index as usize).filter(|part| part.number == number);
            let argument = part.map_or(&Argument::Nothing, |part| &part.argument);
            let mut executed = Executed {
                number,
                status: status_of_part,
                handle: place.of(number, argument),
                name: match argument {
                    Argument::Name(name) => Some(name),
                    _ => None,
                },
                read_bytes: 0,
                written_bytes: 0,
            };
            let result = results::read(number, status_of_part, r, &mut executed);
            take(&executed);
            match result {
                Ok(got) => place.advance(&executed, argument, got, names),
                Err(_) => return Ok((status, false)),
            }
        }
        Ok((status, count <= OPERATIONS_MAX))
    }
}

// Operations that change the current object.
const PUT: u32 = Op4::PutFh as u32;
const GET: u32 = Op4::GetFh as u32;
const SAVE: u32 = Op4::SaveFh as u32;
const RESTORE: u32 = Op4::RestoreFh as u32;
const LOOKUP: u32 = Op4::Lookup as u32;
const OPEN: u32 = Op4::Open as u32;
const CREATE: u32 = Op4::Create as u32;
const PARENT: u32 = Op4::LookupP as u32;
const ATTRIBUTES: u32 = Op4::OpenAttr as u32;
const ROOT: u32 = Op4::PutRootFh as u32;
const PUBLIC: u32 = Op4::PutPubFh as u32;

/// The current and the saved object of a COMPOUND (RFC 8881 §16.2.3.1.1).
#[derive(Debug, Default)]
struct Place {
    current: Option<Handle>,
    saved: Option<Handle>,
    /// The name by which the current object was found.
    name: Option<Box<[u8]>>,
}

impl Place {
    /// The object that an operation works on.
    fn of(&self, number: u32, argument: &Argument) -> Option<Handle> {
        if number == Op4::PutFh as u32
            && let Argument::Handle(handle) = argument
        {
            return Some(*handle);
        }
        self.current
    }

    /// What a successful operation makes of it.
    fn advance(
        &mut self,
        executed: &Executed<'_>,
        argument: &Argument,
        got: Option<&[u8]>,
        names: &mut Names,
    ) {
        if executed.status != 0 {
            return;
        }
        match executed.number {
            PUT => {
                self.current = executed.handle;
                self.name = None;
            }
            GET => {
                let Some(bytes) = got else { return };
                let handle = Handle::of(bytes);
                names.note_handle(handle, bytes);
                if let Some(name) = &self.name {
                    names.note_file(handle, name);
                }
                self.current = Some(handle);
            }
            SAVE => self.saved = self.current,
            RESTORE => {
                self.current = self.saved;
                self.name = None;
            }
            // An OPEN without a name opens the current object.
            LOOKUP | OPEN | CREATE => {
                if let Argument::Name(name) = argument {
                    self.current = None;
                    self.name = Some(name.clone());
                }
            }
            PARENT | ATTRIBUTES | ROOT | PUBLIC => {
                self.current = None;
                self.name = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
