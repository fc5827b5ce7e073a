//! The system's name service switch, asked by a process of its own.
//!
//! A module of the switch may ask a directory service that does not answer, and hang for as long
//! as it likes, with locks of the C library held. So it runs in a process ([`serve`]) that can be
//! killed, and is when it has not answered for [`PATIENCE`]; the next question starts another.

mod protocol;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use steadfast_shares::{AccountKind, AccountName, NetgroupName};
use steadfast_sys::nss;

use protocol::{ANSWER_BYTES_MAX, QUESTION_BYTES_MAX};
pub use protocol::{Answer, Question};

use crate::facts::{Fact, Members, Source};
use crate::service::{Failure, Outcome, Reply};

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The helper: answers the questions that come in until there are no more. It is what the program
/// named by [`crate::AccessSettings::helper`] does, with standard input and output.
///
/// # Errors
/// When a question cannot be read or an answer not written, and for a line that is no question.
pub fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    // A module that hangs does not see that nobody waits for it any more.
    steadfast_sys::process::die_with_parent()?;
    let mut input = BufReader::new(input);
    while let Some(line) = read_line(&mut input, QUESTION_BYTES_MAX)? {
        let question = Question::of_line(&line)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        output.write_all(&answer(&question).to_line())?;
        output.flush()?;
    }
    Ok(())
}

fn answer(question: &Question) -> Answer {
    let found = match question {
        Question::Netgroup(netgroup) => nss::netgroup_hosts(netgroup).map(|hosts| {
            let text = |host: Option<String>| host.unwrap_or_default();
            hosts.map(|hosts| Answer::Hosts(hosts.into_iter().map(text).collect()))
        }),
        Question::User(uid) => nss::groups_of(*uid).map(|groups| groups.map(Answer::Groups)),
        Question::UserNumber(name) => nss::uid_of(name).map(|uid| uid.map(Answer::Number)),
        Question::GroupNumber(name) => nss::gid_of(name).map(|gid| gid.map(Answer::Number)),
        Question::UserName(uid) => nss::user_name(*uid).map(|name| name.map(Answer::Name)),
        Question::GroupName(gid) => nss::group_name(*gid).map(|name| name.map(Answer::Name)),
    };
    match found {
        Ok(found) => found.unwrap_or(Answer::Missing),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// A line without its end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() >= most => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of over {most} bytes")))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Something to ask the helper.
pub(crate) enum Job {
    /// The hosts of some netgroups together, and of what is known already.
    Netgroups { names: Vec<NetgroupName>, known: Option<Members>, reply: Reply },
    /// The groups of a user.
    User { uid: u32, reply: Reply },
    /// The number of a user or group.
    NumberOf { kind: AccountKind, name: AccountName, reply: Reply },
    /// The name of a user or group.
    NameOf { kind: AccountKind, number: u32, reply: Reply },
}

/// A helper, and the thread that waits for it. When it is dropped, the thread ends by itself, as
/// soon as what it is doing is done.
#[derive(Debug)]
pub(crate) struct Helper {
    jobs: Sender<Job>,
}

impl Helper {
    /// Starts the thread; the process is started when there is something to ask.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(
        name: &str,
        command: Vec<OsString>,
        patience: Duration,
    ) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let mut worker = Worker { command, patience, process: None, has_failed: false };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || worker.work(&receiver))?;
        Ok(Self { jobs })
    }

    pub(crate) fn ask(&self, job: Job) {
        // If the thread has ended, so does the reply, unanswered.
        let _ = self.jobs.send(job);
    }
}

struct Worker {
    command: Vec<OsString>,
    patience: Duration,
    process: Option<Process>,
    /// The last question could not be asked, which was told.
    has_failed: bool,
}

struct Process {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<io::Result<Vec<u8>>>,
}

impl Worker {
    fn work(&mut self, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Netgroups { names, known, reply } => {
                    reply.send(self.netgroups(&names, known));
                }
                Job::User { uid, reply } => reply.send(self.user(uid)),
                Job::NumberOf { kind, name, reply } => reply.send(self.number_of(kind, &name)),
                Job::NameOf { kind, number, reply } => reply.send(self.name_of(kind, number)),
            }
        }
        self.end();
    }

    fn netgroups(&mut self, names: &[NetgroupName], known: Option<Members>) -> Outcome {
        let (mut is_found, mut members) = (known.is_some(), known.unwrap_or_default());
        for name in names {
            match self.ask(&Question::Netgroup(name.as_str().to_owned())) {
                Ok(Answer::Hosts(hosts)) => {
                    is_found = true;
                    members.add_all(Answer::members(&hosts));
                }
                Ok(Answer::Missing) => {}
                Ok(_) => return Outcome::Failed(Failure::Failed),
                Err(failure) => return Outcome::Failed(failure),
            }
        }
        if is_found { found(Fact::Members(members.into())) } else { missing() }
    }

    fn user(&mut self, uid: u32) -> Outcome {
        match self.ask(&Question::User(uid)) {
            Ok(Answer::Groups(groups)) => found(Fact::Groups(Answer::groups(groups).into())),
            Ok(Answer::Missing) => missing(),
            Ok(_) => Outcome::Failed(Failure::Failed),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn number_of(&mut self, kind: AccountKind, name: &AccountName) -> Outcome {
        match self.ask(&Question::number_of(kind, name)) {
            Ok(Answer::Number(number)) => found(Fact::Number(number)),
            Ok(Answer::Missing) => missing(),
            Ok(_) => Outcome::Failed(Failure::Failed),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn name_of(&mut self, kind: AccountKind, number: u32) -> Outcome {
        match self.ask(&Question::name_of(kind, number)) {
            // A name that would not be taken is not told either.
            Ok(Answer::Name(name)) => {
                AccountName::new(&name).map_or_else(missing, |name| found(Fact::Name(name)))
            }
            Ok(Answer::Missing) => missing(),
            Ok(_) => Outcome::Failed(Failure::Failed),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// Asks, and starts the process if there is none. After a failure there is none any more.
    fn ask(&mut self, question: &Question) -> Result<Answer, Failure> {
        let answered = self.try_to_ask(question);
        match answered {
            Ok(answer) => {
                self.has_failed = false;
                if let Answer::Failed(reason) = &answer {
                    tracing::debug!("the system could not tell about {question:?}: {reason}");
                }
                Ok(answer)
            }
            Err((failure, what)) => {
                // Once, until it can be asked again: clients choose how many names there are.
                if std::mem::replace(&mut self.has_failed, true) {
                    tracing::debug!("the system cannot be asked about {question:?}: {what}");
                } else {
                    tracing::warn!("the system cannot be asked about {question:?}: {what}");
                }
                self.end();
                Err(failure)
            }
        }
    }

    fn try_to_ask(&mut self, question: &Question) -> Result<Answer, (Failure, String)> {
        let not_asked = |error: io::Error| (Failure::NotAsked, error.to_string());
        let patience = self.patience;
        let process = match &mut self.process {
            Some(process) => process,
            none => none.insert(Process::start(&self.command).map_err(not_asked)?),
        };
        process.questions.write_all(&question.to_line()).map_err(not_asked)?;
        let line = match process.answers.recv_timeout(patience) {
            Ok(line) => line.map_err(not_asked)?,
            Err(RecvTimeoutError::Timeout) => {
                let what =
                    format!("no answer within {} s, the helper is killed", patience.as_secs());
                return Err((Failure::TimedOut, what));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err((Failure::NotAsked, "the helper ended".to_owned()));
            }
        };
        Answer::of_line(&line).map_err(|what| (Failure::NotAsked, what))
    }

    /// Kills the process, which may hang in the kernel: nobody waits for that either.
    fn end(&mut self) {
        let Some(Process { mut child, questions, answers }) = self.process.take() else { return };
        drop((questions, answers));
        let _ = child.kill();
        let reaper = std::thread::Builder::new().name("helper-end".to_owned());
        let reaped = reaper.spawn(move || {
            let _ = child.wait();
        });
        if let Err(error) = reaped {
            tracing::warn!("a helper that was killed is left as it is: {error}");
        }
    }
}

impl Process {
    fn start(command: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::other("no program is named to ask the system by"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(questions), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the helper has no pipes"));
        };
        let (sender, answers) = channel();
        // A thread reads, so that the reading can be given up.
        let spawned = std::thread::Builder::new().name("helper-read".to_owned()).spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(line) = read_line(&mut output, ANSWER_BYTES_MAX).transpose() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    break;
                }
            }
        });
        if let Err(error) = spawned {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Self { child, questions, answers })
    }
}

fn found(fact: Fact) -> Outcome {
    Outcome::Found { fact, ttl_s: None, source: Source::System, lacks: None }
}

fn missing() -> Outcome {
    Outcome::Missing { source: Source::System }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_a_line_each() {
        // In a thread, since the helper asks the kernel to end it with the one that started it.
        let questions = [Question::User(0).to_line(), Question::User(u32::MAX - 7).to_line()];
        let mut output = Vec::new();
        serve(questions.concat().as_slice(), &mut output).expect("answers");
        let answers: Vec<_> = output
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| Answer::of_line(line.trim_ascii_end()).expect("an answer"))
            .collect();
        let [Answer::Groups(groups), Answer::Missing] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert!(groups.contains(&0));
        assert!(serve(&b"nonsense\n"[..], Vec::new()).is_err());
        assert!(serve(&b"{\"user\":1}"[..], Vec::new()).is_err(), "a line without its end");
        let long = vec![b' '; QUESTION_BYTES_MAX + 1];
        assert!(serve(long.as_slice(), Vec::new()).is_err());
    }

    fn worker(script: &str, patience: Duration) -> Worker {
        let command = ["sh", "-c", script].map(OsString::from).to_vec();
        Worker { command, patience, process: None, has_failed: false }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_helper_that_answers_is_asked_again() {
        let mut worker = worker(
            "read x; echo '{\"groups\":[5,6,5]}'; read x; echo '{\"failed\":\"no\"}'; \
             read x; echo '\"missing\"'; read x; echo '{\"hosts\":[\"b.example\",\"a.example\"]}'",
            LONG,
        );
        assert_eq!(worker.user(1), found(Fact::Groups([5, 6].into())));
        let process = worker.process.as_ref().expect("a process").child.id();
        assert_eq!(worker.user(1), Outcome::Failed(Failure::Failed));
        assert_eq!(worker.user(1), missing());
        let staff = NetgroupName::new("staff").expect("a netgroup");
        let Outcome::Found { fact: Fact::Members(members), .. } = worker.netgroups(&[staff], None)
        else {
            panic!("members")
        };
        assert_eq!(members.hosts.len(), 2);
        assert_eq!(worker.process.as_ref().expect("a process").child.id(), process);
        worker.end();
    }

    #[test]
    fn names_and_numbers_are_asked_for_and_nonsense_is_a_failure() {
        let jane = AccountName::new("jane").expect("a name");
        let mut worker = worker(
            "read x; echo \"{\\\"number\\\":7}\"; read x; echo '{\"name\":\"staff\"}'; \
             read x; echo '\"missing\"'; read x; echo '{\"name\":\"7\"}'; \
             read x; echo '{\"name\":\"jane\"}'; read x; echo '{\"number\":7}'",
            LONG,
        );
        assert_eq!(worker.number_of(AccountKind::User, &jane), found(Fact::Number(7)));
        let staff = AccountName::new("staff").expect("a name");
        assert_eq!(worker.name_of(AccountKind::Group, 8), found(Fact::Name(staff)));
        assert_eq!(worker.number_of(AccountKind::Group, &jane), missing());
        assert_eq!(worker.name_of(AccountKind::User, 7), missing(), "a name of digits is none");
        let failed = Outcome::Failed(Failure::Failed);
        assert_eq!(worker.number_of(AccountKind::User, &jane), failed);
        assert_eq!(worker.name_of(AccountKind::User, 7), failed);
        worker.end();
    }

    #[test]
    fn the_system_knows_the_superuser_by_name_and_number() {
        let questions = [
            Question::UserNumber("root".to_owned()),
            Question::GroupName(0),
            Question::UserNumber("no-such-user-anywhere".to_owned()),
        ];
        let lines: Vec<_> = questions.iter().map(Question::to_line).collect();
        let mut output = Vec::new();
        serve(lines.concat().as_slice(), &mut output).expect("answers");
        let answers: Vec<_> = output
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| Answer::of_line(line.trim_ascii_end()).expect("an answer"))
            .collect();
        assert_eq!(answers, [Answer::Number(0), Answer::Name("root".to_owned()), Answer::Missing]);
    }

    #[test]
    fn a_helper_that_hangs_is_killed_and_another_is_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let flag = directory.path().join("hung");
        let flag = flag.to_str().expect("a path");
        let script = format!(
            "read x; if [ -e {flag} ]; then echo '{{\"groups\":[1]}}'; read x; \
             else touch {flag}; exec sleep 1000; fi"
        );
        let mut worker = worker(&script, Duration::from_secs(1));
        assert_eq!(worker.user(1), Outcome::Failed(Failure::TimedOut));
        assert!(worker.process.is_none());
        assert_eq!(worker.user(1), found(Fact::Groups([1].into())));
        worker.end();
    }

    #[test]
    fn a_helper_that_ends_or_talks_nonsense_is_a_failure() {
        for script in ["exit 1", "read x; echo nonsense", "read x; printf '{\"groups\":[1]}'"] {
            let mut worker = worker(script, LONG);
            assert_eq!(worker.user(1), Outcome::Failed(Failure::NotAsked), "{script}");
            assert!(worker.process.is_none());
        }
        let mut worker = Worker {
            command: vec!["/nowhere/steadfast".into()],
            patience: LONG,
            process: None,
            has_failed: false,
        };
        assert_eq!(worker.user(1), Outcome::Failed(Failure::NotAsked));
    }
}
