//! Calls as spans, in the form of OTLP's JSON (opentelemetry-proto, `ExportTraceServiceRequest`): numbers of 64 bits are
//! written as text there, and ids in hexadecimal digits.

use std::net::SocketAddr;

use serde_json::{Value, json};
use steadfast_control::statistics::{Recorded, Stages, Statistics};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// `SPAN_KIND_SERVER`.
const KIND_SERVER: u32 = 2;
/// `SPAN_KIND_INTERNAL`.
const KIND_INTERNAL: u32 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u32 = 2;

/// The server that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// When it was started, in ms since 1970.
    pub(super) started_unix_ms: u64,
    pub(super) process: u32,
    pub(super) program_version: String,
}

impl Origin {
    pub(super) fn of(document: &Statistics) -> Self {
        Self {
            started_unix_ms: document.started_unix_ms,
            process: document.process,
            program_version: document.program_version.clone(),
        }
    }

    fn instance(&self) -> String {
        format!("{:x}-{}", self.started_unix_ms, self.process)
    }

    /// The same call has the same number whoever tells of it, and no other has it: by what was measured of it. When it was
    /// received is no part of that: the server reckons that anew for each document, from two clocks that drift.
    pub(super) fn trace_id(&self, call: &Recorded) -> u128 {
        let Stages { receive_ns, queue_ns, send_ns, .. } = call.stages;
        let named = format!(
            "{} {} {:x} {} {} {} {receive_ns} {queue_ns} {send_ns}",
            self.instance(),
            call.client,
            call.xid,
            call.name,
            call.latency_ns,
            call.execution_ns,
        );
        // No valid id is 0.
        xxh3_128(named.as_bytes()).max(1)
    }

    /// A request that tells of these calls; and how many spans it has.
    pub(super) fn request(&self, service: &str, calls: &[Recorded]) -> (Value, usize) {
        let spans: Vec<_> = calls.iter().flat_map(|call| self.spans(call)).collect();
        let count = spans.len();
        let resource = [
            text("service.name", service),
            text("service.version", &self.program_version),
            text("service.instance.id", &self.instance()),
        ];
        let scope = json!({"name": "steadfast", "version": env!("CARGO_PKG_VERSION")});
        let request = json!({"resourceSpans": [{
            "resource": {"attributes": resource},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]});
        (request, count)
    }

    /// The call's span, and one for each of its stages.
    fn spans(&self, call: &Recorded) -> Vec<Value> {
        let trace = self.trace_id(call);
        let whole = span_id(trace, "");
        let begun_ns = call.begun_unix_us.saturating_mul(1000);
        let ended_ns =
            begun_ns.saturating_add(call.stages.receive_ns).saturating_add(call.latency_ns);
        let mut attributes = vec![
            text("rpc.system", "onc_rpc"),
            text("onc_rpc.program.name", &call.protocol),
            number("onc_rpc.version", u64::from(call.version)),
            text("onc_rpc.procedure.name", &call.name),
            number("onc_rpc.procedure.number", u64::from(call.procedure)),
            number("onc_rpc.xid", u64::from(call.xid)),
            text("network.transport", &call.transport),
        ];
        if let Ok(client) = call.client.parse::<SocketAddr>() {
            attributes.push(text("client.address", &client.ip().to_canonical().to_string()));
            attributes.push(number("client.port", u64::from(client.port())));
        }
        if !call.operations.is_empty() {
            let all: Vec<_> = call.operations.iter().map(|name| value(name)).collect();
            let all = json!({"arrayValue": {"values": all}});
            attributes.push(json!({"key": "nfs.operations", "value": all}));
        }
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": whole,
            "name": format!("{}/{}", call.protocol, call.name),
            "kind": KIND_SERVER,
            "startTimeUnixNano": begun_ns.to_string(),
            "endTimeUnixNano": ended_ns.to_string(),
            "attributes": attributes,
        });
        if call.is_error
            && let Some(members) = span.as_object_mut()
        {
            members.insert("status".to_owned(), json!({"code": STATUS_ERROR}));
        }
        let mut spans = vec![span];
        let mut at_ns = begun_ns;
        for (name, ns) in parts(call) {
            // The parts are measured one by one: together they may be a little more than the whole.
            let end_ns = at_ns.saturating_add(ns).min(ended_ns);
            spans.push(json!({
                "traceId": format!("{trace:032x}"),
                "spanId": span_id(trace, name),
                "parentSpanId": whole,
                "name": name,
                "kind": KIND_INTERNAL,
                "startTimeUnixNano": at_ns.to_string(),
                "endTimeUnixNano": end_ns.to_string(),
            }));
            at_ns = end_ns;
        }
        spans
    }
}

/// The stages of a call, in their order, with what each took in ns.
fn parts(call: &Recorded) -> Vec<(&'static str, u64)> {
    let Stages { receive_ns, queue_ns, decode_ns, access_ns, storage_ns, stable_ns, send_ns } =
        call.stages;
    let mut parts = vec![("receive", receive_ns), ("queue", queue_ns)];
    if call.is_sampled {
        parts.extend([("decode", decode_ns), ("access", access_ns), ("storage", storage_ns)]);
    } else {
        // It was recorded since it was slow: these three are known together.
        parts.push(("execution", call.execution_ns));
    }
    if call.was_parked {
        parts.push(("stable", stable_ns));
    }
    parts.push(("send", send_ns));
    parts
}

fn span_id(trace: u128, part: &str) -> String {
    let named = format!("{trace:032x} {part}");
    format!("{:016x}", xxh3_64(named.as_bytes()).max(1))
}

fn value(text: &str) -> Value {
    json!({"stringValue": text})
}

fn text(key: &str, text: &str) -> Value {
    json!({"key": key, "value": value(text)})
}

fn number(key: &str, number: u64) -> Value {
    json!({"key": key, "value": {"intValue": number.to_string()}})
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn call() -> Recorded {
        Recorded {
            xid: 7,
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 4,
            procedure: 1,
            name: "COMPOUND".to_owned(),
            is_error: false,
            operations: vec!["SEQUENCE".to_owned(), "WRITE".to_owned()],
            client: "[::ffff:192.0.2.7]:700".to_owned(),
            transport: "tcp".to_owned(),
            begun_unix_us: 1_000_000,
            latency_ns: 900,
            execution_ns: 300,
            is_sampled: true,
            was_parked: true,
            stages: Stages {
                receive_ns: 50,
                queue_ns: 100,
                decode_ns: 50,
                access_ns: 100,
                storage_ns: 150,
                stable_ns: 400,
                send_ns: 100,
            },
        }
    }

    fn spans(call: &Recorded) -> Vec<Value> {
        Origin::default().spans(call)
    }

    fn times(span: &Value) -> (u64, u64) {
        let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        (time("startTimeUnixNano"), time("endTimeUnixNano"))
    }

    #[test]
    fn the_stages_follow_each_other_and_fill_the_call() {
        let spans = spans(&call());
        let (begin, end) = times(&spans[0]);
        assert_eq!((begin, end), (1_000_000_000, 1_000_000_950));
        let names: Vec<_> = spans[1..].iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["receive", "queue", "decode", "access", "storage", "stable", "send"]);
        let mut at = begin;
        for span in &spans[1..] {
            assert_eq!(times(span).0, at);
            at = times(span).1;
            assert_eq!(span["parentSpanId"], spans[0]["spanId"]);
            assert_eq!(span["traceId"], spans[0]["traceId"]);
        }
        assert_eq!(at, end);
        let ids: HashSet<_> = spans.iter().map(|span| span["spanId"].to_string()).collect();
        assert_eq!(ids.len(), spans.len());
    }

    #[test]
    fn what_was_only_slow_has_its_execution_in_one_and_never_more_than_the_whole() {
        let mut slow = Recorded { is_sampled: false, was_parked: false, ..call() };
        slow.execution_ns = 100_000;
        let spans = spans(&slow);
        let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["nfs/COMPOUND", "receive", "queue", "execution", "send"]);
        let end = times(&spans[0]).1;
        assert_eq!((times(&spans[3]).1, times(&spans[4])), (end, (end, end)));
    }

    #[test]
    fn a_request_is_as_otlp_writes_it() {
        let origin =
            Origin { started_unix_ms: 0xabc, process: 42, program_version: "0.1.0".to_owned() };
        let failed = Recorded { is_error: true, ..call() };
        let (request, count) = origin.request("storage", &[call(), failed]);
        assert_eq!(count, 16);
        let of = &request["resourceSpans"][0];
        let name = json!({"key": "service.name", "value": {"stringValue": "storage"}});
        assert_eq!(of["resource"]["attributes"][0], name);
        let instance = &of["resource"]["attributes"][2]["value"]["stringValue"];
        assert_eq!(instance, "abc-42");
        let spans = of["scopeSpans"][0]["spans"].as_array().unwrap();
        let span = &spans[0];
        assert_eq!((span["kind"].as_u64(), &span["status"]), (Some(2), &Value::Null));
        assert_eq!(spans[8]["status"], json!({"code": 2}));
        assert_eq!(span["traceId"].as_str().map(str::len), Some(32));
        assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
        let attribute = |key: &str| {
            let all = span["attributes"].as_array().unwrap();
            all.iter().find(|one| one["key"] == key).unwrap()["value"].clone()
        };
        assert_eq!(attribute("rpc.system"), json!({"stringValue": "onc_rpc"}));
        assert_eq!(attribute("onc_rpc.version"), json!({"intValue": "4"}));
        assert_eq!(attribute("client.address"), json!({"stringValue": "192.0.2.7"}));
        assert_eq!(attribute("client.port"), json!({"intValue": "700"}));
        let all = json!({"arrayValue": {"values": [value("SEQUENCE"), value("WRITE")]}});
        assert_eq!(attribute("nfs.operations"), all);
    }

    #[test]
    fn a_call_has_one_id() {
        let origin = Origin::default();
        let id = origin.trace_id(&call());
        assert_eq!(id, origin.trace_id(&call()));
        let drifted = Recorded { begun_unix_us: 1_000_001, ..call() };
        assert_eq!(id, origin.trace_id(&drifted), "the clocks have moved against each other");
        for other in [
            Recorded { xid: 8, ..call() },
            Recorded { latency_ns: 901, ..call() },
            Recorded { execution_ns: 301, ..call() },
            Recorded { client: "192.0.2.8:700".to_owned(), ..call() },
        ] {
            assert_ne!(id, origin.trace_id(&other));
        }
        assert_ne!(id, Origin { process: 1, ..Origin::default() }.trace_id(&call()));
    }
}
