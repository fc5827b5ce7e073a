//! Process ring: `steadfast traces` sends the calls of the real program to a collector, which is this test: one that is
//! busy at first, then takes all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{output, stderr, utf8};
use nfs3_support::Fixture;
use serde_json::Value;

/// The body of one request, with its head; the answer is this status and these bytes.
fn serve(mut stream: TcpStream, status: &str, answer: &str) -> (String, Value) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let length = answer.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}").unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let all = of["attributes"].as_array().unwrap();
    &all.iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("no {key}: {of:#}"))["value"]
}

fn ns(span: &Value, name: &str) -> u64 {
    span[name].as_str().unwrap().parse().unwrap()
}

/// A call's spans: the whole first, then its stages without a gap. It is a GETATTR that this test has sent.
fn judge(spans: &[Value]) {
    let whole = &spans[0];
    assert_eq!((whole["kind"].as_u64(), &whole["name"]), (Some(2), &Value::from("nfs/GETATTR")));
    for (key, text) in [
        ("rpc.system", "onc_rpc"),
        ("onc_rpc.procedure.name", "GETATTR"),
        ("client.address", "127.0.0.1"),
        ("network.transport", "tcp"),
    ] {
        assert_eq!(attribute(whole, key)["stringValue"], text, "{whole:#}");
    }
    assert_eq!(attribute(whole, "onc_rpc.version")["intValue"], "3");
    let mut at = ns(whole, "startTimeUnixNano");
    for span in &spans[1..] {
        assert_eq!(span["parentSpanId"], whole["spanId"]);
        assert_eq!(span["traceId"], whole["traceId"]);
        assert_eq!(ns(span, "startTimeUnixNano"), at, "{span:#}");
        at = ns(span, "endTimeUnixNano");
    }
    let (begin, end) = (ns(whole, "startTimeUnixNano"), ns(whole, "endTimeUnixNano"));
    assert!(end > begin && end - at <= (end - begin) / 20, "the stages are the call: {spans:#?}");
}

#[test]
fn calls_are_sent_to_a_collector_each_once() {
    let mut fixture = Fixture::new();
    let file = fixture.file("a file");
    let (mut client, _) = fixture.mount();
    let is_over = Arc::new(AtomicBool::new(false));
    let load = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::SeqCst) {
                client.getattr(&file).unwrap();
            }
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let state = utf8(&fixture.place.state).to_owned();
    let mut sender = Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .args(["traces", "--state-directory", &state, "--to", &url, "--operation", "getattr"])
        .args(["--rate", "50", "--interval", "0.2", "--header", "X-Key=secret", "--seconds", "4"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    let next = || listener.accept().unwrap().0;
    let (_, first) = serve(next(), "503 Busy", "");
    let (head, again) = serve(next(), "200 OK", "{\"partialSuccess\":{}}");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("x-key: secret\r\n"), "{head}");
    let spans = |request: &Value| -> Vec<Value> {
        let of = &request["resourceSpans"][0];
        assert_eq!(attribute(&of["resource"], "service.name")["stringValue"], "steadfast");
        of["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    };
    let (first, mut told) = (spans(&first), spans(&again));
    assert_eq!(
        first,
        told[..first.len()],
        "what was not taken is sent again, with what came since"
    );
    let partial = "{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"no room\"}}";
    told.extend(spans(&serve(next(), "200 OK", partial).1));
    let collector = std::thread::spawn(move || {
        let mut told = told;
        listener.set_nonblocking(false).unwrap();
        // Until the sender has ended, and connects from here.
        while let Ok((stream, _)) = listener.accept() {
            let mut one = [0];
            if stream.peek(&mut one).unwrap_or(0) == 0 {
                break;
            }
            told.extend(spans(&serve(stream, "200 OK", "").1));
        }
        told
    });
    let mut said = String::new();
    sender.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(sender.wait().unwrap().code(), Some(0), "{said}");
    is_over.store(true, Ordering::SeqCst);
    load.join().unwrap();
    drop(TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap());
    let told = collector.join().unwrap();

    assert!(said.contains("503 Service Unavailable; trying again"), "{said}");
    assert!(said.contains("rejects 3 spans: no room"), "{said}");
    assert!(said.contains("calls left out (--rate)"), "{said}");
    let calls: Vec<_> = told.chunk_by(|a, b| a["traceId"] == b["traceId"]).collect();
    assert!((20..=220).contains(&calls.len()), "{} calls in 4 s", calls.len());
    for spans in &calls {
        judge(spans);
    }
    let ids: HashSet<_> = calls.iter().map(|spans| spans[0]["traceId"].to_string()).collect();
    assert_eq!(ids.len(), calls.len(), "each once");
    assert!(said.contains(&format!("{} calls as {} spans", calls.len(), told.len())), "{said}");

    // Nobody calls any more: what the recorder has is not told again and again.
    let words =
        ["traces", "--state-directory", &state, "--print", "--interval", "0.1", "--seconds", "2"];
    let done = output(&words);
    assert_eq!(stderr(&done), "0 calls as 0 spans\n", "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn what_cannot_be_sent_is_told() {
    let fixture = Fixture::new();
    let state = utf8(&fixture.place.state);
    let traces = |more: &[&str]| {
        let told = output(&[&["traces", "--state-directory", state], more].concat());
        (told.status.code(), stderr(&told))
    };
    for (url, why) in [
        ("https://collector:4318", "have a collector on this host"),
        ("collector", "write one such as http://127.0.0.1:4318"),
    ] {
        let (code, said) = traces(&["--to", url]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("--to {url}: ")) && said.contains(why), "{said}");
    }
    let (code, said) = traces(&["--to", "http://c", "--header", "secret"]);
    assert!(code == Some(1) && said.contains("write NAME=VALUE"), "{said}");
    assert_eq!(traces(&[]).0, Some(2), "neither --to nor --print");
    let (code, said) = traces(&["--print", "--seconds", "1"]);
    assert_eq!((code, said.as_str()), (Some(0), "0 calls as 0 spans\n"));
    let nowhere = output(&["traces", "--state-directory", "/nonexistent", "--print"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", stderr(&nowhere));
}
