//! Name services that are silent: where names decide who a client is, clients are refused meanwhile.

use super::samples::sample;
use crate::doctor::facts::NameServer;

/// Whether a server's metrics say that it has asked name services who its clients are.
pub(super) fn are_asked(metrics: &str) -> bool {
    ["hosts", "clients"].iter().any(|kind| {
        let name = format!("steadfast_name_questions_total{{kind=\"{kind}\"}}");
        sample(metrics, &name).is_some_and(|count| count > 0.0)
    })
}

/// What is to be said of name servers that do not answer, and whether some do. The measure is the doctor's
/// (`name-server-dead`).
pub(super) fn warning(servers: &[NameServer]) -> Option<(bool, String)> {
    let silent = servers.iter().filter(|server| server.answered_s.is_none());
    let silent: Vec<String> = silent.map(|server| server.address.ip().to_string()).collect();
    if silent.is_empty() {
        return None;
    }
    let list = silent.join(", ");
    Some(if silent.len() == servers.len() {
        let what = format!(
            "no name server answers ({list}): a client that may be in a rule by name is refused, also one whom a \
             later rule lets in, until its name is known"
        );
        (false, what)
    } else {
        (true, format!("a name server does not answer ({list}): look-ups of clients wait for it"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8, answered_s: Option<f64>) -> NameServer {
        NameServer {
            address: ([192, 0, 2, last], 53).into(),
            answered_s,
            waited_s: 2.0,
            timeout_s: 10,
            refusal: None,
        }
    }

    #[test]
    fn only_servers_that_ask_for_names_of_clients_need_name_servers() {
        let of = |kind: &str, count: u32| {
            format!("a 1\nsteadfast_name_questions_total{{kind=\"{kind}\"}} {count}\n")
        };
        assert!(are_asked(&of("hosts", 1)) && are_asked(&of("clients", 2)));
        assert!(!are_asked(&of("hosts", 0)) && !are_asked(&of("users", 5)) && !are_asked(""));
    }

    #[test]
    fn it_is_critical_if_none_answers() {
        let (alive, dead) = (server(1, Some(0.1)), server(2, None));
        assert_eq!(warning(&[]), None);
        assert_eq!(warning(std::slice::from_ref(&alive)), None);
        let (is_any_alive, what) = warning(&[alive, dead.clone()]).expect("a warning");
        assert!(is_any_alive && what.contains("192.0.2.2"), "{what}");
        let (is_any_alive, what) = warning(&[dead, server(3, None)]).expect("a warning");
        assert!(!is_any_alive);
        assert!(what.contains("192.0.2.2, 192.0.2.3") && what.contains("later rule"), "{what}");
    }
}
