//! Statuses (`nfsstat4`, RFC 8881 §15.1).

use crate::codec::numbers;

numbers! {
    /// Status of an operation, and of a COMPOUND.
    pub enum NfsStat4, "nfsstat4" {
        /// Done.
        Ok = 0,
        /// The caller is not the owner, or not privileged.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// The disk failed.
        Io = 5,
        /// No such device.
        NxIo = 6,
        /// The caller has not the right.
        Access = 13,
        /// The name exists.
        Exist = 17,
        /// A link or rename would cross file systems.
        XDev = 18,
        /// A directory is needed.
        NotDir = 20,
        /// A directory cannot be used.
        IsDir = 21,
        /// An argument makes no sense.
        Inval = 22,
        /// The file would grow beyond what is possible.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// The file system, or the share, is read-only.
        RoFs = 30,
        /// The object has as many links as it may.
        MLink = 31,
        /// The name is too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The quota is used up.
        DQuot = 69,
        /// The object of the handle is gone.
        Stale = 70,
        /// The handle is none.
        BadHandle = 10001,
        /// The cookie of a listing is stale.
        BadCookie = 10003,
        /// The operation is not supported.
        NotSupp = 10004,
        /// The reply does not fit into what the caller allows.
        TooSmall = 10005,
        /// Something else went wrong in the server.
        ServerFault = 10006,
        /// The server cannot make objects of this type.
        BadType = 10007,
        /// Not now: the caller is to try again later.
        Delay = 10008,
        /// What NVERIFY compares is the same.
        Same = 10009,
        /// Another owner holds a lock that conflicts.
        Denied = 10010,
        /// The state of the client has expired.
        Expired = 10011,
        /// Another owner holds a lock there.
        Locked = 10012,
        /// State may be reclaimed, not made: the server has just begun.
        Grace = 10013,
        /// The handle's file system is elsewhere.
        FhExpired = 10014,
        /// Another owner's open denies it.
        ShareDenied = 10015,
        /// The object asks for another flavour of security.
        WrongSec = 10016,
        /// Another client has this name.
        ClIdInUse = 10017,
        /// Resources are short.
        Resource = 10018,
        /// The file system has moved.
        Moved = 10019,
        /// There is no current filehandle.
        NoFileHandle = 10020,
        /// This minor version is not served.
        MinorVersMismatch = 10021,
        /// The server does not know this client id.
        StaleClientId = 10022,
        /// The stateid is of another instance of the server.
        StaleStateId = 10023,
        /// The stateid is older than the state.
        OldStateId = 10024,
        /// There is no such state.
        BadStateId = 10025,
        /// The sequence id is not the next.
        BadSeqId = 10026,
        /// What VERIFY compares is not the same.
        NotSame = 10027,
        /// Locks of this range cannot be had.
        LockRange = 10028,
        /// The object is a symbolic link.
        SymLink = 10029,
        /// There is no saved filehandle.
        RestoreFh = 10030,
        /// The attribute is not supported.
        AttrNotSupp = 10032,
        /// There is no time for reclaiming now.
        NoGrace = 10033,
        /// What is reclaimed was never held.
        ReclaimBad = 10034,
        /// What is reclaimed conflicts with what others hold.
        ReclaimConflict = 10035,
        /// The arguments cannot be decoded.
        BadXdr = 10036,
        /// Locks are held below the open.
        LocksHeld = 10037,
        /// The file was not opened for that.
        OpenMode = 10038,
        /// There is no such owner.
        BadOwner = 10039,
        /// Bytes of a string make no character.
        BadChar = 10040,
        /// Such a name may not be.
        BadName = 10041,
        /// The range is not supported.
        BadRange = 10042,
        /// Locks cannot be changed so.
        LockNotSupp = 10043,
        /// There is no such operation.
        OpIllegal = 10044,
        /// Two locks wait for each other.
        Deadlock = 10045,
        /// The file is open.
        FileOpen = 10046,
        /// An administrator took the state away.
        AdminRevoked = 10047,
        /// The path to the client is down.
        CbPathDown = 10048,
        /// An I/O mode is not known.
        BadIoMode = 10049,
        /// The layout makes no sense.
        BadLayout = 10050,
        /// The digest of the session's trunk is wrong.
        BadSessionDigest = 10051,
        /// There is no such session.
        BadSession = 10052,
        /// There is no such slot.
        BadSlot = 10053,
        /// All has been reclaimed already.
        CompleteAlready = 10054,
        /// The connection is not bound to the session.
        ConnNotBoundToSession = 10055,
        /// The delegation is wanted already.
        DelegAlreadyWanted = 10056,
        /// The callback channel has calls in flight.
        BackChanBusy = 10057,
        /// Layouts are to be asked for later.
        LayoutTryLater = 10058,
        /// There are no layouts here.
        LayoutUnavailable = 10059,
        /// No layout matches.
        NoMatchingLayout = 10060,
        /// A recall is under way.
        RecallConflict = 10061,
        /// The type of layouts is not known.
        UnknownLayoutType = 10062,
        /// The sequence id of a slot is neither the last nor the next.
        SeqMisordered = 10063,
        /// SEQUENCE stands elsewhere than first.
        SequencePos = 10064,
        /// The request is larger than was agreed.
        ReqTooBig = 10065,
        /// The reply would be larger than was agreed.
        RepTooBig = 10066,
        /// The reply would be larger than what is kept.
        RepTooBigToCache = 10067,
        /// The reply was not kept.
        RetryUncachedRep = 10068,
        /// The COMPOUND may not be run now.
        UnsafeCompound = 10069,
        /// The COMPOUND has more operations than was agreed.
        TooManyOps = 10070,
        /// The operation needs a session.
        OpNotInSession = 10071,
        /// The algorithm of the digest is not supported.
        HashAlgUnsupp = 10072,
        /// The client has sessions or state.
        ClientIdBusy = 10074,
        /// A hole of a file is asked for where there may be none.
        PnfsIoHole = 10075,
        /// The slot was used for another request.
        SeqFalseRetry = 10076,
        /// The highest slot makes no sense.
        BadHighSlot = 10077,
        /// The session is being destroyed.
        DeadSession = 10078,
        /// Encryption is not supported.
        EncrAlgUnsupp = 10079,
        /// Layouts only.
        PnfsNoLayout = 10080,
        /// The operation may stand only alone.
        NotOnlyOp = 10081,
        /// The credential may not do that.
        WrongCred = 10082,
        /// The object has a type that the operation is not for.
        WrongType = 10083,
        /// Directories cannot be delegated now.
        DirDelegUnavail = 10084,
        /// A delegation is to be returned.
        RejectDeleg = 10085,
        /// A conflicting layout is to be returned.
        ReturnConflict = 10086,
        /// The delegation was revoked.
        DelegRevoked = 10087,
        /// The other server of a copy does not support it (RFC 7862 §11.1).
        PartnerNotSupp = 10088,
        /// The other server of a copy does not trust this one.
        PartnerNoAuth = 10089,
        /// Such an arm of a union is not supported.
        UnionNotSupp = 10090,
        /// A copy beside the call is not allowed.
        OffloadDenied = 10091,
        /// The format of the label is another.
        WrongLfs = 10092,
        /// The label makes no sense.
        BadLabel = 10093,
        /// What is required of a copy cannot be met.
        OffloadNoReqs = 10094,
        /// There is no such extended attribute (RFC 8276 §8.4.1).
        NoXattr = 10095,
        /// The value of an extended attribute is too large.
        Xattr2Big = 10096,
    }
}
