//! Unit ring: the screen in a terminal of memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::super::state::{Action, Sort, State};
use super::draw;
use crate::capture::By;
use crate::capture::testing::{CLIENT, SERVER, getattr, getattr_reply, ip, ip_bytes, udp_bytes};
use crate::watch::session::Session;

fn session(clients: u8) -> Session {
    let mut session = Session::new([2049], 1_000_000_000);
    for number in 1..=clients {
        let client = [10, 0, 1, number].into();
        for xid in 0..u32::from(number) {
            let status = if xid == 1 { 70 } else { 0 };
            let call = ip_bytes(client, SERVER, 17, &udp_bytes((800, 2049), &getattr(xid)));
            session.handle_packet(&ip(1_000_000_000, &call));
            let reply = udp_bytes((2049, 800), &getattr_reply(xid, status));
            let reply = ip_bytes(SERVER, client, 17, &reply);
            session.handle_packet(&ip(1_002_000_000, &reply));
        }
    }
    session.end_interval(2_000_000_000);
    session
}

fn shown(state: &mut State, session: &Session, size: (u16, u16)) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    state.update(session);
    terminal.draw(|frame| draw(frame, state, session)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(size.0));
    let has_colours = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
    (rows.map(|row| row.iter().map(Cell::symbol).collect()).collect(), has_colours)
}

fn press(state: &mut State, code: KeyCode) -> Action {
    state.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn everything_fits_80_columns_and_24_rows() {
    let session = session(100);
    let mut state = State::new(By::Client, false);
    let (rows, has_colours) = shown(&mut state, &session, (80, 24));
    assert_eq!(rows.len(), 24);
    assert!(!has_colours);
    assert!(rows[1].starts_with("5050.0 calls/s, 2.000 ms/call, p99 2.000 ms; 5050 calls, 99"));
    assert!(rows[4].starts_with("10.0.1.100 "), "{rows:#?}");
    let numbers: Vec<&str> = rows[4].split_whitespace().collect();
    assert_eq!(numbers, ["10.0.1.100", "100.0", "100", "1", "0", "2.000", "2.000", "0"]);
    assert!(rows[22].starts_with("10100 packets, 0 dropped, 0 gaps"));
    assert!(rows[23].contains("q quit"));
    let mut state = State::new(By::Client, true);
    assert!(shown(&mut state, &session, (80, 24)).1, "colours are used where they may be");
    for size in [(1, 1), (20, 5), (300, 100)] {
        shown(&mut state, &session, size);
    }
}

#[test]
fn keys_sort_select_and_change_the_table() {
    let session = session(100);
    let mut state = State::new(By::Client, false);
    shown(&mut state, &session, (80, 24));
    press(&mut state, KeyCode::Char('e'));
    let (rows, _) = shown(&mut state, &session, (80, 24));
    assert!(rows[3].contains("errors*"));
    // The one client without an error is last, and the list scrolls to it.
    press(&mut state, KeyCode::End);
    let (rows, _) = shown(&mut state, &session, (80, 24));
    assert!(rows[21].starts_with("10.0.1.1 "), "{rows:#?}");
    press(&mut state, KeyCode::Up);
    assert_eq!(state.selected, 98);
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.by, By::User);
    let (rows, _) = shown(&mut state, &session, (80, 24));
    assert!(rows[4].starts_with("uid 7 "), "{rows:#?}");
    press(&mut state, KeyCode::Char('1'));
    assert_eq!((state.by, state.sort), (By::Operation, Sort::Errors));
    assert_eq!(press(&mut state, KeyCode::Char('q')), Action::Quit);
}

#[test]
fn a_client_can_be_looked_into_and_found_by_its_address() {
    let mut session = session(3);
    let mut state = State::new(By::Operation, false);
    state.update(&session);
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Nothing);
    assert!(state.complaint.is_some());
    press(&mut state, KeyCode::Char('2'));
    state.update(&session);
    let client = [10, 0, 1, 3].into();
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Focus(Some(client)));
    session.set_focus(Some(client));
    for (address, xid) in [(client, 70), (CLIENT, 71)] {
        let call = udp_bytes((800, 2049), &getattr(xid));
        session.handle_packet(&ip(2_100_000_000, &ip_bytes(address, SERVER, 17, &call)));
        let reply = udp_bytes((2049, 800), &getattr_reply(xid, 0));
        session.handle_packet(&ip(2_200_000_000, &ip_bytes(SERVER, address, 17, &reply)));
    }
    session.end_interval(3_000_000_000);
    let (rows, _) = shown(&mut state, &session, (80, 24));
    assert!(rows[0].contains("client 10.0.1.3"));
    let numbers: Vec<&str> = rows[4].split_whitespace().collect();
    assert_eq!(numbers[..4], ["nfs3", "getattr", "1.0", "1"], "{rows:#?}");
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Focus(None));
    session.set_focus(None);
    assert_eq!(session.total().total().calls, 8);

    press(&mut state, KeyCode::Char('f'));
    for letter in "10.0.1.9x".chars() {
        press(&mut state, KeyCode::Char(letter));
    }
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Nothing);
    assert!(shown(&mut state, &session, (80, 24)).0[23].starts_with("that is no address"));
    press(&mut state, KeyCode::Backspace);
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Focus(Some([10, 0, 1, 9].into())));
}
