//! One boot of the guest: started, listened to, served when it asks for something, and ended.
//!
//! The guest has this machine's root as its own, so both sides talk through files in a control
//! directory: the guest appends lines to `results` and asks with a line `request ID WORDS`; the
//! host answers by creating `answer-ID`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Random;
use super::server::Server;
use crate::namespace::{GUEST_ADDRESS, Namespace};
use crate::uml::{self, Guest, Listener};

/// How one case ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The case.
    pub(crate) name: String,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// How long it took.
    pub(crate) seconds: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(formatter, "ok   {:<28} {:>6.1} s", self.name, self.seconds),
            Some(why) => write!(formatter, "FAIL {:<28} {:>6.1} s: {why}", self.name, self.seconds),
        }
    }
}

/// A boot that is ready to run.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    /// Names the log.
    pub(crate) label: &'a str,
    /// Where server and guest meet.
    pub(crate) namespace: &'a Namespace,
    /// Process 1 of the guest.
    pub(crate) init: &'a Path,
    /// The guest program.
    pub(crate) program: &'a Path,
    /// Where both sides talk; holds `plan`.
    pub(crate) control: &'a Path,
    /// The console's output.
    pub(crate) log: PathBuf,
    /// After this the guest is killed and what had not ended has failed.
    pub(crate) limit: Duration,
    /// Kill the guest this long after its first case began; what it was promised is then for
    /// another boot to check.
    pub(crate) kill_after: Option<Duration>,
}

impl Boot<'_> {
    /// Runs the guest to its end; an outcome for each of `cases`.
    pub(crate) fn run(
        &self,
        cases: &[String],
        server: &mut Server,
        seed: u64,
    ) -> Result<Vec<Outcome>> {
        let mut guest = self.start()?;
        let mut listener = Listener::new(self.control)?;
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut random = Random(seed | 1);
        let started = Instant::now();
        let mut began: Option<(String, Instant)> = None;
        let mut death = None;
        loop {
            let has_ended = guest.has_ended()?;
            for line in listener.lines()? {
                match Line::parse(&line)? {
                    Line::Begin(name) => began = Some((name, Instant::now())),
                    Line::Ended(outcome) => {
                        println!("{outcome}");
                        outcomes.push(outcome);
                        began = None;
                    }
                    Line::Count(_) => {}
                    Line::Note(text) => println!("     {text}"),
                    Line::Request { id, words } => {
                        let answer = self.serve(&words, server, &mut random)?;
                        std::fs::write(self.control.join(format!("answer-{id}")), answer)?;
                    }
                }
            }
            if has_ended {
                break;
            }
            if let (Some(delay), Some((_, since))) = (self.kill_after, &began)
                && since.elapsed() >= delay
            {
                println!("     the guest is killed {:.1} s into its load", delay.as_secs_f64());
                return Ok(Vec::new());
            }
            if death.is_none()
                && let Err(error) = server.check_alive()
            {
                println!("     {error:#}");
                death = Some(Instant::now());
            }
            // Nothing more will happen once a server that nobody killed is gone.
            if death.is_some_and(|when| when.elapsed() > Duration::from_secs(2)) {
                break;
            }
            if started.elapsed() > self.limit {
                println!("     the guest is killed: {} s are over", self.limit.as_secs());
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.kill_after.is_some() {
            bail!("the guest ended by itself instead of working on; see {}", self.log.display());
        }
        for name in cases {
            if outcomes.iter().any(|outcome| outcome.name == *name) {
                continue;
            }
            let (why, seconds) = match &began {
                Some((current, since)) if current == name => {
                    ("was under way when the guest ended", since.elapsed().as_secs_f64())
                }
                _ => ("did not run: the guest had ended", 0.0),
            };
            let why = format!("{why}; see {}", self.log.display());
            let outcome = Outcome { name: name.clone(), failure: Some(why), seconds };
            println!("{outcome}");
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn start(&self) -> Result<Guest> {
        let words = [
            uml::network(0),
            format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
            format!("GUEST_PROGRAM={}", self.program.display()),
            format!("GUEST_PLAN={}", self.control.join("plan").display()),
        ];
        Guest::start(self.namespace.command(uml::PROGRAM), self.label, self.init, &words, &self.log)
    }

    /// Does what the guest asks for; the answer's words, first `ok` or `failed`.
    fn serve(&self, words: &[String], server: &mut Server, random: &mut Random) -> Result<String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["kill-server", rounds] => {
                for _ in 0..rounds.parse::<u32>()? {
                    std::thread::sleep(Duration::from_millis(300 + random.below(1700)));
                    if let Err(error) = server.kill() {
                        return Ok(format!("failed {error:#}"));
                    }
                    std::thread::sleep(Duration::from_millis(random.below(700)));
                    if let Err(error) = server.start(self.namespace) {
                        return Ok(format!("failed {error:#}"));
                    }
                }
                Ok("ok".to_owned())
            }
            ["lose-state"] => {
                let lost = server.lose_state().and_then(|()| server.start(self.namespace));
                Ok(lost.map_or_else(|error| format!("failed {error:#}"), |()| "ok".to_owned()))
            }
            ["refused-locks"] => Ok(match server.refused_lock()? {
                Some(line) => format!("failed the server refused a lock: {line}"),
                None => "ok".to_owned(),
            }),
            ["steadfast", arguments @ ..] => Ok(match server.manage(self.namespace, arguments) {
                Ok(_) => "ok".to_owned(),
                // One line, as answers are.
                Err(error) => format!("failed {error:#}").replace('\n', " | "),
            }),
            ["steadfast-into", file, arguments @ ..] => {
                Ok(match server.manage(self.namespace, arguments) {
                    Ok(told) => {
                        std::fs::write(self.control.join(file), told)?;
                        "ok".to_owned()
                    }
                    Err(error) => format!("failed {error:#}").replace('\n', " | "),
                })
            }
            ["statistic", name] => Ok(match server.statistic(self.namespace, name) {
                Ok(value) => format!("ok {value}"),
                Err(error) => format!("failed {error:#}").replace('\n', " | "),
            }),
            ["serve-with", arguments @ ..] => {
                Ok(match server.serve_with(self.namespace, arguments) {
                    Ok(lines) => {
                        std::fs::write(self.control.join("mount-lines"), lines.join("\n"))?;
                        "ok".to_owned()
                    }
                    Err(error) => format!("failed {error:#}").replace('\n', " | "),
                })
            }
            other => Ok(format!("failed the host does not know the request {other:?}")),
        }
    }
}

/// What a guest tells.
pub(super) enum Line {
    Begin(String),
    Ended(Outcome),
    Note(String),
    Request {
        id: String,
        words: Vec<String>,
    },
    /// How many locks its processes have had.
    Count(u64),
}

impl Line {
    pub(super) fn parse(line: &str) -> Result<Self> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match kind {
            "begin" => Self::Begin(rest.to_owned()),
            "note" => Self::Note(rest.to_owned()),
            "ok" => {
                let (name, seconds) = rest.split_once(' ').context("ok without seconds")?;
                let (name, seconds) = (name.to_owned(), seconds.parse()?);
                Self::Ended(Outcome { name, failure: None, seconds })
            }
            "FAIL" => {
                let (head, why) = rest.split_once(": ").context("FAIL without a reason")?;
                let (name, seconds) = head.split_once(' ').context("FAIL without seconds")?;
                let (name, seconds) = (name.to_owned(), seconds.parse()?);
                Self::Ended(Outcome { name, failure: Some(why.to_owned()), seconds })
            }
            "count" => Self::Count(rest.parse()?),
            "request" => {
                let mut words = rest.split_whitespace().map(str::to_owned);
                let id = words.next().context("a request without its id")?;
                Self::Request { id, words: words.collect() }
            }
            _ => bail!("the guest said {line:?}"),
        })
    }
}
