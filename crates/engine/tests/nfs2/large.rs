//! Files that NFSv2 cannot tell the size of.

use steadfast_wire::nfs2::Sattr2;

use super::harness::{Bench, UNCHANGED};

const LAST: u32 = 0x7fff_ffff;

#[test]
fn beyond_2_gib_nothing_is_read_or_written() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, _) = bench.create(&root, b"f", &UNCHANGED).unwrap();
    assert_eq!(bench.write(&file, LAST, b"x"), Err(27), "FBIG");
    assert_eq!(bench.write(&file, LAST - 1, b"xy"), Err(27));
    assert_eq!(bench.write(&file, u32::MAX, b"x"), Err(27));
    assert_eq!(bench.read(&file, LAST + 1, 1), Err(27));
    assert_eq!(bench.read(&file, u32::MAX, 1), Err(27));
    assert_eq!(bench.read(&file, LAST, 1).unwrap().1, b"");
    assert_eq!(bench.setattr(&file, &Sattr2 { size: LAST + 1, ..UNCHANGED }), Err(27));
    assert_eq!(bench.create(&root, b"g", &Sattr2 { size: LAST + 1, ..UNCHANGED }), Err(27));
    assert_eq!(bench.lookup(&root, b"g"), Err(2), "not made either");
    assert_eq!(bench.getattr(&file).size, 0);
}
