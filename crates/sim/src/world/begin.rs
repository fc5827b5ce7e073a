//! How a run begins: the server, what clients need, and which clients there are.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use steadfast_engine::Transport;
use steadfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, Mkdir3Args, NfsFh3, Sattr3, SetTime3,
};
use steadfast_xdr::{Reader, Writer};

use super::{Event, FEW, Link, Rhythm, World};
use crate::Checked;
use crate::client::Client;
use crate::delegates::DelegateClient;
use crate::hosts::HostClient;
use crate::locks::LocksClient;
use crate::message::{Request, results, unreadable};
use crate::names::NamesClient;
use crate::old::OldClient;

const FILES: u64 = 2;
/// A file is not delegated for a while after it was recalled: so there are more of these.
const DELEGATED: u64 = 6;

/// Which clients there are, and how many files they lock.
struct Cast {
    names: u64,
    locks: u64,
    /// That speak NFSv4.0.
    old: u64,
    hosts: u64,
    delegates: u64,
    files: u64,
    /// That are delegated.
    delegated: u64,
}

impl World {
    /// Starts the server, makes what clients need, and lets them begin.
    pub(super) fn begin(&mut self, clients: Option<u64>) -> Checked {
        self.server.begin()?;
        let cast = self.cast(clients);
        let root = self.mount()?;
        let files = self.make_files(&root, "f", cast.files)?;
        self.server.note_files(cast.files)?;
        let delegated = self.make_files(&root, "g", cast.delegated)?;
        let shared = self.make_directory(&root, "shared")?;
        let Cast { names, locks, old, hosts, delegates, .. } = cast;
        self.report.clients = names + locks + old + hosts + delegates;
        for number in 0..self.report.clients {
            let client: Box<dyn Client> = if number < names {
                let workers = self.random.between(1, 3);
                let make = |worker| self.make_directory(&root, &format!("c{number}.{worker}"));
                let directories = (0..workers).map(make).collect::<Checked<Vec<_>>>()?;
                Box::new(NamesClient::new(number, directories))
            } else if number < names + locks {
                let workers = self.random.between(1, 3) as usize;
                let is_called = self.random.chance(700);
                let (shared, files) = (shared.clone(), files.clone());
                Box::new(LocksClient::new(number, workers, is_called, shared, files))
            } else if number < names + locks + old {
                let workers = self.random.between(1, 3) as usize;
                Box::new(OldClient::new(number, workers, root.clone(), files.clone()))
            } else if number < names + locks + old + hosts {
                let workers = self.random.between(1, 3) as usize;
                Box::new(HostClient::new(number, workers, files.clone()))
            } else {
                Box::new(DelegateClient::new(number, shared.clone(), delegated.clone()))
            };
            let is_udp = number < names && self.random.chance(400);
            let workers = client.workers();
            self.links.push(Link {
                client,
                transport: if is_udp { Transport::Udp } else { Transport::Tcp },
                port: 700,
                connection: None,
                outstanding: BTreeMap::new(),
                next_xid: 1,
                connected_ms: 0,
                to_server_us: 0,
                to_client_us: 0,
            });
            let client = number as usize;
            self.schedule(1000, Event::Connect { client });
            for worker in 0..workers {
                self.schedule(2000, Event::Think { client, worker });
            }
        }
        (self.locals, self.files) = (self.random.below(3), cast.files);
        if locks + old + hosts == 0 {
            self.locals = 0;
        }
        for process in 0..self.locals {
            self.schedule(1_000_000, Event::Local { process });
        }
        self.schedule(1_000_000, Event::Tick);
        self.schedule(5_000_000, Event::Fault);
        if self.rhythm.cuts_apart_us > 0 {
            self.schedule(5_000_000, Event::Cut);
        }
        Ok(())
    }

    /// Few clients by the seed, or as many as are asked for. Of many, half change names, a fifth are
    /// hosts, and a tenth is delegated files; of the others a third speaks NFSv4.0.
    fn cast(&mut self, clients: Option<u64>) -> Cast {
        if let Some(clients) = clients {
            self.rhythm = Rhythm::of_many(clients, &mut self.random);
            let (names, hosts, delegates) = (clients.div_ceil(2), clients / 5, clients / 10);
            let others = clients - names - hosts - delegates;
            let old = others / 3;
            // So many that most locks are still granted.
            let files = FILES.max(clients / FEW);
            let delegated = DELEGATED.max(delegates);
            return Cast { names, locks: others - old, old, hosts, delegates, files, delegated };
        }
        let random = &mut self.random;
        let (files, delegated) = (FILES, DELEGATED);
        let (mut names, mut old, mut hosts) = (random.below(2), 0, 0);
        let (mut locks, mut delegates) = (random.below(2), 0);
        match random.below(10) {
            0..3 => delegates = random.between(2, 5),
            3..6 => {
                (locks, old) = (random.between(1, 3), random.below(3));
                hosts = random.below(3);
            }
            _ => {
                (names, locks) = (names + 1, locks + 1);
                (old, hosts) = (random.below(2), random.below(3));
                delegates = random.below(3);
                return Cast { names, locks, old, hosts, delegates, files, delegated };
            }
        }
        // Time passes faster where nobody changes names: leases and recalls end, if no restart has
        // them begin anew.
        self.rhythm.faults_apart_us *= random.between(1, 20);
        Cast { names, locks, old, hosts, delegates, files, delegated }
    }

    /// A call on a network and disk without faults.
    fn call(&mut self, request: &Request) -> Checked<Vec<u8>> {
        self.scheduled += 1;
        let from = SocketAddr::from(([127, 0, 0, 1], 700));
        self.server.accept(1, from, Transport::Tcp);
        let message = request.message(self.scheduled as u32);
        self.server.deliver(0, 1, message, &mut self.random)?;
        for _ in 0..1000 {
            if let Some((_, reply)) = self.server.take_outbox().pop() {
                return results(&reply).map(<[u8]>::to_vec);
            }
            self.server.go_on(0, &mut self.random)?;
            self.server.disk_writes(0, &mut self.random);
        }
        Err("the server does not answer at the start".into())
    }

    fn mount(&mut self) -> Checked<Vec<u8>> {
        let mut arguments = Vec::new();
        Writer::new(&mut arguments).opaque(b"/a");
        let what = String::new();
        loop {
            let (program, version, procedure) = (100_005, 3, 1);
            let arguments = arguments.clone();
            let what = what.clone();
            let request = Request { program, version, procedure, arguments, what };
            let told = self.call(&request)?;
            let mut r = Reader::new(&told);
            if r.u32() == Ok(0) {
                return r.opaque(64).map(<[u8]>::to_vec).map_err(unreadable);
            }
        }
    }

    /// The handle of what a call makes.
    fn make(&mut self, request: &Request) -> Checked<Vec<u8>> {
        loop {
            let told = self.call(request)?;
            let mut r = Reader::new(&told);
            // Else it is to be made later.
            if r.u32() == Ok(0) {
                r.bool().map_err(unreadable)?;
                return r.opaque(64).map(<[u8]>::to_vec).map_err(unreadable);
            }
        }
    }

    fn make_files(&mut self, root: &[u8], prefix: &str, count: u64) -> Checked<Vec<Vec<u8>>> {
        let make = |number| {
            let name = format!("{prefix}{number}").into_bytes();
            let where_ = DirOpArgs3 { dir: NfsFh3(root), name: &name };
            let how = CreateHow3::Guarded(attributes());
            self.make(&Request::of_3(8, &Create3Args { where_, how }, String::new()))
        };
        (0..count).map(make).collect()
    }

    fn make_directory(&mut self, dir: &[u8], name: &str) -> Checked<Vec<u8>> {
        let where_ = DirOpArgs3 { dir: NfsFh3(dir), name: name.as_bytes() };
        let arguments = Mkdir3Args { where_, attributes: attributes() };
        self.make(&Request::of_3(9, &arguments, String::new()))
    }
}

fn attributes() -> Sattr3 {
    Sattr3 {
        mode: Some(0o777),
        uid: None,
        gid: None,
        size: None,
        atime: SetTime3::DontChange,
        mtime: SetTime3::DontChange,
    }
}
