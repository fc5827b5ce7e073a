//! What TCP and UDP have in common.

use crate::call::{Identity, Procedure};
use crate::error::ClientError;
use crate::reply::{Reply, ReplyBody};

/// Carries a call to the server and brings its reply.
pub trait RpcTransport {
    /// Sends a call and waits for its reply.
    ///
    /// # Errors
    /// When no reply comes; a reply that says why the call was not executed is no error.
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError>;

    /// Sends a call and waits for its results.
    ///
    /// # Errors
    /// As [`RpcTransport::exchange`], and when the call was not executed.
    fn call(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Vec<u8>, ClientError> {
        results(self.exchange(procedure, identity, arguments)?)
    }
}

/// A reply's results.
///
/// # Errors
/// When the call was not executed.
pub(crate) fn results(mut reply: Reply) -> Result<Vec<u8>, ClientError> {
    match reply.body {
        ReplyBody::Success { results_at } => {
            reply.message.drain(..results_at);
            Ok(reply.message)
        }
        ReplyBody::Accepted(error) => Err(ClientError::Accepted(error)),
        ReplyBody::Denied(denial) => Err(ClientError::Denied(denial)),
    }
}
