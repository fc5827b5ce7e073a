//! One client against replies that are written down.

use super::*;

const MS: u64 = 1_000_000;

fn common() -> Common {
    Common {
        target: Target::new("127.0.0.1:2049".parse().unwrap()),
        path: b"/share".to_vec(),
        every_share: None,
        paths: Paths::default(),
        rpcbind: Some("127.0.0.1:111".parse().unwrap()),
        patience: Patience::default(),
    }
}

fn reply(client: &StormClient, words: &[u32]) -> Vec<u8> {
    let head = [client.xid, 1, 0, 0, 0, 0];
    head.iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
}

fn port_of(next: &Next) -> u16 {
    match next {
        Next::Connect(address) => address.port(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_goes_from_rpcbind_to_its_mount() {
    let common = common();
    let mut client = StormClient::new(&common, 7, 0);
    assert_eq!(port_of(&client.begin(&common, 0)), 111);
    assert!(matches!(client.handle_connected(&common, MS), Next::Send(_)));
    let answer = reply(&client, &[2050]);
    assert!(matches!(client.handle_reply(&common, &answer, 2 * MS), Next::Send(_)));
    let answer = reply(&client, &[20_048]);
    assert_eq!(port_of(&client.handle_reply(&common, &answer, 3 * MS)), 20_048);
    assert!(matches!(client.handle_connected(&common, 4 * MS), Next::Send(_)));
    let answer = reply(&client, &[0, 4, 99, 1, 1]);
    assert_eq!(port_of(&client.handle_reply(&common, &answer, 5 * MS)), 2050);
    assert!(matches!(client.handle_connected(&common, 6 * MS), Next::Send(_)));
    let mut fsinfo = vec![0, 0];
    fsinfo.extend([0; 12]);
    let answer = reply(&client, &fsinfo);
    assert!(matches!(client.handle_reply(&common, &answer, 7 * MS), Next::Send(_)));
    let mut getattr = vec![0, 2];
    getattr.extend([0; 20]);
    let answer = reply(&client, &getattr);
    assert_eq!(client.handle_reply(&common, &answer, 8 * MS), Next::Stay);
    assert_eq!((client.step, client.attempts), (Step::Mounted, 1));
    assert!(client.is_done());
}

#[test]
fn pauses_grow_and_end_with_the_clients_patience() {
    let common = common();
    let mut client = StormClient::new(&common, 7, 0);
    let (mut now, mut pauses) = (0, Vec::new());
    loop {
        client.begin(&common, now);
        match client.fail(&common, Failure::TimedOut, now) {
            Next::Pause(until) => {
                pauses.push((until - now) / 1_000_000_000);
                now = until;
            }
            next => {
                assert_eq!(next, Next::Stop);
                break;
            }
        }
    }
    assert_eq!(pauses[..6], [1, 2, 4, 8, 10, 10]);
    assert!(now < 120_000_000_000 && now > 100_000_000_000);
    assert_eq!(client.step, Step::GivenUp);
}

#[test]
fn refusals_and_nonsense_are_final() {
    let common = common();
    for (words, part) in [(&[13][..], "status 13"), (&[0, 4], "ends early")] {
        let mut client = StormClient::new(&common, 7, 0);
        client.step = Step::Mnt;
        let answer = reply(&client, words);
        assert_eq!(client.handle_reply(&common, &answer, 1), Next::Stop);
        let failure = client.failure.unwrap().to_string();
        assert!(failure.contains(part), "{failure}");
    }
    let mut client = StormClient::new(&common, 7, 0);
    client.step = Step::PortOfMount;
    let answer = reply(&client, &[0]);
    assert!(matches!(client.handle_reply(&common, &answer, 1), Next::Pause(_)));
    let mut client = StormClient::new(&common, 7, 0);
    client.step = Step::Mnt;
    assert_eq!(client.handle_reply(&common, b"1234", 1), Next::Stop);
}

/// The stream of the reply that tells two shares.
fn two_shares(client: &StormClient) -> Vec<u8> {
    let words = [1, 2, 0x2f61_0000, 0, 1, 2, 0x2f62_0000, 0, 0];
    let reply = reply(client, &words);
    let mark = 0x8000_0000 | reply.len() as u32;
    [&mark.to_be_bytes()[..], &reply].concat()
}

/// A client that was told two shares and asks for the first.
fn told_two_shares(common: &mut Common) -> StormClient {
    common.rpcbind = None;
    common.every_share = Some(EveryShare(9));
    let mut client = StormClient::new(common, 7, 0);
    client.begin(common, 0);
    assert!(matches!(client.handle_connected(common, MS), Next::Send(_)));
    assert!(client.is_listing());
    let list = two_shares(&client);
    let (begin, end) = list.split_at(50);
    assert_eq!(client.handle_listing(common, begin, 9000 * MS), None);
    // As long as something comes, it waits.
    assert_eq!(client.deadline_ns(common), 19_000 * MS);
    let next = client.handle_listing(common, end, 9001 * MS);
    assert!(matches!(next, Some(Next::Send(call)) if call.ends_with(b"\0\0\0\x02/a\0\0")));
    client
}

#[test]
fn an_automounter_mounts_what_it_is_told_one_after_the_other() {
    let mut common = common();
    let mut client = told_two_shares(&mut common);
    let answer = reply(&client, &[0, 4, 99, 1, 1]);
    let next = client.handle_reply(&common, &answer, 9002 * MS);
    assert!(matches!(next, Next::Send(call) if call.ends_with(b"/b\0\0")));
    let answer = reply(&client, &[0, 4, 55, 1, 1]);
    assert!(matches!(client.handle_reply(&common, &answer, 9003 * MS), Next::Connect(_)));
    // Of the first share it asks for attributes.
    assert_eq!(client.handle, [0, 0, 0, 99]);
    assert_eq!((client.everything.mounted(), client.everything.told.0), (2, 2));
}

#[test]
fn refused_shares_are_counted_and_fail_the_client_at_the_end() {
    let mut common = common();
    let mut client = told_two_shares(&mut common);
    let answer = reply(&client, &[13]);
    assert!(matches!(client.handle_reply(&common, &answer, 9002 * MS), Next::Send(_)));
    let answer = reply(&client, &[0, 4, 55, 1, 1]);
    client.handle_reply(&common, &answer, 9003 * MS);
    assert_eq!(client.handle, [0, 0, 0, 55]);
    assert_eq!((client.everything.mounted(), client.everything.refused[&13]), (1, 1));
    client.step = Step::Getattr;
    let mut getattr = vec![0, 2];
    getattr.extend([0; 20]);
    let answer = reply(&client, &getattr);
    assert_eq!(client.handle_reply(&common, &answer, 9004 * MS), Next::Stop);
    assert!(client.failure.unwrap().to_string().contains("refused some"));
    // Without any share there is nothing to look at.
    let mut client = told_two_shares(&mut common);
    for last in [false, true] {
        let answer = reply(&client, &[13]);
        let next = client.handle_reply(&common, &answer, 9005 * MS);
        assert_eq!(next == Next::Stop, last);
    }
}

#[test]
fn an_interrupted_automounter_goes_on_where_it_was() {
    let mut common = common();
    let mut client = told_two_shares(&mut common);
    let answer = reply(&client, &[0, 4, 99, 1, 1]);
    client.handle_reply(&common, &answer, 9002 * MS);
    assert!(matches!(client.fail(&common, Failure::TimedOut, 9003 * MS), Next::Pause(_)));
    client.begin(&common, 10_000 * MS);
    let next = client.handle_connected(&common, 10_001 * MS);
    assert!(matches!(next, Next::Send(call) if call.ends_with(b"/b\0\0")));
}
