//! Questions to holders of delegations to write (`CB_GETATTR`): somebody waits for each. One that gets no answer,
//! whatever the reason, has the delegation recalled.

use std::sync::Arc;

use steadfast_state::{Client, HOLDER_PATIENCE_MS, HolderSays};

use super::message::Asked;
use super::{Notice, QUESTIONS_A_CLIENT_MAX, Table};
use crate::Shared;

impl Table {
    /// How many questions to a client are under way.
    fn questions_to(&self, client: &Client) -> usize {
        let waiting = self.questions.by_client.get(&client.id()).map_or(0, Vec::len);
        let is_one = |notice: &Notice| notice.is_question() && notice.client.id() == client.id();
        waiting + self.in_flight.values().filter(|call| is_one(&call.notice)).count()
    }
}

impl Shared {
    /// Asks the holder of a delegation to write how its file is, now or from a later time on. If it is asked too much
    /// already, that counts as no answer.
    pub(crate) fn ask_holder(
        &self,
        (now_ms, not_before_ms): (u64, u64),
        client: Arc<Client>,
        asked: Asked,
    ) {
        let due_ms = now_ms.max(not_before_ms);
        let notice = Notice { client, asked, since_ms: due_ms, due_ms };
        let under_way = self.callbacks.change(|table| table.questions_to(&notice.client));
        if under_way >= QUESTIONS_A_CLIENT_MAX {
            self.is_lost(&notice, now_ms);
            return;
        }
        let kept = if due_ms > now_ms { Some(notice) } else { self.begin_callback(notice, now_ms) };
        if let Some(notice) = kept {
            self.keep_waiting(notice, now_ms);
        }
    }

    /// What the holder of a delegation to write says of its file; `None` if that is no answer. Who waits goes on.
    pub(super) fn holder_says(&self, asked: &Asked, says: Option<HolderSays>, now_ms: u64) {
        let Asked::Attributes { id, file, question, .. } = asked else { return };
        let (at, question) = ((file, id), *question);
        let was_asked = match says {
            Some(says) => self.state.holder_says(now_ms, at, question, says),
            None => self.state.holder_is_mute(now_ms, at, question),
        };
        if was_asked {
            self.holder_has_answered(file);
        }
    }

    /// Gives up what was asked too long ago: also of those who looked and have gone.
    pub(super) fn give_up_questions(&self, now_ms: u64) {
        let is_over = |notice: &Notice| {
            notice.is_question() && now_ms >= notice.since_ms.saturating_add(HOLDER_PATIENCE_MS)
        };
        let over: Vec<Asked> = self.callbacks.change(|table| {
            let waiting = table.questions.by_client.values().flatten();
            let in_flight = table.in_flight.values().map(|call| &call.notice);
            let over = waiting.chain(in_flight).filter(|notice| is_over(notice));
            over.map(|notice| notice.asked.clone()).collect()
        });
        for asked in over {
            self.holder_says(&asked, None, now_ms);
        }
    }
}
