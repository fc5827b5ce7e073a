//! What a Steadfast server tells, as text for people. Each module takes a document of `steadfast-control`, or a report
//! that was made of such documents, and makes a table or sentences of it. None of them asks, prints or reads a clock;
//! [`table::Screen`] says how wide the terminal is.

pub mod clients;
pub mod log;
pub mod mounting;
pub mod outcome;
pub mod shares;
pub mod slow;
pub mod statistics;
pub mod status;
pub mod table;
