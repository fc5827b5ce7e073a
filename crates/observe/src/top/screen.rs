//! The table in a terminal.

mod state;
mod view;

use std::sync::mpsc::{Receiver, Sender, channel};
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
    answers: Receiver<Result<TopReport, TopError>>,
    is_waiting: bool,
}

impl Asking {
    fn start(client: &Client) -> std::io::Result<Self> {
        let (questions, asked) = channel::<TopFilter>();
        let (told, answers) = channel();
        let client = client.clone();
        std::thread::Builder::new().name("top".to_owned()).spawn(move || {
            for filter in asked {
                if told.send(ask(&client, &filter)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { questions, answers, is_waiting: false })
    }

    fn ask(&mut self, filter: TopFilter) {
        self.is_waiting = self.questions.send(filter).is_ok();
    }

    fn answer(&mut self) -> Option<Result<TopReport, TopError>> {
        let answer = self.answers.try_recv().ok()?;
        self.is_waiting = false;
        Some(answer)
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
        if let Some(answer) = asking.answer() {
            is_stale = true;
            match answer {
                Ok(report) => {
                    left = left.map(|left| left - u64::from(report.window_us > 0).min(left));
                    state.take(report);
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
