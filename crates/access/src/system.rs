//! The name service of a running server: files first, then name servers, or the system.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::dns::Dns;
use crate::facts::{Fact, Members, Source, Subject};
use crate::helper::{Helper, Job, PATIENCE};
use crate::hosts_file::HostsFile;
use crate::netgroup_file::NetgroupFile;
use crate::service::{NameService, Outcome, Reply};
use crate::settings::AccessSettings;
use crate::watched::Watched;

/// Hosts file and name servers; netgroup file and the system's switch; users, and names and numbers of owners,
/// by the switch.
pub struct SystemNames {
    hosts: Mutex<Watched<HostsFile>>,
    netgroups: Mutex<Watched<NetgroupFile>>,
    dns: Dns,
    /// A process for each, so that a directory of netgroups that hangs holds up no user.
    helpers: Option<Helpers>,
}

struct Helpers {
    netgroups: Helper,
    users: Helper,
    /// Clients choose the names: they hold up neither the groups of users nor what is told.
    numbers: Helper,
    names: Helper,
}

impl SystemNames {
    /// Reads the files and starts the threads that ask.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub fn start(settings: &AccessSettings) -> io::Result<Self> {
        let helpers = match &settings.helper {
            Some(command) => Some(Helpers {
                netgroups: Helper::start("netgroups", command.clone(), PATIENCE)?,
                users: Helper::start("users", command.clone(), PATIENCE)?,
                numbers: Helper::start("owner-numbers", command.clone(), PATIENCE)?,
                names: Helper::start("owner-names", command.clone(), PATIENCE)?,
            }),
            None => None,
        };
        Ok(Self {
            hosts: Mutex::new(Watched::new(settings.hosts_file.clone(), HostsFile::parse)),
            netgroups: Mutex::new(Watched::new(
                settings.netgroup_file.clone(),
                NetgroupFile::parse,
            )),
            dns: Dns::start(settings.servers.clone(), settings.timeout_ms)?,
            helpers,
        })
    }

    fn ask_netgroup(&self, subject: &Subject, reply: Reply) {
        let Subject::Netgroup(netgroup) = subject else { return };
        let expanded = self.netgroups.lock().value().expand(netgroup);
        let (known, names) = match expanded {
            Some((known, elsewhere)) => (Some(known), elsewhere),
            None => (None, vec![netgroup.clone()]),
        };
        match (known, &self.helpers) {
            (Some(members), _) if names.is_empty() => reply.send(of_file(members)),
            (known, Some(helpers)) => {
                helpers.netgroups.ask(Job::Netgroups { names, known, reply });
            }
            (Some(members), None) => reply.send(of_file(members)),
            (None, None) => {
                reply.send(Outcome::Absent { ttl_s: None, source: Source::NetgroupFile });
            }
        }
    }
}

fn of_file(members: Members) -> Outcome {
    Outcome::Found {
        fact: Fact::Members(Arc::new(members)),
        ttl_s: None,
        source: Source::NetgroupFile,
        lacks: None,
    }
}

impl NameService for SystemNames {
    fn ask(&self, subject: &Subject, reply: Reply) {
        match subject {
            Subject::Host(_) | Subject::Client(_) => {
                let found = self.hosts.lock().value().find(subject);
                match found {
                    Some(fact) => reply.send(Outcome::Found {
                        fact,
                        ttl_s: None,
                        source: Source::HostsFile,
                        lacks: None,
                    }),
                    None => self.dns.ask(subject, reply),
                }
            }
            Subject::Netgroup(_) => self.ask_netgroup(subject, reply),
            // Without a helper the reply is let go, which is a failure.
            Subject::User(uid) => {
                if let Some(helpers) = &self.helpers {
                    helpers.users.ask(Job::User { uid: *uid, reply });
                }
            }
            // Where there is no name service, names are nobody's.
            Subject::NumberOf(kind, name) => match &self.helpers {
                Some(helpers) => {
                    helpers.numbers.ask(Job::NumberOf { kind: *kind, name: name.clone(), reply });
                }
                None => reply.send(Outcome::Absent { ttl_s: None, source: Source::System }),
            },
            Subject::NameOf(kind, number) => match &self.helpers {
                Some(helpers) => {
                    helpers.names.ask(Job::NameOf { kind: *kind, number: *number, reply });
                }
                None => reply.send(Outcome::Absent { ttl_s: None, source: Source::System }),
            },
        }
    }

    fn changed(&self) -> Vec<Subject> {
        let mut changed = Vec::new();
        {
            let mut hosts = self.hosts.lock();
            if let Some(before) = hosts.look() {
                changed.extend(before.difference(&hosts.value()));
            }
        }
        let mut netgroups = self.netgroups.lock();
        if let Some(before) = netgroups.look() {
            changed
                .extend(before.difference(&netgroups.value()).into_iter().map(Subject::Netgroup));
        }
        changed
    }
}

impl std::fmt::Debug for SystemNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemNames").finish_non_exhaustive()
    }
}
