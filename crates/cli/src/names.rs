//! The name services of a running server, and the mounts that wait for them.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use steadfast_access::{Access, AccessSettings, helper};
use steadfast_engine::Engine;
use steadfast_shares::configuration::NamesSettings;

/// In the state directory: what is known about names.
const FILE_NAME: &str = "names.json";
/// Between two looks at the mounts that wait, so that their patience ends.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts name services as they are configured.
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn start(settings: &NamesSettings, state_directory: &Path) -> Result<Arc<Access>> {
    let program = std::env::current_exe();
    if let Err(error) = &program {
        tracing::warn!(
            "cannot find out which program this is: {error}; netgroups and groups of users come \
             from files alone"
        );
    }
    let helper = program.ok().map(|program| vec![program.into(), OsString::from("names-helper")]);
    let settings = AccessSettings {
        helper,
        state_file: Some(state_directory.join(FILE_NAME)),
        ..AccessSettings::from(settings)
    };
    Access::start(&settings).context("cannot start name services")
}

/// What the hidden command does that the server starts: answers its questions.
///
/// # Errors
/// When they cannot be read, or the answers not written.
pub(crate) fn help() -> io::Result<()> {
    helper::serve(io::stdin().lock(), io::stdout().lock())
}

/// Name services, and the thread that executes mounts again once their names are known.
pub(crate) struct Names {
    access: Arc<Access>,
    news: Arc<News>,
    thread: Option<JoinHandle<()>>,
}

/// That something is known which was not.
#[derive(Default)]
struct News {
    state: Mutex<NewsState>,
    bell: Condvar,
}

#[derive(Default)]
struct NewsState {
    is_there: bool,
    is_stopping: bool,
}

impl Names {
    /// Executes the engine's waiting mounts again whenever something is known about names.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(access: Arc<Access>, engine: &Arc<Engine>) -> Result<Self> {
        let news = Arc::new(News::default());
        let told = Arc::clone(&news);
        access.on_news(Arc::new(move || {
            told.state.lock().is_there = true;
            told.bell.notify_all();
        }));
        let (waiting, engine) = (Arc::clone(&news), Arc::clone(engine));
        let thread = std::thread::Builder::new()
            .name("mounts".to_owned())
            .spawn(move || waiting.retry_mounts(&engine))
            .context("cannot start a thread")?;
        Ok(Self { access, news, thread: Some(thread) })
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Keeps what is known, and ends.
    pub(crate) fn stop(mut self) {
        self.news.state.lock().is_stopping = true;
        self.news.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.access.stop();
    }
}

impl News {
    fn retry_mounts(&self, engine: &Engine) {
        loop {
            {
                let mut state = self.state.lock();
                if !state.is_there && !state.is_stopping {
                    self.bell.wait_for(&mut state, INTERVAL);
                }
                if state.is_stopping {
                    return;
                }
                state.is_there = false;
            }
            engine.retry_waiting_mounts();
        }
    }
}
