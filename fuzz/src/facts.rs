//! Short texts of each kind that `steadfast doctor` reads.

const MOUNT: &str = "device s:/x mounted on /x with fstype nfs4 statvers=1.1\n\topts:\trw,proto=tcp,timeo=600,rsize=1024\n\
                 \tage:\t9\n\tevents:\t1 2 3 4 5 6 7\n\tbytes:\t1 2 3 4 5\n\txprt:\ttcp 812 1 2 0 5 100 100 3 150 40 64\n\
                 \tper-op statistics\n\t READ: 1000 1003 1 20000 800000 50 400 460 2\n";

/// Which text, and one.
pub const SAMPLES: &[(u8, &str)] = &[
    (
        0,
        "rc 7 100 2000\nfh 3\nio 4096 8192\nth 8\nnet 2110 10\nrpc 2107 3\nproc3 22 1 50 2 30 40 0 9 800 1\n",
    ),
    (1, "rpc 1000 5 1000\nproc3 22 1 50 2\n"),
    (2, MOUNT),
    (3, "Tcp: InSegs OutSegs RetransSegs\nTcp: 9 20000 700\n"),
    (4, "00000f19 00000002 00000001\n"),
    (5, "eth0: 98569927 3859 1 2 3 0 0 0 205276 2004 4 5 0 0 6 0\n"),
    (
        6,
        "1: 00000000:0801 00000000:0000 07 00000000:00000A00 00:00000000 00000000 0 0 4711 2 0 17\n",
    ),
    (7, "Iface Destination Gateway\neth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0\n"),
    (8, "cpu  48226 127 4071 23223 521 0 54 17 0 0\nprocs_running 4\n"),
    (9, "some avg10=0.20 avg60=0.38 avg300=0.58 total=4674273\n"),
    (
        10,
        " 254 0 vda 57600 7046 3334626 19227 9089 39987 3420088 18322 0 7972 38285 0 0 0 0 598 41\n",
    ),
    (11, "MemTotal:  24684084 kB\nMemAvailable: 1 kB\n"),
    (12, "nameserver 192.0.2.1\noptions timeout:2 attempts:1\n/srv\t*(rw,async)\n"),
    (13, "22 1 8:1 / / rw - ext4 /dev/sda rw\n"),
    (15, "{\"version\":1,\"entries\":[{\"key\":\"a\",\"before\":\"1\",\"after\":\"2\"}]}"),
];
