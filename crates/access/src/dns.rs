//! Name servers, asked by `hickory-resolver` on a thread of its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use steadfast_shares::HostName;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::facts::{Fact, Source, Subject};
use crate::service::{Failure, Family, Outcome, Reply};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// How often it is looked at whether that has changed.
const CONFIGURATION_INTERVAL: Duration = Duration::from_secs(2);

type Question = (Subject, Reply);

/// The name servers. How many questions there are at once is bounded by who asks.
#[derive(Debug)]
pub(crate) struct Dns {
    questions: Option<UnboundedSender<Question>>,
    thread: Option<JoinHandle<()>>,
}

impl Dns {
    /// Starts the thread. Without servers those of `/etc/resolv.conf` are asked.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn start(servers: Vec<SocketAddr>, timeout_ms: u64) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, receiver) = unbounded_channel();
        let servers = Servers { fixed: servers, timeout_ms, resolver: None, stamp: None, at: None };
        let thread = std::thread::Builder::new()
            .name("dns".to_owned())
            .spawn(move || runtime.block_on(serve(servers, receiver)))?;
        Ok(Self { questions: Some(sender), thread: Some(thread) })
    }

    pub(crate) fn ask(&self, subject: &Subject, reply: Reply) {
        if let Some(questions) = &self.questions {
            // If the thread has ended, so does the reply, unanswered.
            let _ = questions.send((subject.clone(), reply));
        }
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        // What is being asked is let go with the runtime.
        self.questions = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that asks name servers ended by a panic");
        }
    }
}

async fn serve(mut servers: Servers, mut questions: UnboundedReceiver<Question>) {
    while let Some((subject, reply)) = questions.recv().await {
        let Some(resolver) = servers.resolver() else {
            reply.send(Outcome::Failed(Failure::NotAsked));
            continue;
        };
        // Twice what the resolver is told: it is trusted, and yet.
        let limit = Duration::from_millis(servers.timeout_ms * 2);
        tokio::spawn(async move {
            let outcome = tokio::time::timeout(limit, ask(&resolver, &subject)).await;
            reply.send(outcome.unwrap_or(Outcome::Failed(Failure::TimedOut)));
        });
    }
}

/// Which servers are asked.
struct Servers {
    fixed: Vec<SocketAddr>,
    timeout_ms: u64,
    resolver: Option<TokioResolver>,
    /// The state of `/etc/resolv.conf` that the resolver was made by, and when that was looked at.
    stamp: Option<(u64, i64, i64)>,
    at: Option<Instant>,
}

impl Servers {
    fn resolver(&mut self) -> Option<TokioResolver> {
        if self.fixed.is_empty() {
            self.look_at_configuration();
        } else if self.resolver.is_none() {
            let servers = self.fixed.iter().map(|server| name_server(*server)).collect();
            let config = ResolverConfig::from_name_servers(servers);
            self.build(config, ResolverOpts::default());
        }
        self.resolver.clone()
    }

    fn look_at_configuration(&mut self) {
        if self.at.is_some_and(|at| at.elapsed() < CONFIGURATION_INTERVAL) {
            return;
        }
        self.at = Some(Instant::now());
        let stamp = std::fs::metadata(RESOLV_CONF)
            .map(|metadata| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
            .ok();
        if stamp == self.stamp && self.resolver.is_some() {
            return;
        }
        match hickory_resolver::system_conf::read_system_conf() {
            Ok((config, options)) => {
                self.stamp = stamp;
                self.build(config, options);
            }
            // The servers of before are as good as any.
            Err(error) if stamp != self.stamp => {
                tracing::warn!("{RESOLV_CONF} cannot be used: {error}");
                self.stamp = stamp;
            }
            Err(_) => {}
        }
    }

    fn build(&mut self, config: ResolverConfig, mut options: ResolverOpts) {
        options.timeout = Duration::from_millis(self.timeout_ms);
        // Who asks has its own cache, knows the hosts file, and asks again by itself.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.attempts = 0;
        options.max_active_requests = 4 * crate::IN_FLIGHT_MAX;
        let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        match builder.build() {
            Ok(resolver) => self.resolver = Some(resolver),
            Err(error) => tracing::error!("name servers cannot be asked: {error}"),
        }
    }
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    let connections: &mut Vec<ConnectionConfig> = &mut config.connections;
    for connection in connections {
        connection.port = server.port();
    }
    config
}

async fn ask(resolver: &TokioResolver, subject: &Subject) -> Outcome {
    match subject {
        Subject::Host(host) => addresses(resolver, host).await,
        Subject::Client(client) => names(resolver, *client).await,
        Subject::Netgroup(_) | Subject::User(_) | Subject::NumberOf(..) | Subject::NameOf(..) => {
            Outcome::Failed(Failure::NotAsked)
        }
    }
}

/// What came of one question.
enum Part<T> {
    Some(Vec<T>, u32),
    None(Option<u32>),
    Failed(Failure),
}

async fn addresses(resolver: &TokioResolver, host: &HostName) -> Outcome {
    let host = host.as_str();
    // A name with a dot is complete, so that a name that a client claims for himself is never
    // looked for in the domains of this host.
    let text = if host.contains('.') { format!("{host}.") } else { host.to_owned() };
    let Ok(name) = Name::from_str_relaxed(&text) else {
        return Outcome::Absent { ttl_s: None, source: Source::Dns };
    };
    let (v4, v6) = tokio::join!(
        resolver.lookup(name.clone(), RecordType::A),
        resolver.lookup(name.clone(), RecordType::AAAA)
    );
    let v4 = part(v4, |data| match data {
        RData::A(address) => Some(IpAddr::from(address.0)),
        _ => None,
    });
    let v6 = part(v6, |data| match data {
        RData::AAAA(address) => Some(IpAddr::from(address.0)),
        _ => None,
    });
    let found = |addresses, ttl_s, lacks| Outcome::Found {
        fact: Fact::Addresses(addresses),
        ttl_s: Some(ttl_s),
        source: Source::Dns,
        lacks,
    };
    match (v4, v6) {
        (Part::Some(mut v4, v4_s), Part::Some(v6, v6_s)) => {
            v4.extend(v6);
            found(v4, v4_s.min(v6_s), None)
        }
        (Part::Some(v4, ttl_s), Part::None(_)) => found(v4, ttl_s, None),
        (Part::None(_), Part::Some(v6, ttl_s)) => found(v6, ttl_s, None),
        (Part::Some(v4, ttl_s), Part::Failed(_)) => found(v4, ttl_s, Some(Family::V6)),
        (Part::Failed(_), Part::Some(v6, ttl_s)) => found(v6, ttl_s, Some(Family::V4)),
        (Part::None(v4_s), Part::None(v6_s)) => {
            Outcome::Absent { ttl_s: v4_s.into_iter().chain(v6_s).min(), source: Source::Dns }
        }
        (Part::Failed(failure), _) | (_, Part::Failed(failure)) => Outcome::Failed(failure),
    }
}

async fn names(resolver: &TokioResolver, client: IpAddr) -> Outcome {
    let mut name = Name::from(client);
    name.set_fqdn(true);
    let names = part(resolver.lookup(name, RecordType::PTR).await, |data| match data {
        RData::PTR(name) => Some(HostName::new(&name.0.to_ascii())),
        _ => None,
    });
    match names {
        // What no host can be called matches no rule.
        Part::Some(names, ttl_s) => Outcome::Found {
            fact: Fact::Names(names.into_iter().flatten().collect()),
            ttl_s: Some(ttl_s),
            source: Source::Dns,
            lacks: None,
        },
        Part::None(ttl_s) => Outcome::Absent { ttl_s, source: Source::Dns },
        Part::Failed(failure) => Outcome::Failed(failure),
    }
}

fn part<T>(result: Result<Lookup, NetError>, pick: impl Fn(&RData) -> Option<T>) -> Part<T> {
    let error = match result {
        Ok(lookup) => {
            let picked = lookup.answers().iter().filter_map(|record| pick(&record.data));
            let picked: Vec<_> = picked.collect();
            // Aliases on the way live no longer than what they lead to.
            let ttl_s = lookup.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
            return if picked.is_empty() { Part::None(None) } else { Part::Some(picked, ttl_s) };
        }
        Err(error) => error,
    };
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            Part::None(none.negative_ttl)
        }
        NetError::Dns(DnsError::ResponseCode(ResponseCode::NXDomain)) => Part::None(None),
        NetError::Dns(_) => Part::Failed(Failure::Failed),
        NetError::Timeout => Part::Failed(Failure::TimedOut),
        error => {
            tracing::debug!("a name server could not be asked: {error}");
            Part::Failed(Failure::NotAsked)
        }
    }
}
