//! Name services, and the decisions about clients that are made with what they say.
#![forbid(unsafe_code)]
