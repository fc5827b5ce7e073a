//! NSM, by which hosts tell each other that they have restarted (X/Open XNFS): version 1.

use crate::codec::{numbers, structure};

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_024;
/// Longest name of a host in bytes (`SM_MAXSTRLEN`).
pub const NAME_BYTES_MAX: usize = 1024;
/// What a monitor is given back with its call, in bytes.
pub const PRIVATE_BYTES: usize = 16;

structure! {
    /// Argument of `SM_STAT` (`sm_name`).
    #[derive(Copy)]
    pub struct Name<'a> {
        /// A host.
        pub mon_name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Whom to call (`my_id`): argument of `SM_UNMON_ALL`.
    #[derive(Copy)]
    pub struct MyId<'a> {
        /// The host.
        pub my_name: &'a [u8]; max NAME_BYTES_MAX,
        /// The program.
        pub my_prog: u32,
        /// Its version.
        pub my_vers: u32,
        /// The procedure.
        pub my_proc: u32,
    }
}

structure! {
    /// Whom to watch, and whom to call (`mon_id`): argument of `SM_UNMON`.
    #[derive(Copy)]
    pub struct MonId<'a> {
        /// The host to watch.
        pub mon_name: &'a [u8]; max NAME_BYTES_MAX,
        /// Whom to call.
        pub my_id: MyId<'a>,
    }
}

structure! {
    /// Argument of `SM_MON` (`mon`).
    #[derive(Copy)]
    pub struct Mon<'a> {
        /// Whom to watch, and whom to call.
        pub mon_id: MonId<'a>,
        /// Comes with the call.
        pub private: [u8; PRIVATE_BYTES],
    }
}

numbers! {
    /// Whether a host is watched (`res`).
    pub enum SmRes, "res" {
        /// It is.
        Success = 0,
        /// It is not.
        Failed = 1,
    }
}

structure! {
    /// Result of `SM_STAT` and `SM_MON` (`sm_stat_res`).
    #[derive(Copy)]
    pub struct StatRes {
        /// Whether the host is watched.
        pub res_stat: SmRes,
        /// The state number of who answers.
        pub state: u32,
    }
}

structure! {
    /// Result of `SM_UNMON` and `SM_UNMON_ALL` (`sm_stat`).
    #[derive(Copy)]
    pub struct Stat {
        /// The state number of who answers.
        pub state: u32,
    }
}

structure! {
    /// Argument of `SM_NOTIFY` (`stat_chge`): a host has restarted.
    #[derive(Copy)]
    pub struct StateChange<'a> {
        /// The host.
        pub mon_name: &'a [u8]; max NAME_BYTES_MAX,
        /// Its state number: odd while it is up.
        pub state: u32,
    }
}
