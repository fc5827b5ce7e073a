//! The table in a terminal.

mod state;
mod view;

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use steadfast_control::Client;
use steadfast_control::top::{TopFilter, TopReport};
use steadfast_sys::process::Signals;

use self::state::{Action, State};
use super::{TopArguments, TopError, ask};
use crate::screen::{self, Input};

/// For how long a key is waited for before answers and signals are looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// Shows the table until somebody wants to stop.
pub(super) fn run(
    client: &Client,
    arguments: &TopArguments,
    signals: &Signals,
) -> Result<(), TopError> {
    screen::run(|terminal| shown(terminal, client, arguments, signals))
}

/// Asks on a thread of its own: keys are answered while the server is waited for.
struct Asking {
    questions: Sender<TopFilter>,
    answers: Receiver<Answer>,
    is_waiting: bool,
}

/// What was asked, and what became of it.
type Answer = (TopFilter, Result<TopReport, TopError>);

impl Asking {
    fn start(client: &Client) -> std::io::Result<Self> {
        let (questions, asked) = channel::<TopFilter>();
        let (told, answers) = channel();
        let client = client.clone();
        Self::with(questions, answers, move || {
            for filter in asked {
                let answer = ask(&client, &filter);
                if told.send((filter, answer)).is_err() {
                    break;
                }
            }
        })
    }

    fn with(
        questions: Sender<TopFilter>,
        answers: Receiver<Answer>,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        std::thread::Builder::new().name("top".to_owned()).spawn(work)?;
        Ok(Self { questions, answers, is_waiting: false })
    }

    fn ask(&mut self, filter: TopFilter) {
        self.is_waiting = self.questions.send(filter).is_ok();
    }

    /// An answer, if one has come.
    ///
    /// # Errors
    /// When none will come any more: the thread has panicked, and nobody must be left with an old table in a terminal
    /// that the panic has put back.
    fn answer(&mut self) -> Result<Option<Answer>, TopError> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.is_waiting = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(TopError::Io(std::io::Error::other(
                "the thread that asks the server has failed: this is a bug",
            ))),
        }
    }
}

fn shown(
    terminal: &mut DefaultTerminal,
    client: &Client,
    arguments: &TopArguments,
    signals: &Signals,
) -> Result<(), TopError> {
    let mut asking = Asking::start(client)?;
    let mut state = State::new(&arguments.filter(0), screen::has_colours());
    let mut left = arguments.count;
    let (mut is_stale, mut due) = (true, Instant::now());
    loop {
        if is_stale {
            terminal.draw(|frame| view::draw(frame, &mut state))?;
            is_stale = false;
        }
        if !asking.is_waiting && Instant::now() >= due {
            due = Instant::now() + arguments.interval;
            asking.ask(state.question());
        }
        if let Some((asked, answer)) = asking.answer()? {
            is_stale = true;
            match answer {
                Ok(report) => {
                    left = left.map(|left| left - u64::from(report.window_us > 0).min(left));
                    state.take(&asked, report);
                }
                Err(error) => state.failed(&error.to_string()),
            }
        }
        if left == Some(0) || signals.wait(Duration::ZERO)?.is_some() {
            return Ok(());
        }
        let mut patience = PATIENCE;
        while let Some(input) = screen::next_input(patience)? {
            (is_stale, patience) = (true, Duration::ZERO);
            let Input::Key(key) = input else { continue };
            match state.handle_key(key) {
                Action::Nothing => {}
                Action::Ask => due = Instant::now(),
                Action::Quit => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_thread_that_panics_ends_the_screen() {
        let (questions, asked) = channel::<TopFilter>();
        let (told, answers) = channel::<Answer>();
        let mut asking = Asking::with(questions, answers, move || {
            let (_told, question) = (told, asked.recv());
            // It is what the test is about, and no noise is wanted.
            std::panic::resume_unwind(Box::new(question.is_ok()));
        })
        .unwrap();
        assert!(asking.answer().unwrap().is_none());
        asking.ask(TopFilter::default());
        let failed = loop {
            match asking.answer() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) => unreachable!("nothing was told"),
                Err(error) => break error,
            }
        };
        assert!(failed.to_string().contains("has failed"), "{failed}");
    }
}
