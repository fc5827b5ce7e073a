//! What a program is to the engine: numbers, port, versions, transports, procedures. All programs stand in
//! [`crate::programs`]; each protocol has the rows of its own beside its code.

use steadfast_xdr::{Decode, Reader};

use crate::call::{Call, Outcome, Refusal};
use crate::operation::Operation;
use crate::peer::Transport;
use crate::reply::ReplyBuffer;

/// A program of RPC that is served.
#[derive(Debug)]
pub(crate) struct Program {
    /// What people call it.
    pub(crate) name: &'static str,
    /// Its number (RFC 5531 §8).
    pub(crate) number: u32,
    /// On which port it answers.
    pub(crate) port: Port,
    /// The versions that can be served, ascending. NLM has no version 2.
    pub(crate) versions: &'static [Version],
}

impl Program {
    /// The versions that are served: the first and the last of NFS only if they were asked for.
    pub(crate) fn served(&self, asked_for: OptionalVersions) -> &'static [Version] {
        self.served_if(|version| asked_for.has(version))
    }

    /// Those of them that are served over a transport.
    pub(crate) fn served_over(
        &self,
        transport: Transport,
        asked_for: OptionalVersions,
    ) -> &'static [Version] {
        self.served_if(|version| asked_for.has(version) && version.over.has(transport))
    }

    /// What is told of them.
    pub(crate) fn services(
        &'static self,
        asked_for: OptionalVersions,
    ) -> impl Iterator<Item = ServedVersion> {
        self.served(asked_for).iter().map(|version| ServedVersion {
            program: self.number,
            version: version.number,
            over: version.over,
        })
    }

    fn served_if(&self, is_served: impl Fn(&Version) -> bool) -> &'static [Version] {
        let mut served = self.versions;
        while let [first, others @ ..] = served
            && !is_served(first)
        {
            served = others;
        }
        while let [others @ .., last] = served
            && !is_served(last)
        {
            served = others;
        }
        served
    }
}

/// Which of the versions are served that an administrator has to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalVersions {
    /// NFSv2.
    pub nfs2: bool,
    /// NFSv4.
    pub nfs4: bool,
}

impl OptionalVersions {
    /// Every one.
    pub const ALL: Self = Self { nfs2: true, nfs4: true };

    /// Whether a version is served.
    pub(crate) fn has(self, version: &Version) -> bool {
        match version.demand {
            Demand::Nobody => true,
            Demand::Nfs2 => self.nfs2,
            Demand::Nfs4 => self.nfs4,
        }
    }
}

/// Who has to ask for a version so that it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// It always is.
    Nobody,
    /// [`OptionalVersions::nfs2`].
    Nfs2,
    /// [`OptionalVersions::nfs4`].
    Nfs4,
}

/// A port that programs answer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// The one that NFS answers on.
    Nfs,
    /// The same, and no rpcbind tells it: who calls the program knows where NFS answers.
    NfsUnlisted,
    /// One that the protocol fixes.
    Fixed(u16),
}

/// A program and version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedVersion {
    /// Number of the program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// Over which transports.
    pub over: ServedOver,
}

/// Over which transports a version is served, of those that the server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServedOver {
    /// TCP and UDP.
    Both,
    /// TCP alone.
    Tcp,
}

impl ServedOver {
    /// Whether it is served over this one.
    pub fn has(self, transport: Transport) -> bool {
        match transport {
            Transport::Tcp => true,
            Transport::Udp => self == Self::Both,
        }
    }
}

/// One version of a program.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u32,
    /// Those that are not served over all transports stand first or last in their program.
    pub(crate) over: ServedOver,
    /// Whether it is served only if an administrator asks for it. Those that are stand first or last
    /// in their program.
    pub(crate) demand: Demand,
    /// By number of the procedure.
    pub(crate) procedures: &'static [Row],
}

impl Version {
    /// A version that is always served, over TCP and UDP.
    pub(crate) const fn new(number: u32, procedures: &'static [Row]) -> Self {
        Self { number, over: ServedOver::Both, demand: Demand::Nobody, procedures }
    }

    /// The same if it is served only when asked for.
    pub(crate) const fn if_asked_for(self, demand: Demand) -> Self {
        Self { demand, ..self }
    }

    /// The same if it is served over these transports.
    pub(crate) const fn over(self, over: ServedOver) -> Self {
        Self { over, ..self }
    }
}

/// A procedure as the table of programs has it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) run: Run,
}

/// Decodes the arguments and executes a call.
pub(crate) type Run = fn(&mut Call<'_>, &mut Reader<'_>, &mut ReplyBuffer) -> Outcome;

/// One procedure of a protocol. To serve another one, implement this and put [`Row::of`] into the
/// protocol's table.
pub(crate) trait Procedure {
    /// What is known before it runs.
    const OPERATION: Operation;

    /// What a call brings, borrowed from the message.
    type Arguments<'a>: Decode<'a>;

    /// Whether a repetition of a call with these arguments must not be executed: the duplicate
    /// request cache remembers it.
    fn is_remembered(_arguments: &Self::Arguments<'_>) -> bool {
        Self::OPERATION.is_changing
    }

    /// Executes the call, appending its result to the reply.
    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome;
}

impl Row {
    /// The row of a procedure.
    pub(crate) const fn of<P: Procedure>() -> Self {
        Self { operation: P::OPERATION, run: run::<P> }
    }

    /// The same row, of which the calls go through `run` first.
    pub(crate) const fn through(self, run: Run) -> Self {
        Self { run, ..self }
    }
}

/// Decodes the arguments of a call, asks the duplicate request cache if it must be, and executes it.
pub(crate) fn run<P: Procedure>(
    call: &mut Call<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut ReplyBuffer,
) -> Outcome {
    let Ok(arguments) = P::Arguments::decode(arguments) else {
        return Outcome::Refused(Refusal::GarbageArguments);
    };
    if P::is_remembered(&arguments)
        && let Some(ended) = call.admit(&mut reply.bytes)
    {
        return ended;
    }
    P::run(call, &arguments, reply)
}

/// Arguments of procedures that have none, or of which none matters: whatever comes is ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ignored;

impl<'a> Decode<'a> for Ignored {
    fn decode(_: &mut Reader<'a>) -> Result<Self, steadfast_xdr::XdrError> {
        Ok(Self)
    }
}

/// NULL of any program (RFC 5531 §12): does nothing.
pub(crate) struct Null;

impl Procedure for Null {
    const OPERATION: Operation = Operation::null();
    type Arguments<'a> = Ignored;

    fn run(_: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        Outcome::Done
    }
}
