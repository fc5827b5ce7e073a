//! Questions to holders of delegations to write (`CB_GETATTR`): somebody waits for each. One that cannot be sent, or has
//! no answer in time, or an answer that is none, has the delegation recalled. None waits for a slot or a connection. How
//! many are in flight is bounded by the slots, of which they leave one of each session free
//! ([`steadfast_state::Session::begin_question`]).

use std::sync::Arc;

use steadfast_state::{Client, HOLDER_PATIENCE_MS, HolderSays};

use super::Notice;
use super::message::Asked;
use crate::Shared;

impl Shared {
    /// Asks the holder of a delegation to write how its file is.
    pub(crate) fn ask_holder(&self, now_ms: u64, client: Arc<Client>, asked: Asked) {
        let notice = Notice { client, asked, since_ms: now_ms, due_ms: now_ms };
        if let Some(notice) = self.begin_callback(notice, now_ms) {
            self.is_lost(&notice, now_ms);
        }
    }

    /// Something is not told. That a lock is free its client finds out itself, and the state asks for a recall again.
    pub(super) fn is_lost(&self, notice: &Notice, now_ms: u64) {
        if let Asked::Attributes { id, file, question, .. } = &notice.asked {
            self.state.cannot_ask(now_ms, (file, id), *question);
        }
    }

    /// What the holder of a delegation to write says of its file; `None` if that is no answer.
    pub(super) fn holder_says(&self, asked: &Asked, says: Option<HolderSays>, now_ms: u64) {
        if let Asked::Attributes { id, file, question, .. } = asked {
            self.state.holder_says(now_ms, (file, id), *question, says);
        }
    }

    /// Gives up what was asked too long ago: also of those who looked and have gone.
    pub(super) fn give_up_questions(&self, now_ms: u64) {
        let is_over = |notice: &&Notice| {
            notice.is_question() && now_ms >= notice.since_ms.saturating_add(HOLDER_PATIENCE_MS)
        };
        let over: Vec<Asked> = self.callbacks.change(|table| {
            let in_flight = table.in_flight.values().map(|call| &call.notice);
            in_flight.filter(is_over).map(|notice| notice.asked.clone()).collect()
        });
        for asked in over {
            self.holder_says(&asked, None, now_ms);
        }
    }
}
